"""Processes and shared resources: signals, locks, devices, clusters, parallel work."""
