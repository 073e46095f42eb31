"""The user's nets: code or a file, with inputs, and the choice of an input and an output."""
