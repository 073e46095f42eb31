import pandas as pd
import pytest

from sdp_bench.reports.sections.introduction import LayerOfIntroduction, optimum
from tests.reports import made_up
from tests.reports.helpers import outline, plain_text
from tests.reports.sections.helpers import introduction_frame


def test_scales_within_half_a_point_are_level():
    assert optimum(pd.Series({1.0: 90.0, 10.0: 89.6, 100.0: 89.4})) == (1.0, 10.0)
    assert optimum(pd.Series({1.0: 90.0, 10.0: 91.0})) == (10.0, 10.0)


def test_rows_have_the_best_scale_and_both_ends():
    section = LayerOfIntroduction().content(introduction_frame((10.0, 0.1), seeds=2), made_up.TRAITS)
    assert [(r["layer"], r["low"], r["high"]) for r in section["rows"]] == [(0, 10.0, 10.0), (1, 0.1, 0.1)]
    first = section["rows"][0]
    assert (first["best"], first["first"], first["last"]) == pytest.approx((90.5, 60.5, 80.5))
    assert section["runs"] == 2


def test_what_the_section_says():
    section = LayerOfIntroduction().content(introduction_frame((10.0, 1.0, 0.1)), made_up.TRAITS)
    text = made_up.rendered(LayerOfIntroduction(), **section)
    outline(text)
    assert "0 90.00 10.0 60.00 80.00" in plain_text(text)
    assert "MNIST: accuracy (%) over scale in training. k = 0: " in section["figure"].alt
