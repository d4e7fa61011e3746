"""How often what fails by chance is tried again, and after which pauses; `tasks/policy.py` has those of stages.

Waits for what is certain to come, such as a Job that Prefect has just created, stand where they are used.
"""

# A Prefect server: the pauses before each retry; a restarting server answers within their sum.
PREFECT_PAUSES_S = (1, 2, 4, 8, 16)
TERMINAL_PAUSES_S = (1, 2)  # the same for a person who waits at a terminal
RESTARTS = 3  # of a run whose process crashed

# Git: the pauses before each retry, and the tries of a push that others may be faster with.
GIT_PAUSES_S = (2, 5)  # of a fetch
GIT_RACE_S = (0.2, 1.0)  # if another process moved the same reference
RACES = 5  # pushes of the record of a run, while runs of other pipelines move the branch

# S3. boto3 retries too little when many requests fail.
STORE_TRIES = 10  # of one call without progress
STORE_UNREACHABLE_TRIES = 6  # enough to outlast a restart of the server
STORE_CONNECT_TRIES = 2  # a connect timeout has already waited
STORE_SILENT_TRIES = 3  # each has waited for a byte
STORE_PAUSE_S, STORE_PAUSE_MAX_S = 0.2, 10.0  # doubled at every try

# Downloads: tries of each mirror; one that received a part does not count.
DOWNLOAD_TRIES = 5
DOWNLOAD_PAUSE_S, DOWNLOAD_PAUSE_MAX_S = 0.5, 30.0  # doubled at every try
DOWNLOAD_REQUESTED_PAUSE_MAX_S = 60.0  # of the time that a server requests

COPY_PAUSE_S = 10.0  # least pause after a checkpoint could not be copied; the next one is another try


def is_temporary(status: int) -> bool:
    """Whether a server that answers with this HTTP status may answer otherwise soon."""
    return status in {408, 425, 429} or (status >= 500 and status != 501)
