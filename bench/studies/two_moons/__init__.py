"""Two moons: the uncertainty of nets at seen points and elsewhere."""
