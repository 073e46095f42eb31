import shutil

import numpy as np
import pytest
import torch
from torch import nn

from sdp_bench.bench.errors import RunFailedError, UserError
from sdp_bench.bench.replay.drilldown import drilldown
from sdp_bench.bench.replay.replay import StoredMeasurement, stored_measurement
from sdp_bench.bench.results.folder import read
from sdp_bench.bench.settings import Size
from sdp_bench.oracles.moments.moments import Moments
from sdp_ref.laws import Cauchy, Gaussian
from sdp_ref.rules import SDP
from tests.bench.conftest import TINY, make_plan, run_all

SETTINGS = TINY.but(
    sizes={"iris-tv": Size(1, 1)},
    sigmas=(10.0,),
    rules=("sdp", "monte_carlo:samples=10", "marginal_sdp", "oracle_moments"),
)
RULES = ("sdp", "monte_carlo:samples=10", "marginal_sdp")


@pytest.fixture(scope="module")
def measured(tmp_path_factory):
    path = tmp_path_factory.mktemp("drill") / "results"
    frame = run_all(path, make_plan(SETTINGS, ("iris-tv",)), settings=SETTINGS)
    return path, frame[frame.metric == "tv_headline"].set_index("rule").key


def measurement_of(measured, rule):
    path, keys = measured
    return stored_measurement(read(path), keys[rule])


@pytest.mark.parametrize("rule", RULES)
def test_the_last_layer_has_the_error_of_the_measured_prediction(measured, rule):
    measurement = measurement_of(measured, rule)
    layers = drilldown(measurement)
    assert list(layers["layer"]) == ["Linear 1", "ReLU 1", "Linear 2"]
    assert (layers["note"] == "").all()
    assert layers["share"].sum() == pytest.approx(1)
    assert layers.attrs["samples"] == measurement.first["samples"]
    oracle = measurement.oracle
    law, moments = measurement.prediction(oracle)[0].gaussian, Moments.from_samples(oracle.samples)
    mean_error = np.linalg.norm(law.mean[0].double().numpy() - moments.mean)
    last = layers.iloc[-1]
    assert last["mean_error"] == pytest.approx(mean_error / moments.covariance.trace() ** 0.5, rel=1e-4)
    ratio = float(law.variance.sum() / moments.covariance.trace()) ** 0.5
    assert last["spread_ratio"] == pytest.approx(ratio, rel=1e-6)
    again = drilldown(measurement_of(measured, rule))
    assert again.equals(layers)
    assert again.attrs == layers.attrs


def test_outdated_measurements_and_references_are_rejected(measured, monkeypatch):
    with pytest.raises(UserError, match="'oracle_moments' is a reference"):
        drilldown(measurement_of(measured, "oracle_moments"))
    monkeypatch.setattr(SDP, "version", 2)
    with pytest.raises(UserError, match=r"sdp, tv_headline or the oracle has another version"):
        drilldown(measurement_of(measured, "sdp"))


class FailsInside:
    """A rule that fails for the width of the hidden layer, and predicts unit covariance elsewhere."""

    name = "fails_inside"

    def propagate(self, net, x):
        outputs = net(x.location)
        if outputs.shape[1] == TINY.design.width:
            raise ValueError("too many units")
        eye = torch.eye(outputs.shape[1], dtype=outputs.dtype)
        return Gaussian(outputs, eye.expand(len(outputs), -1, -1).clone())


class FailsAtTheEnd(FailsInside):
    def propagate(self, net, x):
        if isinstance(net, nn.Sequential) and len(net) == 3:
            raise ValueError("too many layers")
        return super().propagate(net[:0], x)


def test_layers_after_which_a_rule_fails_are_merged(measured, monkeypatch):
    monkeypatch.setattr(StoredMeasurement, "rule", FailsInside())
    layers = drilldown(measurement_of(measured, "sdp"))
    assert list(layers["layer"]) == ["3 ops up to Linear 1"]
    assert layers["note"][0].count("too many units") == 2
    assert not layers["exact"][0]
    assert layers["rule_floor95"][0] > 0
    monkeypatch.setattr(StoredMeasurement, "rule", FailsAtTheEnd())
    with pytest.raises(ValueError, match="too many layers"):
        drilldown(measurement_of(measured, "sdp"))


def test_noise_without_moments_has_no_errors_by_layer(measured):
    measurement = measurement_of(measured, "sdp")
    location = measurement.oracle.law.location
    measurement.oracle.law = Cauchy(location, torch.ones_like(location))
    with pytest.raises(ValueError, match="a Cauchy law, without a finite variance"):
        drilldown(measurement)


def test_a_measurement_without_weights_is_not_found(measured, tmp_path):
    path, keys = measured
    copy = shutil.copytree(path, tmp_path / "without_weights")
    shutil.rmtree(copy / "nets")
    with pytest.raises(RunFailedError, match="do not contain the weights"):
        stored_measurement(read(copy), keys["sdp"])
