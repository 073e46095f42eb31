"""The measurements behind the numbers of a page."""
