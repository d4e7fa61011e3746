"""`python -m perennial STAGE`, the only command in dvc.yaml."""

import os
import signal


def _end(_number: int, _frame: object) -> None:
    """End at once before and after a stage: there is nothing to clean up."""
    os.write(2, b"perennial: ended by a signal; run it again\n")
    os._exit(75)


for each in (signal.SIGTERM, signal.SIGINT):
    signal.signal(each, _end)

from perennial.cli import main  # noqa: E402

if __name__ == "__main__":
    main()
