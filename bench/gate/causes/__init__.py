"""Why a rule does not pass, in one line: what changed in its predictions, by how much, and where."""
