"""Send trainings to other people's experiment trackers; none of them can delay or fail a run."""
