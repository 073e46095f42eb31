"""Rules and nets from outside the package."""
