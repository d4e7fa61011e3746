"""Parameters for own images: what is in the folder, what this machine can do, and choices that fit both."""
