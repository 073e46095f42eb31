"""Exit codes of a comparison of two commits by asv."""

import pytest

from benchmarks.continuous import exit_code

HEAD = """
| Change   | Before [95f3bf4d] <main~1> | After [d29677b3] <main> | Ratio | Benchmark (Parameter) |
|----------|----------------------------|-------------------------|-------|-----------------------|
"""
SAME = (
    HEAD
    + "|          |   1.00 |   1.04 |    1.04 | x.A.track_a(1) |\n\nBENCHMARKS NOT SIGNIFICANTLY CHANGED.\n"
)
NOISE = (
    HEAD
    + "|          |   1.00 |   1.40 |   ~1.40 | x.A.track_a(1) |\n\nBENCHMARKS NOT SIGNIFICANTLY CHANGED.\n"
)
SLOWER = HEAD + "| +        |   1.00 |   6.00 |    6.00 | x.A.track_a(1) |\n\nPERFORMANCE DECREASED.\n"
SKIPPED = (
    HEAD
    + "|          |    n/a |    n/a |     n/a | x.A.track_a(1) |\n\nBENCHMARKS NOT SIGNIFICANTLY CHANGED.\n"
)


@pytest.mark.parametrize(
    ("status", "output", "expected"),
    [
        (0, SAME, 0),
        (0, NOISE, 0),
        (1, SLOWER, 1),
        (2, "x.A.track_a  failed\n", 2),
        (1, "Unknown commit deadbeef\n", 2),
        (1, "No benchmarks selected\n", 3),
        (0, SKIPPED, 3),
    ],
)
def test_regression_failure_and_no_measurement_have_their_own_codes(status, output, expected):
    assert exit_code(status, output) == expected
