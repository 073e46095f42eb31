"""Prediction intervals on UCI regression sets."""
