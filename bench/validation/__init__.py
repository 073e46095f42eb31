"""Validation of new rules, or of a user's net."""
