"""Other people's packages as rules, a module each; nothing of theirs is imported before it is asked for."""
