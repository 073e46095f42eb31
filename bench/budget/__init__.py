"""Uncertainty budget of a user's net: the shares of inputs in the variance of each output."""
