"""Readers of the file formats of data sets."""
