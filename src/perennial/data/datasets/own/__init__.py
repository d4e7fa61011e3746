"""Your own data as they lie in folders, archives and buckets: splits, classes, labels and names of files."""
