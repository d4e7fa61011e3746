"""Downloads of source files: only verified files get their final name."""
