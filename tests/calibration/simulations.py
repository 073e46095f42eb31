"""All simulations of error rates, and their seeds."""

import zlib

import numpy as np

from tests.calibration import few_inputs, floors, verdicts

SIMULATIONS = (*floors.SIMULATIONS, *verdicts.SIMULATIONS, *few_inputs.SIMULATIONS)


def rates_of(simulation):
    """Rates under the fixed seed of a simulation."""
    return list(simulation(np.random.default_rng(zlib.crc32(simulation.__name__.encode()))))
