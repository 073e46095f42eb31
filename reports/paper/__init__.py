"""Tables and text of the paper as data."""
