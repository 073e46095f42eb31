"""What a propagation rule is, and the walk that layer-wise rules inherit."""

from __future__ import annotations

import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection
from dataclasses import dataclass, fields
from typing import Any, ClassVar, Protocol, TypeVar, runtime_checkable

from torch import Tensor, nn

from sdp_ref import activations, graph
from sdp_ref.distributions import DiagonalGaussian, Gaussian, Law, unchecked
from sdp_ref.graph import Net, UnsupportedError

Handler = Callable[..., Any]
HandlerT = TypeVar("HandlerT", bound=Handler)


@runtime_checkable
class Propagator(Protocol):
    """All that the suite needs of a rule: a name, and the law of the output."""

    @property
    def name(self) -> str:
        """Short name, as in tables."""

    def propagate(self, net: Net, x: Law) -> Law:
        """Predict the law of ``net(X)`` for X of law `x`."""


@dataclass(frozen=True)
class Rule(ABC):
    """A propagation rule: given a net and the law of its input, it predicts the law of its output.

    Subclasses are frozen dataclasses whose fields are the rule's parameters.
    """

    name: ClassVar[str]
    claims: ClassVar[Collection[str]] = frozenset()
    """What the rule promises. "moments": its mean and covariance are those of the true law after
    one hidden layer. "marginal moments": its means and variances are, after one activation."""

    def propagate(self, net: Net, x: Law) -> Law:
        """Predict the law of ``net(X)``.

        Parameters
        ----------
        net : nn.Module or function
            Maps a batch (B, *event) to (B, m), each row by itself.
        x : Law
            Law of the input.

        Returns
        -------
        Law
            Of the output; its family depends on the rule and on that of `x`.

        Raises
        ------
        UnsupportedError
            If the rule has no formula for an op of the net or for the family of `x`.
        """
        return self.prepare(net)(x)

    @abstractmethod
    def prepare(self, net: Net) -> Callable[[Law], Law]:
        """Do once what depends on the net alone; returns a function of the law of the input."""

    @property
    def parameters(self) -> dict[str, Any]:
        """Parameters that tell this rule from others of its name: those not at their default."""
        return {f.name: value for f in fields(self) if (value := getattr(self, f.name)) != f.default}

    @property
    def spec(self) -> str:
        """Rule as text, ``name`` or ``name:key=value,...``; :func:`sdp_ref.rule` reads it back."""
        options = ",".join(f"{k}={v}" for k, v in self.parameters.items())
        return f"{self.name}:{options}" if options else self.name


class LayerwiseRule(Rule):
    """A rule that maps the law of a layer's input to the law of its output, op by op.

    A subclass says with :meth:`start` which law enters the first layer and declares, with
    :meth:`handles`, one handler per op. Handlers are inherited.
    """

    _handlers: ClassVar[dict[type[nn.Module], Handler]] = {}

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        cls._handlers = {}

    @classmethod
    def handles(cls, *kinds: type[nn.Module]) -> Callable[[HandlerT], HandlerT]:
        """Declare the decorated function as the handler of modules of these `kinds`.

        It is called as ``handler(rule, module, *laws)`` and returns the law of the module's
        output. A functional form of an op (``F.relu``) arrives as the module that does the same.
        """

        def register(handler: HandlerT) -> HandlerT:
            cls._handlers.update(dict.fromkeys(kinds, handler))
            return handler

        return register

    @abstractmethod
    def start(self, x: Law) -> Law:
        """Turn the law of the net's input into the one that is walked through the net."""

    def finish(self, law: Law, x: Law) -> Law:
        """Turn the law of the last layer's output into the result."""
        return law.to(dtype=x.location.dtype)

    def prepare(self, net: Net) -> Callable[[Law], Law]:
        """Trace the net and find a handler for each op; see :class:`Rule`."""
        try:
            steps = graph.trace(net)
        except graph.UntraceableError as error:
            raise UnsupportedError(self.name, str(error)) from error
        handlers = [self._handler(step) for step in steps]

        def propagate(x: Law) -> Law:
            values = [self.start(x)]
            for step, handler in zip(steps, handlers, strict=True):
                values.append(handler(self, step.module, *(values[i] for i in step.inputs)))
            return self.finish(values[-1], x)

        return propagate

    def _handler(self, step: graph.Step) -> Handler:
        if isinstance(step.module, graph.Unknown):
            raise UnsupportedError(self.name, step.module.text, step.path)
        kind = type(step.module)
        tables = (vars(cls).get("_handlers", {}) for cls in type(self).__mro__)
        handler = next((table[kind] for table in tables if kind in table), None)
        if handler is None:
            raise UnsupportedError(self.name, kind.__name__, step.path)
        if isinstance(step.module, nn.GELU) and step.module.approximate != "none":
            raise UnsupportedError(self.name, f"GELU(approximate={step.module.approximate!r})", step.path)
        if isinstance(step.module, nn.Dropout) and step.module.training:
            raise UnsupportedError(self.name, "Dropout in training mode (call net.eval())", step.path)
        if isinstance(step.module, nn.Flatten) and (step.module.start_dim, step.module.end_dim) != (1, -1):
            raise UnsupportedError(self.name, "a Flatten that does not keep the batch dimension", step.path)
        return handler


ELEMENTWISE = (nn.ReLU, nn.LeakyReLU, nn.Sigmoid, nn.SiLU, nn.GELU, nn.Tanh)


def activation_of(module: nn.Module) -> activations.Activation:
    """Entry of the activation table for a module of :data:`ELEMENTWISE`."""
    if isinstance(module, nn.LeakyReLU):
        return activations.activation("leaky_relu", negative_slope=module.negative_slope)
    return activations.activation(type(module).__name__.lower())


@LayerwiseRule.handles(nn.Identity, nn.Dropout)
def _identity(_rule: LayerwiseRule, _module: nn.Module, law: Law) -> Law:
    return law


@LayerwiseRule.handles(nn.Flatten)
def _flatten(_rule: LayerwiseRule, _module: nn.Flatten, law: Law) -> Law:
    if isinstance(law, Gaussian):
        return unchecked(Gaussian, law.mean.flatten(1), law.covariance)
    parts = (getattr(law, f.name) for f in fields(law))
    return unchecked(type(law), *(v.flatten(1) if isinstance(v, Tensor) else v for v in parts))


def check_outputs(inputs: Tensor, outputs: object) -> Tensor:
    """Outputs of a net, if they are one row of floating-point numbers for each input.

    Raises
    ------
    ValueError
        If they are not.
    """
    if not isinstance(outputs, Tensor):
        raise ValueError(f"a net must return one tensor, got {type(outputs).__name__}")
    if outputs.ndim < 2 or outputs.shape[0] != inputs.shape[0] or not outputs.is_floating_point():
        raise ValueError(
            f"a net must map {tuple(inputs.shape)} to (B, m) row by row, got {tuple(outputs.shape)} "
            f"of {outputs.dtype}"
        )
    return outputs


def as_gaussian(rule: str, x: Law) -> Gaussian:
    """Law `x` with a full covariance matrix.

    Raises
    ------
    UnsupportedError
        If `x` has no covariance.
    """
    if isinstance(x, Gaussian):
        return x
    if isinstance(x, DiagonalGaussian):
        return unchecked(Gaussian, x.mean, x.covariance)
    raise UnsupportedError(rule, f"{type(x).__name__} input, which has no covariance")


def as_marginal(rule: str, x: Law) -> Law:
    """Law `x` without its correlations; a warning says so where it had any."""
    if not isinstance(x, Gaussian):
        return x
    warnings.warn(
        f"rule '{rule}' is marginal: it uses the variances of its Gaussian input and drops the covariances",
        stacklevel=2,
    )
    return unchecked(DiagonalGaussian, x.mean, x.variance)
