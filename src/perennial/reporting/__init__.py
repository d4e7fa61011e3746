"""The report of a run: one page for a person, made of what the stages left."""
