"""The noise that is put on a net's input: families, each with one scale for all, and text that names them.

``noise_of("student_t:5")`` makes of text, which may name a file, what everything else works with.
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
