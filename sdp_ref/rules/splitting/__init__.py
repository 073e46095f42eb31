"""Splitting: an input law as a mixture of narrower ones, each of which a base rule takes through the net."""
