"""Wasserstein distances between samples: exact ones, and proven bounds."""
