"""Layer of introduction: a law that enters a net at a chosen layer."""
