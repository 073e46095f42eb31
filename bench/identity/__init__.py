"""What things are known by: keys and seeds."""
