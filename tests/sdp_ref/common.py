"""Nets, laws and steps that several test modules use."""

import itertools
import math

import torch
from torch import nn

import sdp_ref as sr


def draw(*shape, seed=0, dtype=torch.float64):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=dtype)


def mlp(*widths, activation=nn.ReLU, seed=0, dtype=torch.float64):
    generator = torch.Generator().manual_seed(seed)
    layers = []
    for n, m in itertools.pairwise(widths):
        layer = nn.Linear(n, m, dtype=dtype)
        for parameter in layer.parameters():
            parameter.data = torch.randn(parameter.shape, generator=generator, dtype=dtype) / math.sqrt(n)
        layers += [layer, activation()]
    return nn.Sequential(*layers[:-1])


def seeded(net, seed=0):
    """The net in float64 and evaluation mode, with random parameters (scaled by fan-in) and statistics."""
    generator = torch.Generator().manual_seed(seed)
    net = net.double().eval()
    for name, tensor in net.state_dict().items():
        if tensor.is_floating_point():
            fan = max(1, tensor[0].numel())
            tensor.copy_(torch.randn(tensor.shape, generator=generator, dtype=torch.float64) / math.sqrt(fan))
            if "running_var" in name:
                tensor.square_().add_(0.1)
    return net


def full_law(event, sd=1.0, batch=1, seed=1):
    n = math.prod(event)
    factor = sd * draw(batch, n, n, seed=seed) / math.sqrt(n)
    return sr.Gaussian(draw(batch, *event, seed=seed + 1), factor @ factor.mT)


def gaussian(batch, n, seed=1):
    generator = torch.Generator().manual_seed(seed)
    factor = torch.randn(batch, n, n, generator=generator, dtype=torch.float64)
    return sr.Gaussian(torch.randn(batch, n, generator=generator, dtype=torch.float64), factor @ factor.mT)


def diagonal(batch, n, seed=1):
    generator = torch.Generator().manual_seed(seed)
    mean = torch.randn(batch, n, generator=generator, dtype=torch.float64)
    return sr.DiagonalGaussian(mean, torch.rand(batch, n, generator=generator, dtype=torch.float64) + 0.1)


def run(steps, x):
    values = [x]
    for step in steps:
        values.append(step.module(*(values[i] for i in step.inputs)))
    return values[-1]


def jacobians(net, x):
    """Jacobian of each row of the batch, (batch, outputs, inputs), by torch's reverse mode."""
    rows = [torch.autograd.functional.jacobian(lambda v: net(v[None])[0].flatten(), row) for row in x]
    return torch.stack(rows).flatten(2)


def assert_moments_by_sampling(law, outputs, most=40):
    """No mean, variance or covariance of a law is off by more than 4 standard errors of its estimate.

    Few enough entries are compared that a right law fails with probability below 1 %; seeds are fixed.
    """
    samples = len(outputs)
    centred = outputs - law.mean.flatten(1)
    i = j = torch.arange(outputs.shape[1])
    if isinstance(law, sr.Gaussian):
        i, j = torch.triu_indices(len(i), len(i))
    assert len(i) <= most
    assert bool((centred.mean(0).abs() <= 4 * outputs.std(0) / math.sqrt(samples)).all())
    products = centred[:, i] * centred[:, j]
    expected = law.covariance[0][i, j] if isinstance(law, sr.Gaussian) else law.variance.flatten()
    error = (products.mean(0) - expected).abs() / (products.std(0) / math.sqrt(samples))
    assert bool((error < 4).all()), error.max()
