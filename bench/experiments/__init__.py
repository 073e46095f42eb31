"""The questions that a run asks."""
