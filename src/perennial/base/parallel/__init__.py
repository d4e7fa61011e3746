"""Parallel work: other processes of this package, pools, threads, Ray."""
