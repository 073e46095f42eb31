"""Error rates of floors, intervals, verdicts and gates, from simulations with known truth."""
