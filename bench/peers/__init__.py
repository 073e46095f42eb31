"""Published packages as rules, one module each; a package is imported when it is first used."""
