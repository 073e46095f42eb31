"""Proper scores of predicted laws, and what interval and tail probabilities are worth."""
