"""What rules answer in cells and probes: moments and laws, and how far they drift."""
