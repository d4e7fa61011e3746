"""What stages read and made: noted, compared, kept apart, replaced."""
