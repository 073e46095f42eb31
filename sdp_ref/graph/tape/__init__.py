"""Recording of a net as a tape of ATen ops, and analysis of the tape."""
