import shutil

import pytest
import torch

from sdp_bench.bench.errors import RunFailedError, UserError
from sdp_bench.bench.replay.drilldown import drill, rule_errors, true_moments
from sdp_bench.bench.replay.replay import stored_measurement
from sdp_bench.bench.results.store import Store
from sdp_bench.bench.settings import Size
from sdp_ref.laws import Cauchy, Gaussian
from sdp_ref.rules import SDP
from tests.bench.conftest import TINY, change, make_plan, run_all

SETTINGS = TINY.but(
    sizes={"iris-tv": Size(1, 1)}, sigmas=(10.0,), rules=("sdp", "monte_carlo:samples=10", "marginal_sdp")
)


@pytest.fixture(scope="module")
def measured(tmp_path_factory):
    path = tmp_path_factory.mktemp("drill") / "store.sqlite"
    frame = run_all(path, make_plan(SETTINGS, ("iris-tv",)))
    return path, frame[frame.metric == "tv_headline"].set_index("rule").key


@pytest.mark.parametrize("rule", SETTINGS.rules)
def test_a_stored_measurement_is_drilled_into(measured, rule):
    path, key = measured
    with Store(path) as store:
        found = drill(store, key[rule])
    assert found.key == key[rule]
    assert found.missing == ""
    assert [layer.label for layer in found.errors.layers] == ["Linear", "ReLU", "Linear"]
    # The last layer's total is the distance between the oracle's moments and the measured prediction's.
    law, moments = found.prediction.gaussian, found.oracle.moments
    ratio = float(law.variance.sum() / moments.covariance.trace()) ** 0.5
    assert found.errors.layers[-1].spread_ratio == pytest.approx(ratio, rel=1e-6)
    with Store(path) as store:
        again = drill(store, key[rule])
    assert again.errors == found.errors


def test_what_rests_on_another_version_is_not_drilled_into(measured, monkeypatch):
    path, key = measured
    monkeypatch.setattr(SDP, "version", 2)
    with Store(path) as store, pytest.raises(UserError, match=r"the oracle has another version"):
        drill(store, key["sdp"])


class Grumpy:
    """A rule that fails where hidden units are many, and is moment matching by samples elsewhere."""

    name = "grumpy"

    def propagate(self, net, x):
        outputs = net(x.location)
        if outputs.shape[1] == TINY.design.width:
            raise ValueError("too many units")
        eye = torch.eye(outputs.shape[1], dtype=outputs.dtype)
        return Gaussian(outputs, eye.expand(len(outputs), -1, -1).clone())


def test_layers_where_a_rule_fails_are_taken_together(measured):
    path, key = measured
    with Store(path) as store:
        oracle = stored_measurement(store, key["sdp"]).oracle
        found, skipped = rule_errors(Grumpy(), oracle, true_moments(oracle))
    assert [layer.label for layer in found.layers] == ["3 ops up to Linear"]
    assert len(skipped) == 2
    assert "too many units" in skipped[0]
    assert not found.layers[0].exact


def test_what_cannot_be_drilled_into_is_said(measured, tmp_path):
    path, key = measured
    with Store(path) as store:
        with pytest.raises(UserError, match="no measurement has a key"):
            drill(store, "ffff")
        oracle = stored_measurement(store, key["sdp"]).oracle
        oracle.law = Cauchy(oracle.law.location, torch.ones_like(oracle.law.location))
        with pytest.raises(ValueError, match="no moments"):
            true_moments(oracle)
    copy = tmp_path / "without_weights.sqlite"
    shutil.copy(path, copy)
    change(copy, "UPDATE nets SET weights = NULL")
    with Store(copy) as store, pytest.raises(RunFailedError, match="do not contain the weights"):
        drill(store, key["sdp"])
