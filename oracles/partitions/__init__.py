"""Cells frozen before any rule is seen, and total variation of counts in them."""
