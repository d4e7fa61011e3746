"""Which images the registered versions saw, and which images later versions must not see."""
