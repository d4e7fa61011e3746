"""How long hostile inputs are looked for: two seconds a reader here, a minute with `make fuzz`."""

from hypothesis import settings

# Named by `--hypothesis-profile=fuzz`; fuzz/hunt.py reads it.
settings.register_profile("fuzz", max_examples=500, database=None, deadline=None)
