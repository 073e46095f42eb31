"""Estimates of distances: value, floor and standard error; and their existence under heavy tails."""
