"""All runs beside each other: in a terminal, and as one page."""
