"""What is timed: a forward pass and a training step of each method, on nets by name."""

from __future__ import annotations

import importlib
import importlib.util
import itertools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

import sdp_ref as sr

from .dimensions import Mlp, sized
from .timing import REGULAR

RULES = ("marginal_moment_matching", "marginal_sdp", "sdp")
DISTPROP = "distprop"
"""The paper's own package, where it is installed."""

STANDARD_DEVIATION = 0.1


class NotAtThisCommitError(NotImplementedError):
    """A net or rule that is not there: asv skips what raises this while it is set up."""


def mlp(named: Mlp) -> nn.Sequential:
    """The net with torch's own initial weights, in evaluation mode."""
    widths = [named.inputs, *[named.width] * named.depth]
    layers: list[nn.Module] = []
    for n, m in itertools.pairwise(widths):
        layers += [nn.Linear(n, m), nn.ReLU()]
    return nn.Sequential(*layers, nn.Linear(widths[-1], named.outputs)).eval()


def build(name: str, seed: int = 0) -> tuple[nn.Module, tuple[int, ...]]:
    """Net and the shape of one input, by name.

    Parameters
    ----------
    name : str
        As :func:`sdp_bench.bench.runtime.dimensions.sized` takes it.
    seed : int
        Of the weights.

    Returns
    -------
    nn.Module
        In evaluation mode.
    tuple of int
        Shape of one input.

    Raises
    ------
    NotAtThisCommitError
        If this version of the project does not have the net.
    """
    net = sized(name)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        if isinstance(net, Mlp):
            return mlp(net), (net.inputs,)
        own = {"channels": net.channels, "size": net.size, "width": net.width} if net.width else {}
        try:
            networks: Any = importlib.import_module("sdp_bench.bench.nets.architectures")
            made = getattr(networks, net.kind)(**own)
        except (ImportError, AttributeError) as error:
            raise NotAtThisCommitError(f"no net '{name}' in this version") from error
    return made, (net.channels, net.size, net.size)


@dataclass(frozen=True, eq=False)
class Workload:
    """A net and a batch of noisy inputs, on a device."""

    net: nn.Module
    inputs: Tensor

    @classmethod
    def of(cls, name: str, batch: int, device: str = "cpu", seed: int = 0) -> Workload:
        """Net by name (see :func:`build`) with random weights, and uniform inputs from a seed."""
        net, shape = build(name, seed)
        generator = torch.Generator().manual_seed(seed)
        return cls(net.to(device), torch.rand(batch, *shape, generator=generator).to(device))

    @property
    def law(self) -> sr.DiagonalGaussian:
        """Inputs with independent noise of standard deviation :data:`STANDARD_DEVIATION`."""
        return sr.DiagonalGaussian(self.inputs, torch.full_like(self.inputs, STANDARD_DEVIATION**2))

    def methods(self) -> tuple[str, ...]:
        """Methods that can be timed here: the net itself, the rules, and distprop if installed."""
        installed = importlib.util.find_spec(DISTPROP) is not None
        return (REGULAR, *RULES, *([DISTPROP] if installed else []))

    def forward(self, method: str) -> Callable[[], tuple[Tensor, Tensor | None]]:
        """A forward pass without gradients, once ready.

        Returns
        -------
        callable
            Gives the location (B, m), and covariance or variance, None of the net itself.

        Raises
        ------
        UnsupportedError
            If a rule cannot take the net.
        """
        if method == DISTPROP:
            return self._distprop(create_graph=False)
        if method == REGULAR:
            self._regular()  # once, as the others: memory and kernels are set up
            return lambda: (self._regular(), None)
        prepared, law = sr.rule(method).prepare(self.net), self.law

        def run() -> tuple[Tensor, Tensor | None]:
            with torch.no_grad():
                return _moments(prepared(law))

        run()
        return run

    def training_step(self, method: str) -> Callable[[], Tensor]:
        """Loss on location and scale, and its gradient in the weights.

        Returns
        -------
        callable
            Leaves the gradients in the parameters, and gives the loss.

        Raises
        ------
        UnsupportedError
            If a rule cannot take the net.
        """
        propagate = self._differentiable(method)

        def step() -> Tensor:
            self.net.zero_grad(set_to_none=True)
            location, scale = propagate()
            loss = location.square().mean()
            if scale is not None:
                loss = loss + scale.square().mean()
            loss.backward()
            return loss.detach()

        return step

    def _differentiable(self, method: str) -> Callable[[], tuple[Tensor, Tensor | None]]:
        if method == DISTPROP:
            return self._distprop(create_graph=True)
        if method == REGULAR:
            return lambda: (self.net(self.inputs), None)
        options: dict[str, Any] = {"create_graph": True} if method == "sdp" else {}
        rule, law = sr.rule(method, **options), self.law
        propagate = rule.prepare(self.net)  # reads the parameters anew at every call
        return lambda: _moments(propagate(law))

    def _regular(self) -> Tensor:
        with torch.no_grad():
            outputs: Tensor = self.net(self.inputs)
        return outputs

    def _distprop(self, *, create_graph: bool) -> Callable[[], tuple[Tensor, Tensor | None]]:
        try:
            package: Any = importlib.import_module(DISTPROP)
        except ImportError as error:
            raise NotAtThisCommitError(f"{DISTPROP} is not installed") from error
        outputs = self._regular().shape[1]
        module = package.SDP(self.net, STANDARD_DEVIATION, outputs, create_graph=create_graph)
        return lambda: module(self.inputs.clone())


def _moments(law: Any) -> tuple[Tensor, Tensor]:
    return law.location, law.covariance if isinstance(law, sr.Gaussian) else law.variance
