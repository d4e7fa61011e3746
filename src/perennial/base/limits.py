"""How long another program may take before it is stopped: all such limits, with their reasons.

`PERENNIAL_TIMEOUT_FACTOR` multiplies them: 3 on a slow network, 0.1 where failing early is better. Transfers
that stall end much earlier than their limit: over HTTP and ssh after `STALLED_S` without a byte.
"""

import math
import os

from perennial.base.errors import ConfigError

FACTOR = "PERENNIAL_TIMEOUT_FACTOR"

# Git. A question to a server precedes each transfer, so a server that is silent is noticed early.
ANSWER_S = 120.0  # for the list of a server's references: a small answer, after the sign-in
LOOK_S = 10.0  # the same, and for all answers of Prefect, where a command shows what it knows without them
TRANSFER_S = 4 * 3600.0  # a fetch, which may be the first one of a large repository
PUSH_S = 1800.0  # a few small files, but a server may run checks of its own before it answers
CHECKOUT_S = 3600.0  # a worktree, whose filters (such as Git LFS) may download
LOCAL_S = 600.0  # everything else reads and writes this repository; it may lie on a slow network disk
CONNECT_S = 60  # of ssh and of HTTP
STALLED_S = 60  # without a byte, over HTTP; over ssh, without an answer to its keep-alive messages

# DVC. Its own clients give up on a silent server within minutes over HTTP and S3.
DVC_S = 6 * 3600.0  # it may hash, push or fetch all data

INSTALL_S = 3600.0  # uv or pip: gigabytes of packages
LISTING_S = 60.0  # nvidia-smi: the driver needs seconds where it is not loaded yet

# From SIGTERM to SIGKILL: of a training or an orphan, its stage, the runs of a worker. Each has more time than
# it gives, to tell what was saved. Prefect and Kubernetes kill everything after 30 s by default.
SAVE_GRACE_S, STAGE_GRACE_S, RUNS_GRACE_S = 18.0, 20.0, 25.0
GRACE_S = 5.0  # of a program that has nothing to save


def scaled(limit_s: float) -> float:
    """A limit in seconds, multiplied by `PERENNIAL_TIMEOUT_FACTOR`."""
    text = os.environ.get(FACTOR, "1")
    try:
        factor = float(text)
    except ValueError:
        factor = math.nan
    if not 0 < factor < math.inf:
        raise ConfigError(f"{FACTOR} must be a positive number, such as 2, got {text!r}; nothing was started")
    return limit_s * factor
