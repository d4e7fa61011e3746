"""DVC without its Python API: its program, its files, its digests."""
