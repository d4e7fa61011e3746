"""`python -m perennial STAGE`, the only command that dvc.yaml runs."""

from perennial.cli import main

if __name__ == "__main__":
    main()
