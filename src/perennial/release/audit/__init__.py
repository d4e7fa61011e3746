"""Audit whether DVC's cache and remote hold what revisions need."""
