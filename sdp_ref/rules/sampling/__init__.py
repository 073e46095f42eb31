"""Rules that draw samples of the input."""
