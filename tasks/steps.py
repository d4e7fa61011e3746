"""The tasks of `retrain` and `rebuild` beside the stages, with retries and time limits."""

from perennial.orchestration.steps import artifacts, rebuild_versions, recording
from tasks.policy import HOUR_S, once, retried

# Of `retrain`.
start_record = once(HOUR_S)(recording.start_record)
require_champion = retried(HOUR_S)(recording.require_champion)
pin_champion = once(HOUR_S)(recording.pin_champion)
record = retried(6 * HOUR_S)(recording.record)  # pushes the model to DVC's remote
summarize = once(HOUR_S)(artifacts.summarize)

# Of `rebuild`.
find_champion = retried(HOUR_S)(rebuild_versions.find_champion)
rebuild_version = once(48 * HOUR_S, "rebuild {version}")(rebuild_versions.rebuild_version)
report_rebuild = once()(rebuild_versions.report_rebuild)
