"""Simulations with known truth, one module for each part of the suite."""
