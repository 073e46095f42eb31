"""Rules that carry the covariance between all values still to be read."""
