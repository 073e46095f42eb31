import pytest
import torch

from sdp_bench.bench.studies.classifiers import TrainingImages
from sdp_bench.bench.studies.introduction.group import OBJECTIVES
from tests.bench.studies.conftest import TRAIN

PROBLEM = TrainingImages(TRAIN.kept, TRAIN.labels, "mlp")


def at(objective, scale):
    (scaled,) = objective.at([scale])
    return scaled


@pytest.mark.parametrize("layer", range(6))
def test_the_law_enters_after_so_many_layers(layer):
    """What comes before is the plain net; what comes after propagates a Gaussian of the scale's variance."""
    net = PROBLEM.build(0)
    pixels = TRAIN.kept[:5].float() / 255
    law = at(OBJECTIVES[layer], 0.3).law(net, pixels)
    hidden = pixels.flatten(1)
    linear = [module for module in net if isinstance(module, torch.nn.Linear)]
    for number, module in enumerate(linear[:layer]):
        hidden = module(hidden) if number == 4 else module(hidden).relu()
    variance = torch.full_like(hidden, 0.09)
    for number, module in enumerate(linear[layer:], start=layer):
        hidden, variance = module(hidden), variance @ module.weight.square().T
        if number < 4:
            variance = variance * (hidden > 0)
            hidden = hidden.relu()
    torch.testing.assert_close(law.mean, hidden)
    torch.testing.assert_close(law.variance, variance)
    torch.testing.assert_close(law.mean, net(pixels))
