"""Partitions that are fixed before any rule is evaluated, and total variation of counts in their cells."""
