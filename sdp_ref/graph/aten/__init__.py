"""Translation of ATen ops to modules."""
