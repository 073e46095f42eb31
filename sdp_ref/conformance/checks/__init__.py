"""The checks of the kit, one module per family."""
