"""Publishing of models that passed the gate: versions in a folder or on S3, and how they are fetched."""
