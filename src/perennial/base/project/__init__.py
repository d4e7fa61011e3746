"""The project that the code works in: its git repository, DVC's files, pins, outputs and source code."""
