"""Times of our code and of alternatives, by turns: `pytest benchmarks/test_speed.py --benchmark-enable -s`.

`-k propagation` selects the rules compared with a regular pass and with distprop (optional: `pip install
--no-deps distprop==0.1.0`), `-k counting` and so on the others. On one thread times are of the process, which
other load on the machine changes less than the wall clock. Results are asserted to agree, nothing is asserted
about time.
"""

from unittest import mock

import numpy as np
import pytest
import torch
from torch import Tensor, fx, nn
from torch.autograd.functional import jacobian
from torch.func import jacrev, vmap
from torch.nn import functional as F  # noqa: N812

import sdp_ref as sr
from sdp_bench import oracles
from sdp_bench.bench.runtime.timing import TimeRatio
from sdp_bench.bench.runtime.workloads import DISTPROP, Workload
from sdp_bench.bench.studies.uci.group import GRID, LEVELS
from sdp_bench.bench.studies.uci.stacked import BATCH, OBJECTIVES, Problem, StackTrainer
from sdp_bench.oracles.partitions import counting
from sdp_bench.oracles.partitions.heavy_tails import OutputBins
from sdp_bench.oracles.partitions.logits import Margin
from sdp_bench.oracles.partitions.principal import PrincipalCells
from sdp_ref.graph.trace import trace
from sdp_ref.jacobian.jacobian import jacobian_of
from sdp_ref.laws import DiagonalGaussian

pytestmark = pytest.mark.usefixtures("threads")

IMAGES = {"cnn3": 64, "resnet18": 8}

# Rules -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("phase", ["forward", "training_step"])
@pytest.mark.parametrize("net", IMAGES)
def test_propagation(net: str, phase: str, benchmark, compare, capsys: pytest.CaptureFixture[str]) -> None:
    workload = Workload.of(net, IMAGES[net] if benchmark.enabled else 2)
    make = getattr(workload, phase)
    times = compare(f"{net}, {phase}", {method: make(method) for method in workload.methods()}, 5)
    if DISTPROP in times:
        faster = TimeRatio.of(times[DISTPROP], times["sdp"])
        with capsys.disabled():
            print(f"  distprop {faster.median:.2f} x sdp [{faster.lower:.2f}, {faster.upper:.2f}]")


@pytest.mark.parametrize("net", ["mlp-4x100", "cnn3"])
def test_calls(net: str, benchmark, compare, capsys: pytest.CaptureFixture[str]) -> None:
    """`sr.propagate`, which prepares a rule for a single call, and calls of a prepared rule.

    The weights have no gradients. distprop differentiates the net in every call.
    """
    workload = Workload.of(net, {"mlp-4x100": 32, "cnn3": 64}[net] if benchmark.enabled else 2)
    workload.net.requires_grad_(False)
    law = workload.law
    sides = {"regular": workload.forward("regular")}
    for rule in ("sdp", "marginal_sdp"):
        sides[f"{rule}, first call"] = lambda rule=rule: sr.propagate(workload.net, law, rule)
        sides[f"{rule}, prepared"] = workload.forward(rule)
    if DISTPROP in workload.methods():
        sides[DISTPROP] = workload.forward(DISTPROP)
    times = compare(f"calls, {net}", sides, 9)
    for side in ("sdp, first call", "sdp, prepared") if DISTPROP in times else ():
        faster = TimeRatio.of(times[DISTPROP], times[side])
        with capsys.disabled():
            print(f"  distprop {faster.median:.2f} x {side} [{faster.lower:.2f}, {faster.upper:.2f}]")


@pytest.mark.parametrize("name", ["mlp-4x100", *IMAGES])
def test_jacobian(name: str, compare) -> None:
    """The walk back through autograd's graph (`sdp_ref/jacobian/backward.py`), and torch's own ways."""
    workload = Workload.of(name, IMAGES.get(name, 10))
    net, x = workload.net, workload.inputs

    def summed(v: Tensor) -> Tensor:
        return net(v.clone()).sum(0)  # the derivatives of a row by other rows are 0

    sides = {
        "ours": lambda: jacobian_of(net, x)[1],
        "jacrev": lambda: jacrev(summed)(x).transpose(0, 1),
        "jacrev, 3 at a time": lambda: jacrev(summed, chunk_size=3)(x).transpose(0, 1),
        "vmap of jacrev": lambda: vmap(jacrev(lambda v: net(v.clone().unsqueeze(0)).squeeze(0)))(x),
        "stacked cotangents": lambda: jacobian(summed, x, vectorize=True).transpose(0, 1),
    }
    expected = sides["ours"]()
    for side in sides.values():
        assert torch.allclose(side().reshape(expected.shape), expected, rtol=1e-3, atol=1e-5)
    compare(f"Jacobian, {name}", sides, 15)


@pytest.mark.parametrize("name", ["mlp-4x100", "mlp-24x100", *IMAGES])
def test_trace(name: str, compare) -> None:
    """A trace, and a symbolic trace of torch.fx, which records no op."""
    workload = Workload.of(name, 1)
    net, x = workload.net, workload.inputs
    sides = {"symbolic": lambda: fx.symbolic_trace(net), "ours": lambda: trace(net, x)}
    compare(f"trace, {name}", sides, 40)


# Oracles -----------------------------------------------------------------------------------------------

SAMPLES, GEMM = 10**6, 2048


def test_oracle(compare) -> None:
    """Draw, forward and bin 10^6 samples; one call on all of them and histogramdd; sgemm; for each flop."""
    net = Workload.of("mlp-4x100", 1).net
    x = DiagonalGaussian(torch.tensor([[5.8, 3.1, 3.8, 1.2]]), torch.ones(1, 4))
    bins = oracles.AxisBins.from_samples(oracles.sample_outputs(net, x, 2**16, seed=1))
    edges = [np.linspace(low, high, bins.bins + 1) for low, high in zip(bins.low, bins.high, strict=True)]
    matrix, product = torch.randn(GEMM, GEMM), torch.empty(GEMM, GEMM)

    @torch.no_grad()
    def plain() -> object:
        inputs = x.mean + x.variance.sqrt() * torch.randn(SAMPLES, 4)
        return np.histogramdd(net(inputs).numpy(), bins=edges)

    sides = {
        "oracle": lambda: bins.counts(oracles.sample_outputs(net, x, SAMPLES, seed=2)),
        "plain": plain,
        "sgemm": lambda: torch.mm(matrix, matrix, out=product),
    }
    flops = 2 * SAMPLES * sum(weight.numel() for weight in net.parameters() if weight.ndim == 2)
    compare("oracle, 10^6 samples", sides, work={"oracle": flops, "plain": flops, "sgemm": 2 * GEMM**3})


PILOT = 2**17
SHAPES = ((10**6, 3), (10**5, 10))
PARTITIONS = {
    "axis bins": oracles.AxisBins.from_samples,
    "decision": lambda pilot: oracles.Classes(pilot.shape[1]),
    "tree": oracles.EqualMassTree.from_samples,
    "tree and grids": PrincipalCells.from_samples,
    "outputs": OutputBins.from_samples,
    "differences": oracles.ScoreDifferences.from_samples,
    "margin": Margin.from_samples,
}


@mock.patch.object(counting, "resident_matrix", lambda given: given)
@mock.patch.object(counting, "_DEVICE_ROWS", counting._CHUNK_ROWS)
def by_torch(partition, samples: Tensor):
    """Counts as a device makes them, in chunks as large as numpy's."""
    return partition.counts(samples)


@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: f"{shape[0]} x {shape[1]}")
@pytest.mark.parametrize("name", PARTITIONS)
def test_counting(name: str, shape: tuple[int, int], compare) -> None:
    """Counts on the CPU by numpy, and by torch as on a device; the code is the same."""
    if name == "axis bins" and shape[1] > 3:
        pytest.skip("a grid of so many axes has too many cells")
    generator = torch.Generator().manual_seed(0)
    mixing = torch.randn(shape[1], shape[1], generator=generator)
    samples = torch.randn(*shape, generator=generator) @ mixing
    pilot = torch.randn(PILOT, shape[1], generator=generator) @ mixing
    partition = PARTITIONS[name](pilot)
    assert np.array_equal(by_torch(partition, samples), partition.counts(samples))
    sides = {"numpy": lambda: partition.counts(samples), "torch": lambda: by_torch(partition, samples)}
    compare(f"counting, {name}, {shape[0]} x {shape[1]}", sides)


# Nets trained together against one by one --------------------------------------------------------------

SEEDS, ROWS, FEATURES = 20, 364, 13  # boston
EPOCHS, PLAIN_NETS = 3, 3


def alone(name: str, x: Tensor, y: Tensor) -> None:
    """The loop that one writes, for a few nets: a module, autograd and Adam, minibatches by index."""
    objective = OBJECTIVES[name]
    for _ in range(PLAIN_NETS):
        first, last = nn.Linear(FEATURES + objective.levels, 64), nn.Linear(64, objective.outputs)
        net = nn.Sequential(first, nn.ReLU(), last)
        optimizer = torch.optim.Adam(net.parameters(), lr=1e-3, weight_decay=1e-3)
        for _ in range(EPOCHS):
            for rows in torch.randperm(ROWS).split(BATCH):
                optimizer.zero_grad()
                plain_loss(name, net, x[rows], y[rows]).backward()
                optimizer.step()


def pinball(net: nn.Module, x: Tensor, y: Tensor, levels: Tensor) -> Tensor:
    error = y - net(torch.cat([x, 12 * (levels - 0.5).unsqueeze(1)], 1))[:, 0]
    return torch.maximum(levels * error, (levels - 1) * error).mean()


def plain_loss(name: str, net: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    match name:
        case "squared_error":
            return F.mse_loss(net(x)[:, 0], y)
        case "pnn":
            out = net(x)
            return F.gaussian_nll_loss(out[:, 0], y, F.softplus(out[:, 1]) + 1e-3)
        case "sqr":
            return pinball(net, x, y, torch.rand(len(x)))
        case "sqr_ends":
            low, high = LEVELS
            at_low = pinball(net, x, y, torch.full_like(y, low))
            return at_low + pinball(net, x, y, torch.full_like(y, high))
    x = x.clone().requires_grad_()
    out = net(x)
    (slopes,) = torch.autograd.grad(out.sum(), x, create_graph=True)
    return F.gaussian_nll_loss(out[:, 0], y, 0.01 * slopes.square().sum(1) + 1e-3)


@pytest.mark.parametrize("name", OBJECTIVES)
def test_together_against_one_by_one(name: str, compare) -> None:
    """All 300 nets of a set together, and each by itself; for one step of one net."""
    x = torch.randn(SEEDS, ROWS, FEATURES, generator=torch.Generator().manual_seed(0))
    data = Problem(x, x[..., 0].tanh(), tuple(range(SEEDS)))
    trainer = StackTrainer(data, OBJECTIVES[name], GRID)
    sides = {
        "together": lambda: list(trainer.run(trainer.epochs + EPOCHS)),
        "alone": lambda: alone(name, data.features[0], data.targets[0]),
    }
    steps = EPOCHS * -(-ROWS // BATCH)
    compare(name, sides, 7, work={"together": steps * SEEDS * len(GRID), "alone": steps * PLAIN_NETS})
