"""Simulations with known truth, of one part of the suite each."""
