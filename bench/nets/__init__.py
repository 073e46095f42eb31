"""Nets that are measured: architectures, recipes, training, files."""
