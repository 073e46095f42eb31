"""How often the estimate of closure errors finds the layer that the drill-down finds; see docs/reading.md.

``python docs/examples/closure.py`` takes about ten minutes on one thread. It compares
`sdp_bench.closure_by_layer` with the errors by layer from 2¹⁷ samples of the whole net, for moment matching,
on the committed nets with four hidden layers or more and on random nets with six hidden layers of 20 units.
"""

import itertools

import pandas as pd
import torch
from scipy import stats

import sdp_ref as sr
from sdp_bench import closure_by_layer
from sdp_bench.bench.advice.subjects import untrained
from sdp_bench.bench.nets import storage
from sdp_bench.bench.nets.net import inputs_of, net_from_bytes
from sdp_bench.bench.replay.error_by_layer import error_by_layer
from sdp_bench.bench.replay.layers import Laws, layers_of, moments_after, sample_layers

SAMPLES, SIGMAS, DEPTH = 2**17, (0.1, 1.0, 10.0), 4


def committed_nets():
    """Names, committed nets on Iris with at least `DEPTH` hidden layers, and an input."""
    for path in sorted(storage.COMMITTED.glob("iris-*.safetensors")):
        net = net_from_bytes(path.read_bytes(), "committed")
        if net.architecture.depth >= DEPTH:
            yield path.stem, net.build(), inputs_of(net).batch([70])


def random_nets():
    """Names, random nets and standard normal inputs."""
    for activation, seed in itertools.product(("relu", "gelu", "tanh", "silu"), range(6)):
        net, x = untrained((6, *[20] * 6, 3), activation, seed, 1, seed)
        yield f"random-{activation}-{seed}", net, x


def drilled(net, x):
    """Errors of moment matching by layer, as the drill-down computes them."""
    layers = layers_of(net, x.location)
    moments = sample_layers(layers, x, SAMPLES, seed=1, sampler="sobol")
    laws = [Laws(x.mean, x.covariance)]
    for layer, shape in zip(layers, moments.shapes, strict=False):
        laws.append(moments_after(layer, laws[-1], shape, seed=0))
    return error_by_layer(layers, moments, laws, independent=False)


def setting(net, x):
    """Layers with the largest effect on the output: by the drill-down, by the estimate, and the last one."""
    truth, estimate = drilled(net, x), closure_by_layer(net, x)
    nonlinear = truth["layer"][truth["closure_at_output"] > 0]
    return {
        "measurable": truth.attrs["total"] > 2 * truth.attrs["floor95"],
        "drill-down": truth["layer"][truth["closure_at_output"].idxmax()],
        "estimate": estimate["layer"][estimate["share"].idxmax()],
        "last": nonlinear.iloc[-1],
        "candidates": len(nonlinear),
    }


def main():
    """Print how often the layers agree, where the error is at least twice the noise of the truth."""
    for kind, nets in (("committed", committed_nets()), ("random", random_nets())):
        rows = []
        for name, net, point in nets:
            for sigma in SIGMAS:
                x = point.double()
                law = sr.DiagonalGaussian(x, torch.full_like(x, sigma**2))
                rows.append({"net": name, "sigma": sigma} | setting(net.double().eval(), law))
        frame = pd.DataFrame(rows)
        frame = frame[frame["measurable"]]
        agrees = frame["drill-down"] == frame["estimate"]
        by_net = agrees.groupby(frame["net"]).all()
        low, high = stats.binomtest(int(by_net.sum()), len(by_net)).proportion_ci()
        print(
            f"{kind}: the same layer in {agrees.sum()} of {len(frame)} settings, and in all settings of "
            f"{by_net.sum()} of {len(by_net)} nets ({low:.0%} to {high:.0%}); always the last layer: "
            f"{(frame['drill-down'] == frame['last']).sum()} settings; chance: "
            f"{(1 / frame['candidates']).mean():.0%}",
            flush=True,
        )


if __name__ == "__main__":
    main()
