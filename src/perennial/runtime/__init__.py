"""Processes and what they share: signals, locks, devices, clusters, parallel work."""
