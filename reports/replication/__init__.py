"""Statements of the paper, and verdicts of our results on them."""
