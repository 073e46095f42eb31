"""Rules that evaluate the net at fixed points with weights."""
