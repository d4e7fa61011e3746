"""`python -m perennial STAGE`, the only command that dvc.yaml runs."""

import os
import signal


def _end(_number: int, _frame: object) -> None:
    """Until a stage can be interrupted there is nothing to clean up, and nothing to trace back."""
    os.write(2, b"perennial: a signal ended it before it began; run it again\n")
    os._exit(75)


for each in (signal.SIGTERM, signal.SIGINT):
    signal.signal(each, _end)

from perennial.cli import main  # noqa: E402

if __name__ == "__main__":
    main()
