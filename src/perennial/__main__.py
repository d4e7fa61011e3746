"""`python -m perennial STAGE`, the only command that dvc.yaml runs."""

import signal

# Until a stage can be interrupted there is nothing to clean up, and nothing to trace back.
signal.signal(signal.SIGINT, signal.SIG_DFL)

from perennial.cli import main  # noqa: E402

if __name__ == "__main__":
    main()
