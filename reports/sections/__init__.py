"""Sections of the report, one folder each."""
