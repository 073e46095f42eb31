"""Section of the page."""
