"""Train several times, each time without another part of the images, and predict that part."""
