"""What a propagation rule is."""

from __future__ import annotations

import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, fields
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, runtime_checkable

from sdp_ref.errors import NoFormulaError, ReplacedLawWarning, UndefinedError, UnsupportedError
from sdp_ref.laws import (
    Cauchy,
    DiagonalGaussian,
    Gaussian,
    Law,
    LocationScale,
    SymmetricStable,
    law_of,
    unchecked,
)
from sdp_ref.laws.base import require

if TYPE_CHECKING:
    from torch import Tensor

    from sdp_ref.graph.trace import Net


@runtime_checkable
class Propagator(Protocol):
    """All that the suite needs of a rule: a name, and the law of the output."""

    @property
    def name(self) -> str:
        """Short name, as in tables."""

    def propagate(self, net: Net, x: Law) -> Law:
        """Predict the law of ``net(X)`` for X of law `x`."""


def predicted(rule: Propagator, net: Net, x: Law) -> Law:
    """Law that a rule predicts for ``net(X)``, if net, input and result are sound.

    Parameters
    ----------
    rule : Propagator
    net : nn.Module or function
    x : Law, or what `sdp_ref.law_of` takes for one

    Returns
    -------
    Law

    Raises
    ------
    ValueError
        If net and law do not fit together, or the result is no law: a parameter is not finite, or a scale or
        variance that is one is negative. A covariance matrix may be indefinite, as some rules make it.
    UnsupportedError
        If the rule has no formula for an op of the net or for the family of `x`.
    """
    import torch
    from torch import nn

    try:
        x = law_of(x)
    except ValueError as error:
        raise ValueError(f"x must be a law such as sdp_ref.Gaussian: {error}") from None
    if not callable(net):
        raise ValueError(f"net must be a torch module or a function, got {type(net).__name__}")
    weight = (
        next((p for p in net.parameters() if p.is_floating_point()), None)
        if isinstance(net, nn.Module)
        else None
    )
    if weight is not None and (weight.dtype, weight.device) != (x.location.dtype, x.location.device):
        raise ValueError(
            f"the net is {weight.dtype} on {weight.device}, the input law {x.location.dtype} on "
            f"{x.location.device}; bring them together with net.to(...) or x.to(...)"
        )
    try:
        law = law_of(rule.propagate(net, x))
    except UnsupportedError:
        raise
    except RuntimeError as error:  # torch's own, of shapes and dtypes
        first = str(error).splitlines()[0]
        raise ValueError(f"the net cannot take inputs of shape {tuple(x.location.shape)}: {first}") from error
    located = torch.isfinite(law.location.detach()).all()
    said = f"rule '{rule.name}' gives a non-finite location: does the net return NaN?"
    # variances in a covariance matrix are left: rounding takes them below zero, and dvia itself
    sound = [
        (holds, partial("rule '{}' gives no law: its {}".format, rule.name, reason()))
        for holds, reason in law.soundness(derived=False)
    ]
    require((located, lambda: said), *sound)
    return law


@dataclass(frozen=True)
class Rule(ABC):
    """A propagation rule: given a net and the law of its input, it predicts the law of its output.

    Subclasses are frozen dataclasses whose fields are the rule's parameters.
    """

    name: ClassVar[str]
    version: ClassVar[int] = 1
    """Raise it with every change that changes predictions: stored measurements of the rule are then out of
    date, and the next run measures them again."""
    claims: ClassVar[Collection[str]] = frozenset()
    """What the rule promises. "moments": its mean and covariance are those of the true law after
    one hidden layer. "marginal moments": its means and variances are, after one activation. "second order":
    its mean is right to second order in small noise. The conformance kit checks what is claimed."""
    known_faults: ClassVar[Mapping[str, str]] = MappingProxyType({})
    """Checks of :func:`sdp_ref.check_rule` that the rule as published fails, and why."""
    title: ClassVar[str | None] = None
    """Name for people; None leaves it at `name`."""
    colour: ClassVar[str | None] = None
    """In figures, as ``#rrggbb``; None leaves it to the figure. The built-in rules have those of Okabe and
    Ito (2008), told apart with every common colour blindness."""
    marginal: ClassVar[bool] = False
    """Whether the rule drops the correlations between the units of a layer."""
    reference: ClassVar[bool] = False
    """Whether it is made from the oracle itself, and so has no place in a ranking."""
    rank: ClassVar[int] = 100
    """Place in tables, the lowest first: rules that do not sample from 10, sampling ones from 200."""

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

    @contextmanager
    def at(self, path: str = "") -> Iterator[None]:
        """Where an op of a net is asked for something: what it has no formula for, the rule does not support.

        Parameters
        ----------
        path : str
            Where the op stands in the net; "" for the net as a whole.

        Raises
        ------
        UnsupportedError
            In the stead of a :class:`~sdp_ref.errors.NoFormulaError`.
        """
        try:
            yield
        except NoFormulaError as error:
            raise UnsupportedError(self.name, str(error), path) from None

    @abstractmethod
    def prepare(self, net: Net) -> Callable[[Law], Law]:
        """Do once what depends on the net alone; returns a function of the law of the input."""

    def examine(self, net: Net, x: Law) -> None:  # noqa: ARG002 - a rule that looks at the shapes of inputs does
        """Look whether the rule takes a net, without propagating anything where that can be told.

        Parameters
        ----------
        net : nn.Module or function
        x : Law
            What its inputs are like.

        Raises
        ------
        UnsupportedError
            If it is known not to.
        """
        self.prepare(net)

    @property
    def parameters(self) -> dict[str, Any]:
        """Parameters that tell this rule from others of its name: those not at their default."""
        return {f.name: value for f in fields(self) if (value := getattr(self, f.name)) != f.default}

    @property
    def spec(self) -> str:
        """Rule as text, ``name`` or ``name:key=value,...``; :func:`sdp_ref.rule` reads it back."""
        options = ",".join(f"{k}={v}" for k, v in self.parameters.items())
        return f"{self.name}:{options}" if options else self.name

    @property
    def label(self) -> str:
        """Name for people, with the parameters that tell this rule from others of its name."""
        options = ", ".join(f"{k}={v}" for k, v in self.parameters.items())
        title = self.title or self.name
        return f"{title} ({options})" if options else title

    @property
    def sampling(self) -> int | None:
        """Samples of the net that the rule draws, 0 if their number is not known; None if it draws none.

        A rule that has a ``seed`` draws some: override this to say how many.
        """
        return 0 if hasattr(self, "seed") else None


def check_outputs(inputs: Tensor, outputs: object) -> Tensor:
    """Outputs of a net, if they are one row of floating-point numbers for each input.

    Parameters
    ----------
    inputs : Tensor, shape (B, *event)
    outputs : object
        What the net gave for them.

    Returns
    -------
    Tensor, shape (B, *out)
        The outputs.

    Raises
    ------
    ValueError
        If they are not.
    """
    from torch import Tensor

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

    Parameters
    ----------
    rule : str
        Name of the rule that asks, for the message.
    x : Law

    Returns
    -------
    Gaussian
        `x` itself if it is one.

    Raises
    ------
    UnsupportedError
        If `x` has no covariance.
    """
    if isinstance(x, Gaussian):
        return x
    if isinstance(x, DiagonalGaussian):
        return unchecked(Gaussian, x.mean, x.covariance)
    with _of_moments(rule, x):
        return unchecked(Gaussian, x.mean, x.covariance)


@contextmanager
def _of_moments(rule: str, x: Law) -> Iterator[None]:
    """Where the first two moments stand for a law of another family: a warning says so.

    Raises
    ------
    UnsupportedError
        If it has none.
    """
    kind = type(x).__name__
    try:
        yield
    except UndefinedError as error:
        raise UnsupportedError(rule, f"{kind} input, which has no covariance ({error})") from None
    warnings.warn(
        f"rule '{rule}' takes {x.described} for the Gaussian with its mean and covariance",
        ReplacedLawWarning,
        stacklevel=4,
    )


def as_any_gaussian(rule: str, x: Law) -> Gaussian | DiagonalGaussian:
    """Law `x` as a Gaussian one, without a dense covariance where its components are independent.

    Parameters
    ----------
    rule : str
        Name of the rule that asks, for the message.
    x : Law

    Returns
    -------
    Gaussian or DiagonalGaussian

    Raises
    ------
    UnsupportedError
        If `x` has no covariance.
    """
    if isinstance(x, Gaussian | DiagonalGaussian):
        return x
    if not isinstance(x, LocationScale):
        return as_gaussian(rule, x)
    with _of_moments(rule, x):
        return unchecked(DiagonalGaussian, x.mean, x.variance)


def as_marginal(rule: str, x: Law) -> Law:
    """Law `x` without its correlations, Gaussian if it is not stable; a warning says what was dropped."""
    if isinstance(x, DiagonalGaussian | Cauchy | SymmetricStable):
        return x
    if not isinstance(x, Gaussian):
        with _of_moments(rule, x):
            return unchecked(DiagonalGaussian, x.mean, x.variance)
    warnings.warn(
        f"rule '{rule}' is marginal: it uses the variances of its Gaussian input and drops the covariances",
        ReplacedLawWarning,
        stacklevel=2,
    )
    return unchecked(DiagonalGaussian, x.mean, x.variance)
