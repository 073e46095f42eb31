"""Confidence intervals, tests, rankings and costs of rules over replicates."""
