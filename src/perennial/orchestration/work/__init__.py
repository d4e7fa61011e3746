"""The work of a run: stages through DVC, commands of perennial, and how they fail."""
