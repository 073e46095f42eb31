"""Tables of the report, and measurements as frames and files."""
