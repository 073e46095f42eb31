"""The paper's tables and text as data."""
