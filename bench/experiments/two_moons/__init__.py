"""Two moons."""
