"""Which images the versions of git saw, and which none may see again."""
