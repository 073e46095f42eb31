"""Sampling of a user's net until the requested quantities are known within a tolerance."""
