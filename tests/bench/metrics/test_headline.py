"""What a net of some number of outputs is judged by in the first place sees errors along any axis."""

import pytest
import torch
from torch import nn

from sdp_bench.bench.experiments.own_net import measures_for
from sdp_bench.bench.identity import OracleKey, Sampling
from sdp_bench.bench.metrics import metric
from sdp_bench.bench.metrics.oracle import Oracle, Prediction
from sdp_ref.laws import DiagonalGaussian, Gaussian

SAMPLES = 20_000


def oracle_of(sds):
    law = DiagonalGaussian(torch.zeros(1, len(sds)).double(), (sds**2)[None])
    key = OracleKey("net", f"{len(sds)}", "noise", "mc", SAMPLES)
    return Oracle(nn.Identity(), law, key, Sampling(samples=SAMPLES))


def measured(name, oracle, covariance):
    prediction = Prediction(Gaussian(oracle.law.mean, covariance[None]), oracle)
    ((_, estimate),) = metric(name, {"pilot_samples": SAMPLES}).measure(oracle, prediction)
    return estimate


@pytest.mark.parametrize(("outputs", "least"), [(3, 0.65), (4, 0.9), (6, 0.9), (12, 0.9)])
def test_scales_wrong_by_ten_in_half_of_the_directions_are_seen(outputs, least):
    sds = torch.logspace(0, -3, outputs).double()
    oracle, name = oracle_of(sds), measures_for(outputs).metrics[0]
    exact = measured(name, oracle, torch.diag(sds**2))
    assert exact.value < 1.1 * exact.floor
    wrong = sds.clone()
    wrong[-(outputs // 2) :] *= 10  # TV is .80 of three outputs, where it is one direction, and .984 of six
    assert measured(name, oracle, torch.diag(wrong**2)).value > least


def test_up_to_three_outputs_both_names_are_of_one_number():
    for outputs in (1, 2, 3):
        sds = torch.logspace(0, -3, outputs).double()
        oracle, wrong = oracle_of(sds), torch.diag(1.2 * sds**2)
        tree, principal = (measured(name, oracle, wrong) for name in ("tv_headline", "tv_principal"))
        assert principal.value == tree.value
        assert principal.stderr == tree.stderr
        assert principal.floor == pytest.approx(tree.floor, rel=0.02)  # each has draws of its own
