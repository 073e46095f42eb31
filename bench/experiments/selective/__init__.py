"""Selective prediction: digits among letters."""
