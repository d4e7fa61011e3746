"""Runs of a deployment on a server: start and follow one, see their status, test an alert."""
