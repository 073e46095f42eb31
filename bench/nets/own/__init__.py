"""Nets of the user's own: code or a file, their inputs, and which input and output are meant."""
