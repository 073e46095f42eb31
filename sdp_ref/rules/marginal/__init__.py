"""Rules that carry each component's own law, and no correlations."""
