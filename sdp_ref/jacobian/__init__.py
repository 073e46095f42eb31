"""Jacobians of whole nets."""
