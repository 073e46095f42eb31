"""Layer of introduction."""
