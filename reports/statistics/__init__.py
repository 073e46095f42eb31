"""Intervals, tests, ranks and costs over replicates."""
