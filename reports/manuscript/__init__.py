"""Results as parts of a paper: tables, figures, how to make them again, and a document that has them all."""
