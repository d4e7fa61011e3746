"""Garbage collection: space used on this machine and in the remote, and the part that nothing needs."""
