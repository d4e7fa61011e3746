"""params.yaml as a file: its text and reference, edits that keep the rest, advice about its values."""
