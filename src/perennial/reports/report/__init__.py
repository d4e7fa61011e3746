"""The report of a run: one HTML page from the files that the stages wrote."""
