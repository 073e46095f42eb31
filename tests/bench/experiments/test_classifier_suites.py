import pytest
import torch

from sdp_bench.bench.experiments import experiment, preset
from sdp_bench.bench.metrics.oracle import Oracle
from sdp_bench.bench.nets.net import best_classifier, inputs_of
from sdp_bench.bench.runs.plan import plan_of

SEQUENCE = experiment("sequence")


@pytest.fixture(scope="module")
def nets():
    return [best_classifier(each, "committed") for each in SEQUENCE.classifiers]


@pytest.fixture(scope="module")
def plan(nets):
    return plan_of([SEQUENCE], preset("smoke", {"samples": 2000, "rules": ("sdp", "dvia")}), nets)


def test_a_ratio_is_what_a_direct_computation_gives(plan, nets):
    group = plan.groups[1]
    records = [
        each
        for each in group.measure([c for c in group.cells if c[1] == "sdp" and c[2] == "std_ratio"])
        if each.metric == "std_ratio"
    ]
    net = nets[0].build()
    x = inputs_of(nets[0]).batch([group.subjects[0].row])
    oracle = Oracle(net, group.law[0], group.subjects[0].key, group.settings.sampling)
    jacobian = torch.autograd.functional.jacobian(
        net.double(), x.double()
    )  # (1, 10, 1, 8, 2): the noise is independent and equal
    predicted = group.sigma * jacobian.flatten(2).square().sum(2).sqrt().squeeze()
    ratios = predicted / oracle.samples.double().std(0)
    assert torch.tensor([each.value for each in records]).double() == pytest.approx(ratios, rel=2e-3)
