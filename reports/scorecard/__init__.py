"""The page about one rule or one net of a user's."""
