"""Methods that are trained and scored on data, without an oracle."""
