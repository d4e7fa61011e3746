"""What perennial holds on this machine and in the remote, and what of it nothing needs."""
