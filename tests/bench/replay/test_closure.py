"""The estimate of closure errors without an oracle."""

import weakref

import pytest
import torch
from torch import nn

import sdp_bench
import sdp_ref as sr
from sdp_bench.bench.replay import closure
from sdp_bench.bench.replay.error_by_layer import error_by_layer
from sdp_bench.bench.replay.layers import Laws, layers_of, moments_after, sample_layers
from tests.sdp_ref.common import mlp

X = sr.DiagonalGaussian(torch.tensor([[0.3, -1.2, 0.8]]), torch.tensor([[0.5, 2.0, 1.0]]))


def test_one_layer_has_no_closure_error():
    """Its input is Gaussian, so that moment matching is exact."""
    net = nn.Sequential(nn.Linear(3, 6), nn.Tanh(), nn.Linear(6, 2))
    frame = sdp_bench.closure_by_layer(net, X)
    assert list(frame["layer"]) == ["Linear 1", "Tanh 1", "Linear 2"]
    assert (frame["closure_error"] == 0).all()
    assert (frame["share"] == 0).all()


def test_an_input_that_is_not_gaussian_has_a_closure_error_at_the_first_layer():
    x = sr.Mixture.of(
        torch.tensor([[0.5, 0.5]]), [sr.DiagonalGaussian(m * X.mean, X.variance) for m in (-3, 3)]
    )
    frame = sdp_bench.closure_by_layer(nn.Sequential(nn.Linear(3, 6), nn.Tanh()), x)
    assert frame["closure_error"][1] > 3 * frame["floor"][1] > 0


def test_the_second_of_two_layers_has_the_closure_error_of_the_drill_down():
    net = mlp(3, 8, 8, 2, seed=3)
    x = X.to(dtype=torch.float64)
    frame = sdp_bench.closure_by_layer(net, x, samples=2**16)
    layers = layers_of(net, x.location)
    sampled = sample_layers(layers, x, 2**18, seed=1, sampler="sobol")
    laws = [Laws(x.mean, x.covariance)]
    for layer, shape in zip(layers, sampled.shapes, strict=False):
        laws.append(moments_after(layer, laws[-1], shape, seed=0))
    true = error_by_layer(layers, sampled, laws, independent=False)
    at = frame.index[frame["layer"] == "ReLU 2"][0]
    assert frame["share"][at] == 1
    noise = 3 * frame["floor"][at] + true["floor95"][at]
    assert true["closure_error"][at] > 2 * noise
    assert frame["closure_error"][at] == pytest.approx(true["closure_error"][at], abs=noise)


def test_the_same_seed_gives_the_same_numbers_and_the_net_is_unchanged():
    net = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 4), nn.ReLU())
    first, again = (sdp_bench.closure_by_layer(net, X, samples=256, seed=5) for _ in range(2))
    assert first.equals(again)
    assert net[0].weight.dtype == torch.float32


def test_memory_does_not_grow_with_the_depth(monkeypatch):
    """Samples of the layers that have been passed are released."""
    moments = closure._moments

    def most_alive(depth):
        samples, counts = [], []

        def watched(outputs):
            samples.append(weakref.ref(outputs))
            counts.append(sum(reference() is not None for reference in samples))
            return moments(outputs)

        monkeypatch.setattr(closure, "_moments", watched)
        sdp_bench.closure_by_layer(mlp(*[3] * depth), X.to(dtype=torch.float64), samples=64)
        assert len(counts) == 4 * (depth - 3)
        return max(counts)

    assert most_alive(12) == most_alive(4) <= 5
