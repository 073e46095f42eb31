"""Splitting: an input law as a mixture of narrower laws, which a base rule propagates."""
