"""What is fast and what is small, against peers that do the same work: `make bench`."""
