"""Programs, signals, locks, and the import of TensorFlow."""
