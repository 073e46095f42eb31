import math

import pytest

from sdp_bench.oracles import Estimate, Ratio


def test_noise_is_taken_off_in_squares():
    assert Estimate(5.0, 3.0, 3.5, 0.1).corrected == pytest.approx(4.0)
    assert Estimate(2.0, 3.0, 3.5, 0.1).corrected == 0.0
    assert Estimate(math.inf, 3.0, 3.5, 0.0).corrected == math.inf


@pytest.mark.parametrize(("value", "expected"), [(0.9, True), (1.2, True), (1.21, False)])
def test_a_distance_up_to_the_95_percent_point_is_indistinguishable(value, expected):
    assert Estimate(value, 1.0, 1.2, 0.1).indistinguishable is expected


@pytest.mark.parametrize(("value", "expected"), [(0.02, False), (0.89, False), (0.95, True), (1.2, False)])
def test_a_ratio_is_wrong_on_either_side_of_one(value, expected):
    ratio = Ratio(value, 1.0, 1.1, 0.05)
    assert ratio.indistinguishable is expected
    assert ratio.corrected == value
