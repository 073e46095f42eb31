"""The page about all rules that were entered for a problem set, by what they are used for."""
