"""Rules that are entered for a problem set: one JSON file each, made, read and checked here."""
