"""What validation found, as a page and as a screen in a terminal."""
