"""The registry in git: versions, the champion, and records of runs."""
