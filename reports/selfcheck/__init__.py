"""How often floors, intervals, verdicts and gates are wrong, found by simulation with known truth."""
