import math

import pytest

from sdp_bench.reports.style import labels


@pytest.mark.parametrize(
    ("x", "decimals", "text"),
    [
        (0.97914, 4, "0.9791"),
        (-0.25, 2, "−0.25"),
        (7.7325, None, "7.73"),
        (0.0126, None, "0.0126"),
        (21.04, None, "21.0"),
        (123.4, None, "123"),
        (4321.0, None, "4321"),
        (999.7, None, "1000"),
        (99.96, None, "100"),
        (4.321e6, None, "4.32e6"),
        (4.321e-5, None, "4.32e−5"),
        (0.0, None, "0"),
        (math.nan, None, "–"),
        (math.inf, 4, "∞"),
    ],
)
def test_numbers(x, decimals, text):
    assert labels.number(x, decimals) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.00123, "1.23 ms"),
        (12.34, "12.3 s"),
        (201.4, "3 min 21 s"),
        (120, "2 min"),
        (7384, "2 h 3 min"),
        (3599.7, "1 h 0 min"),
    ],
)
def test_durations(seconds, text):
    assert labels.duration(seconds).replace("\u00a0", " ") == text
