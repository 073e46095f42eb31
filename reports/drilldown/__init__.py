"""Where the error of one measurement enters, layer by layer."""
