"""Nets of the calibration: families on which the advice was developed, and families held out."""

from __future__ import annotations

import itertools
import math
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

import torch
from torch import Tensor, nn

from sdp_ref.activations import ACTIVATIONS

from ..datasets import dataset, names
from ..datasets.base import SplitClassification, TabularRegression
from ..nets import storage
from ..nets.net import Net, inputs_of, net_from_bytes
from ..nets.own.programs import PublishedProgram
from ..published import published_net

SIGMAS = (0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0)
"""Noise levels; half of them for images, with values between 0 and 1."""
DEVELOPMENT = (
    "iris-relu",
    "mnist-mlp-relu",
    "random-relu",
    "random-gelu",
    "random-scalar",
    "random-curve",
    "random-kink",
    "cubic",
    "waves",
    "trained-cubic",
)
"""Families of nets on which the method was developed; all others are held out."""
_COMMITTED = (
    "iris-relu-1x100",
    "iris-relu-2x100",
    "iris-gelu",
    "iris-leaky_relu",
    "iris-silu",
    "rotations",
)
_FINE_SIGMAS = tuple(0.01 * 10 ** (step / 4) for step in range(13))
_IMAGE_SIGMAS = (0.03, 0.1, 0.3, 1.0)
_KINKED = (0.3, 0.35, 0.4, 0.5, 0.7, 1.0)


@dataclass(frozen=True, eq=False)
class Subject:
    family: str
    name: str
    prepare: Callable[[], tuple[nn.Module, Tensor]]
    """Loads or trains the net, and returns it with its inputs."""
    scale: float = 1.0
    sigmas: Sequence[float] = SIGMAS
    noise: str = "gaussian"
    has_class: bool = True
    """Whether the largest output is a decision."""

    @property
    def held_out(self) -> bool:
        return self.family not in DEVELOPMENT


def subjects() -> Iterator[Subject]:
    """Yield nets that differ in architecture, activation, depth, width, data and training.

    Data sets are loaded, and nets trained, only when a net is prepared.
    """
    yield from committed_nets()
    yield from random_nets()
    yield from trained_nets()
    yield from scalar_functions()
    yield from curves()
    yield from image_regressors()
    yield from published()


def committed_nets() -> Iterator[Subject]:
    """One committed net of each of these architectures."""
    for path in sorted(storage.COMMITTED.glob("*-seed0.safetensors")):
        if path.name.startswith(_COMMITTED):
            net = net_from_bytes(path.read_bytes(), "committed")
            kind = net.architecture.activation
            iris = path.name.startswith("iris")
            prepare = partial(committed, net, [10, 70] if iris else [0])
            if iris:
                yield Subject(f"iris-{kind}", path.stem, prepare)
            else:
                yield Subject(kind, path.stem, prepare, 0.5, _IMAGE_SIGMAS)


def random_nets() -> Iterator[Subject]:
    for activation in ("relu", "gelu", "tanh", "elu"):
        for depth in (1, 4):
            for width in (16, 64):
                seed = zlib.crc32(f"{activation} {depth} {width}".encode())
                widths = (8, *[width] * depth, 4)
                prepare = partial(untrained, widths, activation, seed, inputs=1, input_seed=seed + 1)
                yield Subject(f"random-{activation}", f"random-{activation}-{depth}x{width}", prepare)
    for depth in (1, 3):
        widths = (8, *[64] * depth, 1)
        prepare = partial(untrained, widths, "relu", depth, inputs=2, input_seed=depth)
        yield Subject("random-scalar", f"random-scalar-{depth}", prepare)
    for depth in (1, 3, 6):
        widths = (20, *[32] * depth, 6)
        prepare = partial(untrained, widths, "silu", depth, inputs=1, input_seed=depth)
        yield Subject("random-silu", f"random-silu-{depth}", prepare)


def trained_nets() -> Iterator[Subject]:
    """Classifiers of images, and regressors of tables."""
    for activation, depth in (("relu", 3), ("tanh", 2)):
        family = f"mnist-mlp-{activation}"
        prepare = partial(classifier, "mnist", (784, *[128] * depth, 10), activation, seed=depth)
        yield Subject(family, f"{family}-{depth}", prepare, 0.5)
    for data in names(TabularRegression)[::2]:
        for activation in ("relu", "tanh"):
            yield Subject(f"uci-{activation}", f"{data}-{activation}", partial(regressor, data, activation))


class Function(nn.Module):
    """A function of one input as a net."""

    def __init__(self, function: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: Tensor) -> Tensor:
        return self.function(x)


FUNCTIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "x + sin 10x": lambda x: x + torch.sin(10 * x),
    "x^2": torch.square,
    "tanh": torch.tanh,
    "exp": torch.exp,
    "softplus": nn.functional.softplus,
    "logistic": torch.sigmoid,
    "sin": torch.sin,
    "1 / (1 + x^2)": lambda x: 1 / (1 + x * x),
    "x tanh x": lambda x: x * torch.tanh(x),
    "x exp(-x^2)": lambda x: x * torch.exp(-x * x),
}
"""Functions of one input that are held out."""


def cubic(seed: int) -> Callable[[Tensor], Tensor]:
    a, b, c = torch.randn(3, generator=torch.Generator().manual_seed(seed)).tolist()
    return lambda x: a * x + b * x**2 + c * x**3 / 3


def waves(seed: int) -> Callable[[Tensor], Tensor]:
    a, b, c, d = torch.randn(4, generator=torch.Generator().manual_seed(seed)).tolist()
    return lambda x: x + a * torch.sin(3 * b * x) + c / 3 * torch.cos(10 * d * x)


def kink(slope: float) -> Callable[[Tensor], Tensor]:
    return lambda x: x + slope * torch.relu(x - 1)


def scalar_functions() -> Iterator[Subject]:
    for seed in range(6):
        for family, function in (("cubic", cubic(seed)), ("waves", waves(seed))):
            values = torch.randn(2, 1, generator=torch.Generator().manual_seed(100 + seed))
            prepare = partial(function_at, function, values)
            yield Subject(family, f"{family}-{seed}", prepare, sigmas=_FINE_SIGMAS)
    values = torch.tensor([[-1.66], [0.5]])
    for name, function in FUNCTIONS.items():
        prepare = partial(function_at, function, values)
        yield Subject("scalar", name, prepare, sigmas=_FINE_SIGMAS)
    for family, slopes in (("random-kink", (0.7, 3.0, 12.0)), ("kink", (1.5, -1.0, 6.0, 30.0))):
        for slope in slopes:
            prepare = partial(function_at, kink(slope), torch.zeros(1, 1))
            yield Subject(family, f"{family}-{slope:g}", prepare, 1.0, _KINKED)
    for seed, inputs in enumerate((1, 2)):
        prepare = partial(fitted_to, additive([cubic(seed)]), inputs, "gelu", seed)
        yield Subject("trained-cubic", f"trained-cubic-{inputs}-{seed}", prepare)
    for activation in ("relu", "tanh", "silu"):
        for seed, inputs in enumerate((1, 2)):
            chosen = list(FUNCTIONS.values())[seed:]
            prepare = partial(fitted_to, additive(chosen), inputs, activation, seed)
            name = f"trained-{activation}-{inputs}-{seed}"
            yield Subject(f"trained-{activation}", name, prepare)


def curves() -> Iterator[Subject]:
    """Nets with one input and several outputs: random ones, and ones trained on curves."""
    for outputs in (2, 3, 6):
        widths = (1, 32, 32, outputs)
        prepare = partial(untrained, widths, "gelu", outputs, inputs=2, input_seed=outputs)
        yield Subject("random-curve", f"random-curve-{outputs}", prepare)
    for activation, outputs in (("relu", 3), ("tanh", 2)):
        prepare = partial(fitted_to, spiral(outputs), 1, activation, outputs)
        yield Subject("curve", f"curve-{activation}-{outputs}", prepare)


def image_regressors() -> Iterator[Subject]:
    """Convolutional nets that find a box or five landmarks in drawn images."""
    for family, draw in (("boxes", drawn_boxes), ("landmarks", drawn_landmarks)):
        for activation in ("relu", "silu"):
            prepare = partial(image_regressor, draw, activation)
            yield Subject(family, f"{family}-{activation}", prepare, 0.5)


_PUBLISHED = ("airfoil", "cosmology", "plasma", "vehicle")
"""Published nets of few inputs. The others take a minute or more for a setting in float64; in float32 the
linearisation of silero is another one, by 8 % of the standard deviation at its first input."""


def published() -> Iterator[Subject]:
    """Published nets with the inputs and the noise of their users."""
    for name in _PUBLISHED:
        net = published_net(name)
        subject = Subject("published", f"published-{name}", partial(published_at, name), 1.0, net.sigmas)
        yield replace(subject, noise=net.noise, has_class=net.has_class)


def published_at(name: str) -> tuple[nn.Module, Tensor]:
    return PublishedProgram.find(name).load(), torch.from_numpy(published_net(name).inputs())


def committed(net: Net, rows: Sequence[int]) -> tuple[nn.Module, Tensor]:
    """Return a committed net, and these rows of its data set as inputs."""
    return net.build(), inputs_of(net).batch(rows)


def untrained(
    widths: Sequence[int], activation: str, seed: int, inputs: int, input_seed: int
) -> tuple[nn.Module, Tensor]:
    """Return a random net and standard normal inputs."""
    generator = torch.Generator().manual_seed(input_seed)
    return mlp(widths, activation, seed), torch.randn(inputs, widths[0], generator=generator)


def classifier(data: str, widths: Sequence[int], activation: str, seed: int) -> tuple[nn.Module, Tensor]:
    """Train a net on the test images of a data set, and return it with the first two images."""
    examples = dataset(data, SplitClassification).load("test")
    images = examples.batch(slice(None)).flatten(1)
    net = mlp(widths, activation, seed)
    fit(net, images, examples.labels, nn.functional.cross_entropy)
    return net, images[:2]


def regressor(data: str, activation: str) -> tuple[nn.Module, Tensor]:
    """Train a net on a table with standardised columns, and return it with the first row."""
    table = dataset(data, TabularRegression).load()
    features, targets = standardised(table.features), standardised(table.targets[:, None])
    net = mlp((features.shape[1], 50, 50, 1), activation, seed=0)
    fit(net, features, targets, nn.functional.mse_loss)
    return net, features[:1]


def standardised(values: Tensor) -> Tensor:
    return ((values - values.mean(0)) / values.std(0).clamp(min=1e-9)).float()


def mlp(widths: Sequence[int], activation: str, seed: int) -> nn.Sequential:
    """Random net that preserves the size of its values (He et al. 2015), with biases of 0.1."""
    generator, layers = torch.Generator().manual_seed(seed), list[nn.Module]()
    for number, (before, after) in enumerate(itertools.pairwise(widths)):
        linear = nn.Linear(before, after)
        gain = 2.0 if activation in ("relu", "leaky_relu") else 1.6
        nn.init.normal_(linear.weight, std=math.sqrt(gain / before), generator=generator)
        nn.init.normal_(linear.bias, std=0.1, generator=generator)
        layers += [linear] if number == len(widths) - 2 else [linear, ACTIVATIONS[activation].module()]
    return nn.Sequential(*layers)


def fit(net: nn.Module, features: Tensor, targets: Tensor, loss: Callable[[Tensor, Tensor], Tensor]) -> None:
    """Train a net by Adam for 1000 steps of 128 examples."""
    optimizer, generator = torch.optim.Adam(net.parameters(), 3e-3), torch.Generator().manual_seed(0)
    for _ in range(1000):
        rows = torch.randint(len(features), (128,), generator=generator)
        optimizer.zero_grad()
        loss(net(features[rows]), targets[rows]).backward()
        optimizer.step()


def function_at(function: Callable[[Tensor], Tensor], values: Tensor) -> tuple[nn.Module, Tensor]:
    return Function(function), values


def additive(functions: Sequence[Callable[[Tensor], Tensor]]) -> Callable[[Tensor], Tensor]:
    """Sum of one function per input, divided by the root of their number; functions repeat."""

    def target(x: Tensor) -> Tensor:
        terms = [functions[i % len(functions)](x[:, i]) for i in range(x.shape[1])]
        return torch.stack(terms, 1).sum(1, keepdim=True) / math.sqrt(len(terms))

    return target


def spiral(outputs: int) -> Callable[[Tensor], Tensor]:
    """Sines and cosines of increasing frequency, with increasing amplitude."""

    def target(x: Tensor) -> Tensor:
        phases = [(1 + i / 2) * x[:, 0] + i for i in range(outputs)]
        return torch.stack([torch.sin(phase) * (1 + x[:, 0] / 4) for phase in phases], 1)

    return target


def fitted_to(
    target: Callable[[Tensor], Tensor], inputs: int, activation: str, seed: int
) -> tuple[nn.Module, Tensor]:
    """Train a net on a function of normal inputs, and return it with two inputs."""
    generator = torch.Generator().manual_seed(seed)
    features = 1.5 * torch.randn(4000, inputs, generator=generator)
    targets = standardised(target(features))
    net = mlp((inputs, 64, 64, targets.shape[1]), activation, seed)
    fit(net, features, targets, nn.functional.mse_loss)
    return net, features[:2]


def drawn_boxes(number: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Bright rectangles on noise, shape (number, 1, 16, 16), and their left, upper, right and lower edges."""
    low = 0.1 + 0.4 * torch.rand(number, 2, generator=generator)
    high = low + 0.15 + 0.3 * torch.rand(number, 2, generator=generator)
    grid = (torch.arange(16) + 0.5) / 16
    inside = torch.sigmoid(40 * (grid - low[..., None])) * torch.sigmoid(40 * (high[..., None] - grid))
    images = inside[:, 1, :, None] * inside[:, 0, None, :]
    return 0.8 * images[:, None] + 0.1 * torch.rand(number, 1, 16, 16, generator=generator), torch.cat(
        [low, high], 1
    )


def drawn_landmarks(number: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Five bright dots of a moved and scaled face, shape (number, 1, 16, 16), and their coordinates."""
    face = torch.tensor([[-1.0, -1.0], [1.0, -1.0], [0.0, 0.0], [-0.8, 1.0], [0.8, 1.0]])
    centre = 0.4 + 0.2 * torch.rand(number, 1, 2, generator=generator)
    scale = 0.15 + 0.15 * torch.rand(number, 1, 2, generator=generator)
    points = centre + scale * face + 0.02 * torch.randn(number, 5, 2, generator=generator)
    grid = (torch.arange(16) + 0.5) / 16
    dots = torch.exp(-(((grid - points[..., None]) / 0.06) ** 2) / 2)
    images = (dots[:, :, 1, :, None] * dots[:, :, 0, None, :]).sum(1, keepdim=True)
    return 0.8 * images + 0.1 * torch.rand(number, 1, 16, 16, generator=generator), points.flatten(1)


def image_regressor(
    draw: Callable[[int, torch.Generator], tuple[Tensor, Tensor]], activation: str
) -> tuple[nn.Module, Tensor]:
    """Train a convolutional net on drawn images, and return it with two of them."""
    images, targets = draw(4000, torch.Generator().manual_seed(0))
    module = ACTIVATIONS[activation].module
    torch.manual_seed(0)
    net = nn.Sequential(
        nn.Conv2d(1, 8, 3, stride=2, padding=1),
        module(),
        nn.Conv2d(8, 16, 3, stride=2, padding=1),
        module(),
        nn.Flatten(),
        nn.Linear(256, 64),
        module(),
        nn.Linear(64, targets.shape[1]),
    )
    fit(net, images, standardised(targets), nn.functional.mse_loss)
    return net, images[:2]
