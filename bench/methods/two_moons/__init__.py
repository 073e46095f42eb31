"""Two moons: which points a net is uncertain about, seen ones or others."""
