"""The noise on a net's input: families with a common scale, and the parser of their names.

``noise_of("student_t:5")`` converts text, which may name a file, into the object that all other code uses.
"""

from sdp_bench.bench.noise.families import CAUCHY, GAUSSIAN, Noise, name_of, parameter_of, stable
from sdp_bench.bench.noise.written import noise_of, restored, stored

__all__ = [
    "CAUCHY",
    "GAUSSIAN",
    "Noise",
    "name_of",
    "noise_of",
    "parameter_of",
    "restored",
    "stable",
    "stored",
]
