"""Why two revisions score differently: what differs, its effect, and the difference that caused it."""
