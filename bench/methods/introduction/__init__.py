"""Layer of introduction: a law that enters a net at one layer or another."""
