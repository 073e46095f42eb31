"""Error rates of floors, intervals and verdicts, in simulations with known truth.

``python -m tests.calibration`` runs all simulations and writes docs/error_rates.csv and .md; ``make slow``
tests each of them.
"""
