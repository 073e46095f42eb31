"""Predictions of rules in cells and probes: moments and laws, and their drift."""
