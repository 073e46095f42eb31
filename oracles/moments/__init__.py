"""Moments of samples with their standard errors, and distances between moments."""
