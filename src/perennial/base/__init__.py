"""What the rest stands on: errors, files, parameters, processes, stores, and the project in git and DVC."""
