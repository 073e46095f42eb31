"""Error rates of floors, intervals, verdicts, gate and conformance kit, in simulations with known truth.

``python -m tests.calibration`` runs all simulations and writes docs/error_rates.md; ``make slow`` tests each
of them.
"""
