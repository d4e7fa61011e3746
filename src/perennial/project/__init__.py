"""A user's own project: make it, choose and search its parameters, upgrade it, and rehearse it under faults."""
