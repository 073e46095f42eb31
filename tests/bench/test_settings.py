import json

import pytest

from sdp_bench.bench.errors import UserError
from sdp_bench.bench.experiments import PRESETS, experiment, experiments, preset
from sdp_bench.bench.results.folder import read
from sdp_bench.bench.settings import Settings, Size
from sdp_bench.reports.results import COMMITTED
from tests.bench.conftest import TINY


def test_each_option_goes_where_it_belongs():
    settings = Settings().but(depths=(1,), samples=1000, cells=64, epochs=3, rules=("sdp",))
    assert settings.design.depths == (1,)
    assert settings.design.samples == settings.sampling.samples == 1000
    assert settings.metrics == {"cells": 64}
    assert settings.design.training == {"epochs": 3}
    assert settings.rules == ("sdp",)
    more = settings.but(optimizer="adam", cells=128)
    assert more.design.training == {"epochs": 3, "optimizer": "adam"}
    assert more.metrics == {"cells": 128}
    assert more.design.depths == (1,)


@pytest.mark.parametrize("settings", [TINY] + [preset(name) for name in PRESETS])
def test_what_a_run_stores_reads_back(settings):
    assert Settings.from_dict(json.loads(json.dumps(settings.as_dict()))) == settings


def test_settings_of_the_committed_runs_keep_their_values():
    runs = read(COMMITTED, columns=("run",)).runs.values()
    assert len(runs) > 0
    for flat in (run.settings for run in runs):
        settings = Settings.from_dict(flat)
        assert set(settings.sizes) <= set(experiments())
        if "design" in flat:  # of today's form
            assert json.loads(json.dumps(settings.as_dict())) == flat
            continue
        assert settings.sampling.samples == flat["samples"]
        assert settings.metric_options["cells"] == flat["cells"]
        assert list(settings.design.sigmas or ()) == (flat["sigmas"] or [])
        assert list(settings.rules or ()) == (flat["rules"] or [])


def test_the_design_of_a_run_goes_before_that_of_a_preset_and_the_papers():
    uci = experiment("uci")
    assert uci.size(Settings()).nets == 20
    assert uci.size(preset("quick")).nets == 3
    assert uci.size(preset("quick", {"nets": 5, "epochs": 9, "datasets": ("yacht",)})) == Size(
        5, None, None, 9, ("yacht",), on_request=True
    )
    assert uci.size(preset("smoke")).on_request
    assert experiment("iris-tv").size(preset("smoke", {"inputs": 4})).inputs == 4


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"nets": 0}, "nets must be positive"),
        ({"inputs": 0}, "inputs must be positive"),
        ({"width": -1}, "width must be positive"),
        ({"net_source": "web"}, "choose from trained, committed"),
        ({"depths": ()}, "depths must be positive"),
        ({"features": "log"}, "unknown feature scaling 'log'"),
        ({"samples": 5}, "samples must be at least 100"),
        ({"sigmas": (0.0,)}, "sigma must be positive"),
        ({"bins": -1}, "bins must be positive"),
        ({"sampler": "lhs"}, "choose from mc, sobol"),
        ({"activation": "maxout"}, "choose from relu"),
        ({"w1_pairs": 1}, "w1_pairs must be at least 2"),
        ({"learning_rate": float("inf")}, "positive and finite"),
    ],
)
def test_values_out_of_range_are_one_line(options, message):
    with pytest.raises(UserError, match=message):
        Settings().but(**options)
