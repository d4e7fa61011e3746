"""Rebuilding a revision from git and DVC's remote alone, and the proofs of it."""
