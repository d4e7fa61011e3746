"""Rehearsals of a pipeline under faults, in folders of their own."""
