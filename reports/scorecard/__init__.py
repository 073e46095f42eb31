"""The page about one rule or net of a user."""
