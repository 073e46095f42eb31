"""Wasserstein distances between samples, exact and between proven bounds."""
