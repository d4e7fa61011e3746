"""What an exported model says of images: for a program, and for a person at a command line."""
