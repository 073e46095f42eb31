"""The comparisons of the gate with its baseline, one per module."""
