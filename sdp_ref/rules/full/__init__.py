"""Rules that propagate the covariance between all values that are read later."""
