"""Rules, metrics and nets from outside the package."""
