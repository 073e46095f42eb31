"""Rules that propagate the law of each component, without correlations."""
