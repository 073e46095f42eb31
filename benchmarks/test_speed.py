"""Times of our code and of alternatives, by turns: `pytest benchmarks/test_speed.py --benchmark-enable -s`.

`-k propagation` selects the rules compared with a regular pass and with distprop (optional: `pip install
--no-deps distprop==0.1.0`), `-k counting` and so on the others. On one thread times are of the process, which
other load on the machine changes less than the wall clock. Results are asserted to agree, nothing is asserted
about time.
"""

import itertools
from unittest import mock

import numpy as np
import pytest
import torch
from torch import Tensor, fx, nn
from torch.func import jacrev, vjp, vmap

from sdp_bench import oracles
from sdp_bench.bench.nets.architectures import Architecture, ImageArchitecture
from sdp_bench.bench.runtime.timing import Ratio
from sdp_bench.bench.runtime.workloads import DISTPROP, Workload
from sdp_bench.oracles.partitions import counting
from sdp_bench.oracles.partitions.heavy_tails import OutputBins
from sdp_bench.oracles.partitions.logits import Margin
from sdp_bench.oracles.partitions.principal import PrincipalCells
from sdp_ref.graph.trace import trace
from sdp_ref.jacobian.jacobian import RightDerivative, jacobian_of
from sdp_ref.laws import DiagonalGaussian

IMAGES = {"cnn3": 64, "resnet18": 8}

# Rules -------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("threads")
@pytest.mark.parametrize("phase", ["forward", "training_step"])
@pytest.mark.parametrize("net", IMAGES)
def test_propagation(net: str, phase: str, benchmark, compare, capsys: pytest.CaptureFixture[str]) -> None:
    workload = Workload.of(net, IMAGES[net] if benchmark.enabled else 2)
    make = getattr(workload, phase)
    times = compare(f"{net}, {phase}", {method: make(method) for method in workload.methods()}, 5)
    if DISTPROP in times:
        faster = Ratio.of(times[DISTPROP], times["sdp"])
        with capsys.disabled():
            print(f"  distprop {faster.median:.2f} x sdp [{faster.lower:.2f}, {faster.upper:.2f}]")


def case(name: str) -> tuple[nn.Module, Tensor]:
    torch.manual_seed(0)
    if name == "iris":
        return Architecture(4).build(), torch.randn(10, 4)
    return ImageArchitecture(name).build(), torch.rand(IMAGES[name], 3, 32, 32)


def basis(value: Tensor) -> Tensor:
    m = value[0].numel()
    return torch.eye(m).reshape(m, 1, *value.shape[1:]).expand(m, *value.shape)


def by_vjp(net: nn.Module, x: Tensor, chunk: int | None) -> Tensor:
    with RightDerivative():
        value, pull = vjp(lambda v: net(v.clone()), x)
    return vmap(lambda g: pull(g)[0], chunk_size=chunk)(basis(value)).transpose(0, 1)


def by_jacrev(net: nn.Module, x: Tensor) -> Tensor:
    with RightDerivative():
        return vmap(jacrev(lambda v: net(v.clone().unsqueeze(0)).squeeze(0)))(x)


def by_stacked_cotangents(net: nn.Module, x: Tensor) -> Tensor:
    point = x.detach().requires_grad_()
    with RightDerivative():
        value = net(point.clone())
    return torch.autograd.grad(value, point, basis(value), is_grads_batched=True)[0].transpose(0, 1)


@pytest.mark.usefixtures("threads")
@pytest.mark.parametrize("name", ["iris", *IMAGES])
def test_jacobian(name: str, compare) -> None:
    """The walk back through autograd's graph (`sdp_ref/jacobian/backward.py`), and torch's own ways."""
    net, x = case(name)
    sides = {
        "ours": lambda: jacobian_of(net, x)[1],
        "vmap of vjp": lambda: by_vjp(net, x, None),
        "vmap of vjp, 3 at a time": lambda: by_vjp(net, x, 3),
        "vmap of jacrev": lambda: by_jacrev(net, x),
        "stacked cotangents": lambda: by_stacked_cotangents(net, x),
    }
    expected = sides["ours"]()
    for side in sides.values():
        assert torch.allclose(side().reshape(expected.shape), expected, rtol=1e-3, atol=1e-5)
    compare(f"Jacobian, {name}", sides, 15)


class Residual(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner, self.outer = nn.Linear(20, 20), nn.Linear(20, 20)

    def forward(self, x: Tensor) -> Tensor:
        return x + torch.relu(self.outer(torch.tanh(self.inner(x))))


def chain(depth: int) -> nn.Sequential:
    return nn.Sequential(*[layer for _ in range(depth) for layer in (nn.Linear(100, 100), nn.ReLU())])


CNN = nn.Sequential(
    nn.Conv2d(1, 8, 3), nn.ReLU(), nn.Conv2d(8, 8, 3), nn.ReLU(), nn.Flatten(), nn.Linear(4608, 10)
)
NETS: dict[str, tuple[nn.Module, tuple[int, ...]]] = {
    "4 layers of 100": (chain(4), (1, 100)),
    "24 layers of 100": (chain(24), (1, 100)),
    "two residual blocks": (nn.Sequential(Residual(), Residual(), nn.Linear(20, 3)), (1, 20)),
    "CNN on 28 x 28": (CNN, (1, 1, 28, 28)),
}


@pytest.mark.usefixtures("threads")
@pytest.mark.parametrize("name", NETS)
def test_trace(name: str, compare) -> None:
    """A trace, and a symbolic trace of torch.fx, which records no op."""
    net, shape = NETS[name]
    x = torch.zeros(shape)
    sides = {"symbolic": lambda: fx.symbolic_trace(net), "ours": lambda: trace(net, x)}
    compare(f"trace, {name}", sides, 40)


# Oracles -----------------------------------------------------------------------------------------------

WIDTHS, SAMPLES, GEMM = (4, 100, 100, 100, 100, 3), 10**6, 2048


@pytest.mark.usefixtures("threads")
def test_oracle(compare) -> None:
    """Draw, forward and bin 10^6 samples; one call on all of them and histogramdd; sgemm; for each flop."""
    torch.manual_seed(0)
    layers = [(nn.Linear(n, m), nn.ReLU()) for n, m in itertools.pairwise(WIDTHS)]
    net = nn.Sequential(*list(itertools.chain(*layers))[:-1])
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
    flops = 2 * SAMPLES * sum(n * m for n, m in itertools.pairwise(WIDTHS))
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


def by_torch(partition, samples: Tensor):
    """Counts as a device makes them, in chunks as large as numpy's."""
    with (
        mock.patch.object(counting, "resident_matrix", lambda given: given),
        mock.patch.object(counting, "_DEVICE_ROWS", counting._CHUNK_ROWS),
    ):
        return partition.counts(samples)


@pytest.mark.usefixtures("threads")
@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: f"{shape[0]} x {shape[1]}")
@pytest.mark.parametrize("name", PARTITIONS)
def test_counting(name: str, shape: tuple[int, int], compare) -> None:
    """Counts on the CPU by numpy, and by torch as on a device; the code is the same."""
    if name == "axis bins" and shape[1] > 3:
        pytest.skip("a grid of so many axes has too many cells")
    generator = torch.Generator().manual_seed(0)
    mixing = torch.randn(shape[1], shape[1], generator=generator)
    samples, pilot = (torch.randn(n, shape[1], generator=generator) @ mixing for n in (shape[0], PILOT))
    partition = PARTITIONS[name](pilot)
    assert np.array_equal(by_torch(partition, samples), partition.counts(samples))
    sides = {"numpy": lambda: partition.counts(samples), "torch": lambda: by_torch(partition, samples)}
    compare(f"counting, {name}, {shape[0]} x {shape[1]}", sides)
