"""One stored measurement again, step by step and layer by layer."""
