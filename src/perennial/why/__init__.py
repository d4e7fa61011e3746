"""Why two revisions have other scores: what differs, its effect, and the one difference that caused it."""
