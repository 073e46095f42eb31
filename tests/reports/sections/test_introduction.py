import numpy as np
import pandas as pd
import pytest

from sdp_bench.bench.studies.introduction import EXPERIMENT
from sdp_bench.reports.sections.introduction import LayerOfIntroduction, optimum
from tests.reports import made_up
from tests.reports.test_page import outline, told

SCALES = (1e-2, 1e-1, 1.0, 10.0, 100.0)


def frame(best, seeds=1, scales=SCALES):
    """Accuracies that fall by .1 a decade on both sides of each layer's best scale."""
    rows = [
        (f"layer_{layer}", scale, seed, 0.9 - 0.1 * abs(np.log10(scale / at)) + 0.01 * seed)
        for layer, at in enumerate(best)
        for scale in scales
        for seed in range(seeds)
    ]
    same = {"experiment": EXPERIMENT.name, "rule": "marginal_sdp", "metric": "accuracy"}
    return made_up.table("objective sigma seed value", rows, recipe="trained on 100 images", **same)


def test_scales_within_half_a_point_are_level():
    assert optimum(pd.Series({1.0: 90.0, 10.0: 89.6, 100.0: 89.4})) == (1.0, 10.0)
    assert optimum(pd.Series({1.0: 90.0, 10.0: 91.0})) == (10.0, 10.0)


def test_rows_have_the_best_scale_and_both_ends():
    section = LayerOfIntroduction().content(frame((10.0, 0.1), seeds=2), made_up.TRAITS)
    assert [(r["layer"], r["low"], r["high"]) for r in section["rows"]] == [(0, 10.0, 10.0), (1, 0.1, 0.1)]
    first = section["rows"][0]
    assert (first["best"], first["first"], first["last"]) == pytest.approx((90.5, 60.5, 80.5))
    assert section["runs"] == 2


def test_what_the_section_says():
    section = LayerOfIntroduction().content(frame((10.0, 1.0, 0.1)), made_up.TRAITS)
    text = made_up.rendered(LayerOfIntroduction(), **section)
    outline(text)
    assert "0 90.00 10.0 60.00 80.00" in told(text)
    assert "MNIST: accuracy (%) over scale in training. k = 0: " in section["figure"].alt
