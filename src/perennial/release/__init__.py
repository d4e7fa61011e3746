"""Versions: recorded in git, published to where programs load them, compared with what is stored."""
