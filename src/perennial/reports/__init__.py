"""What people and other programs read of runs: the HTML report, and records sent to experiment trackers."""
