"""The tasks of `approve` and `monitor`, with retries and time limits; both flows need a server."""

from perennial.orchestration.steps import monitor, wait_for_approval
from tasks.policy import HOUR_S, once, retried

# Of `approve`.
read_request = once(HOUR_S)(wait_for_approval.read_request)
show_request = once()(wait_for_approval.show_request)
decide = retried(6 * HOUR_S)(wait_for_approval.decide)

# Of `monitor`.
check_champion = once(HOUR_S)(monitor.check_champion)
start_retraining = retried(HOUR_S)(monitor.start_retraining)
report_checks = once()(monitor.report_checks)
require_all_seen = once()(monitor.require_all_seen)
