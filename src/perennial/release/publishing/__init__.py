"""Publishing of promoted models: versions in a folder or on S3, and how they are fetched."""
