"""Records, the file that keeps them, and their exchange."""
