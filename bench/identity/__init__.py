"""What things are known by: keys, seeds and fingerprints of code."""
