"""What made a version: rebuild it, explain its differences, find the images that it has seen."""
