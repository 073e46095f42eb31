"""Attacks on the running system, and what of each held."""

COUNTS = "attack"
"""Property of a test's report under which a line of counts stands."""
