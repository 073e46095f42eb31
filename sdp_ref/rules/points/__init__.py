"""Rules that evaluate the net at fixed weighted points."""
