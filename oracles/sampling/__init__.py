"""Samples of f(x + eps), reproducible to the bit."""
