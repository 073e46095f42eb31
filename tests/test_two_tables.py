"""The script that sets two tables of the paper beside each other, on laws of which the answer is known."""

import runpy
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import norm

SCRIPT = Path(__file__).parents[1] / "docs" / "examples" / "two_tables.py"
SAMPLES = 200_000


@pytest.fixture(scope="module")
def script():
    return runpy.run_path(str(SCRIPT))


def overlap(ratio):
    """Mass that normal laws of standard deviations 1 and `ratio` share, both around 0."""
    if ratio == 1:
        return 1.0
    meet = np.sqrt(-2 * np.log(ratio) / (ratio**-2 - 1))
    return 1 - 2 * (norm.cdf(meet / ratio) - norm.cdf(meet))


@pytest.mark.parametrize("ratio", [0.2, 0.34, 0.8, 1])
def test_of_a_normal_law_the_bound_is_the_overlap(script, ratio):
    values = 3 + 2 * np.random.default_rng(0).standard_normal(SAMPLES)
    # 200 bins lose a little of the difference, and of equal laws the samples' noise is what is left
    noise = np.sqrt(2 / np.pi * script["FINE"] / SAMPLES) / 2
    assert script["most_in_one_output"](values, 2 * ratio) == pytest.approx(overlap(ratio), abs=noise + 0.002)


def test_a_gaussian_of_the_true_widths_is_a_gaussian_law(script):
    generator = np.random.default_rng(1)
    factor = np.array([[1.0, 0, 0], [0.5, 1, 0], [0.2, -0.3, 2]])
    outputs = generator.standard_normal((SAMPLES, 3)) @ factor.T
    whole = script["shares"](outputs, np.ones(3), generator)
    assert min(whole) > 0.96
    narrow = script["shares"](outputs, np.full(3, 0.34), generator)
    assert narrow[0] == pytest.approx(overlap(0.34), abs=0.01)
    assert max(narrow[1:]) < min(whole[1:])
