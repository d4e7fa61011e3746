"""Scores that count each example once, and their pictures."""
