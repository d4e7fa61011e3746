"""The tasks beside the stages, with retries and time limits; `perennial.orchestration` says what they do."""

from perennial.orchestration.steps import approval, monitor, rebuild, summary
from perennial.orchestration.steps import record as git_record
from perennial.orchestration.work import run_record
from tasks.policy import HOUR_S, once, retried

# Of `retrain`.
start_record = once()(run_record.start_record)
require_champion = retried()(git_record.require_champion)
pin_champion = once()(git_record.pin_champion)
record = retried()(git_record.record)
summarize = once()(summary.summarize)

# Of `approve`.
read_request = once()(approval.look)
show_request = once()(approval.show)
decide = retried()(approval.decide)

# Of `monitor`.
check_champion = once(HOUR_S)(monitor.look)
start_retraining = retried()(monitor.start)
report_checks = once()(monitor.report)
require_all_seen = once()(monitor.require_all_seen)

# Of `rebuild`.
unproven = retried()(rebuild.unproven)
rebuild_version = once(48 * HOUR_S, "rebuild {version}")(rebuild.rebuild)
report_rebuilds = once()(rebuild.report)
require_all_equal = once()(rebuild.require_all_equal)
