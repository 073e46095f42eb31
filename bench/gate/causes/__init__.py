"""Why a rule does not pass, in one line: what of its predictions has changed, by how much, and where."""
