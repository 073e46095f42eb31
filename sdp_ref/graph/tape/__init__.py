"""What a net computes as a tape of ATen ops, and what can be read off that."""
