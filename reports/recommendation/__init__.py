"""Comparisons of rules on one net or experiment, and the recommendations that follow from them."""
