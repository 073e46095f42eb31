"""Nets and inputs to time propagation with."""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

import sdp_ref as sr

from .timing import REGULAR, Mlp, sized


def described() -> str:
    """Return the GPU and the versions that affect its speed, for ``asv machine``, or "no GPU"."""
    if not torch.cuda.is_available():
        return "no GPU"
    versions = f"torch {torch.__version__}, CUDA {torch.version.cuda}, cuDNN {torch.backends.cudnn.version()}"
    return f"{torch.cuda.get_device_name(0)}, {versions}"


if __name__ == "__main__":
    print(described())


RULES = ("marginal_moment_matching", "marginal_sdp", "sdp")
SHORT = "marginal_moment_matching:precision=1e-5"
"""Marginal moment matching by its short formulas; the runtime table has it, the asv suite does not."""
DISTPROP = "distprop"
"""The authors' package, if installed."""

STANDARD_DEVIATION = 0.1


class NotAtThisCommitError(NotImplementedError):
    """A net or rule does not exist at this commit; asv skips the benchmark."""


def mlp(named: Mlp) -> nn.Sequential:
    """Build the net with torch's initial weights, in evaluation mode."""
    layers: list[nn.Module] = []
    width = named.inputs
    for _ in range(named.depth):
        layers += [nn.Linear(width, named.width), nn.ReLU()]
        width = named.width
    layers.append(nn.Linear(width, named.outputs))
    return nn.Sequential(*layers).eval()


def build(name: str, seed: int = 0) -> tuple[nn.Module, tuple[int, ...]]:
    """Return the named net (see `sized`), in evaluation mode, and the shape of one input."""
    net = sized(name)
    if isinstance(net, Mlp):
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            return mlp(net), (net.inputs,)
    try:
        networks: Any = importlib.import_module("sdp_bench.bench.nets.architectures")
        width = net.width or networks.network_of(net.kind).width
        architecture = networks.ImageArchitecture(net.kind, net.channels, net.size, width=width)
    except (ImportError, AttributeError, ValueError) as error:
        raise NotAtThisCommitError(f"no net '{name}' in this version") from error
    return architecture.build(seed), (net.channels, net.size, net.size)


@dataclass(frozen=True, eq=False)
class Workload:
    """A net and a batch of inputs, shape (B, *event), with noise, on a device."""

    net: nn.Module
    inputs: Tensor

    @classmethod
    def of(cls, name: str, batch: int, device: str = "cpu", seed: int = 0) -> Workload:
        """Return a named net with random weights and uniform inputs; see `build`."""
        net, shape = build(name, seed)
        generator = torch.Generator().manual_seed(seed)
        return cls(net.to(device), torch.rand(batch, *shape, generator=generator).to(device))

    @property
    def law(self) -> sr.DiagonalGaussian:
        """The inputs with independent noise of standard deviation `STANDARD_DEVIATION`."""
        return sr.DiagonalGaussian(self.inputs, torch.full_like(self.inputs, STANDARD_DEVIATION**2))

    def methods(self) -> tuple[str, ...]:
        """Methods available here: the net itself, the rules, and distprop if installed."""
        methods = (REGULAR, *sorted((*RULES, SHORT)))
        return (*methods, DISTPROP) if importlib.util.find_spec(DISTPROP) else methods

    def forward(self, method: str) -> Callable[[], tuple[Tensor, Tensor | None]]:
        """Return a forward pass without gradients, ready to run.

        It returns the location (B, m), and the covariance or variance (None for the net itself).
        """
        propagate = self._propagation(method, create_graph=False)
        if method == DISTPROP:
            return propagate

        def run() -> tuple[Tensor, Tensor | None]:
            with torch.no_grad():
                return propagate()

        run()  # sets up memory and kernels
        return run

    def training_step(self, method: str) -> Callable[[], Tensor]:
        """Return a function that computes a loss on location and scale, and the parameters' gradients."""
        propagate = self._propagation(method, create_graph=True)

        def step() -> Tensor:
            self.net.zero_grad(set_to_none=True)
            location, scale = propagate()
            loss = location.square().mean()
            if scale is not None:
                loss = loss + scale.square().mean()
            loss.backward()
            return loss.detach()

        return step

    def _propagation(self, method: str, *, create_graph: bool) -> Callable[[], tuple[Tensor, Tensor | None]]:
        """Return a method that reads the parameters of the net at every call."""
        if method == REGULAR:
            return lambda: (self.net(self.inputs), None)
        if method == DISTPROP:
            try:
                package: Any = importlib.import_module(DISTPROP)
            except ImportError as error:
                raise NotAtThisCommitError(f"{DISTPROP} is not installed") from error
            with torch.no_grad():
                outputs = self.net(self.inputs[:1]).shape[1]
            module = package.SDP(self.net, STANDARD_DEVIATION, outputs, create_graph=create_graph)
            return lambda: module(self.inputs.clone())
        options = {"create_graph": True} if create_graph and method == "sdp" else {}
        propagate, law = sr.rule(method, **options).prepare(self.net), self.law
        return lambda: _moments(propagate(law))


def _moments(law: Any) -> tuple[Tensor, Tensor]:
    return law.location, law.covariance if isinstance(law, sr.Gaussian) else law.variance
