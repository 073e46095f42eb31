"""Results for a paper: tables, figures, instructions to reproduce them, and a document with all of these."""
