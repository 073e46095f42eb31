"""Experiments on image classifiers."""
