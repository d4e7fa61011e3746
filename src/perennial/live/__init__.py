"""What runs on an export: serve it, keep images of its traffic, watch its scores, and label what it saw."""
