"""Proper scores of predicted laws, and errors of interval and tail probabilities."""
