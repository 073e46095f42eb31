"""Advice on linearisation without an oracle, and its calibration."""
