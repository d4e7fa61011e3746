"""The devices of this machine: which there are, and who uses them; the workers of a cluster."""
