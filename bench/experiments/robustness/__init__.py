"""Robustness against noise and attacks."""
