"""Parameters for the user's own images: a survey of images and machine, and choices that fit both."""
