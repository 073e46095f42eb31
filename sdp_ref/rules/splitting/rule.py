"""Splitting a law into narrower ones, which a base rule propagates."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, ClassVar, cast

import numpy as np
import torch

from sdp_ref.graph.trace import Net
from sdp_ref.laws import Cauchy, Law, Mixture, SymmetricStable, unchecked
from sdp_ref.rules.base import Propagator, Rule, as_any_gaussian, as_marginal
from sdp_ref.rules.points.divided_difference import DividedDifference
from sdp_ref.rules.splitting.frame import Frame, Splittable
from sdp_ref.rules.splitting.narrower import narrower
from sdp_ref.rules.splitting.tree import grown


@dataclass(frozen=True)
class Split(Rule):
    """The mixture of what a base rule makes of narrower pieces of the input's law.

    A Gaussian law is nearly a mixture of k narrower ones, and a net is nearer to what a rule makes of it over
    a narrow law than over a wide one. Pieces are split where the net bends most: each along the axis with the
    largest second difference, in units of the covariance that the piece has at the output. A law over which
    the net does not bend stays whole, and has the base's own prediction. The pieces of a Gaussian have its
    mean and covariance together, so what is exact on affine nets stays so.

    Cauchy and symmetric alpha-stable laws are split along their components into narrower ones of their
    family, by X = m + (1 - w)^(1/alpha) s Z1 + w^(1/alpha) s Z2 with points in the stead of Z1. Any other law
    with a covariance stands for the Gaussian that has it, and a mixture is split component by component.

    Parameters
    ----------
    base : str or Rule
        Rule for the pieces, as text such as ``"sdp"`` or an object; it must not sample or split itself.
        Inputs that the base does not support are not supported.
    k : int
        Maximum number of pieces, at least 1; with 1 the result is that of the base.

    Notes
    -----
    For inputs of more than 16 components the directions are the leading right singular vectors of J L,
    for J the Jacobian at the location and L L^T the covariance, that is, directions that affect the outputs.
    The choice of the pieces is not differentiated. The predictions for them are, if those of the base are.

    References
    ----------
    Havlak and Campbell, "Discrete and continuous, probabilistic anticipation for autonomous robots in urban
    environments", IEEE Trans. Robotics 2014, and Tuggle and Zanetti, "Automated splitting Gaussian mixture
    nonlinear measurement update", J. Guidance 2018: splitting along the direction of most non-linearity.
    """

    name: ClassVar[str] = "split"
    title: ClassVar[str] = "split"
    rank: ClassVar[int] = 70
    base: Propagator = field(default=DividedDifference(1.25), metadata={"rule": True})
    k: int = 9

    def __post_init__(self) -> None:
        try:
            k = None if isinstance(self.k, bool) else operator.index(self.k)
        except TypeError:
            k = None
        if k is None or k < 1:
            raise ValueError(f"split needs a whole number k of pieces, at least 1, got {self.k!r}")
        object.__setattr__(self, "k", k)
        if isinstance(self.base, str) or not isinstance(self.base, Propagator):
            raise ValueError(
                f"base of split must be a rule, got {self.base!r}; sdp_ref.rule('split:base=...') reads text"
            )
        if self.base.name == self.name:
            raise ValueError("split takes any rule for its base but split")
        if hasattr(self.base, "seed"):  # all pieces of all inputs would share its random numbers
            raise ValueError(f"split takes a base that does not sample, got {self.base.name}")

    @property
    def parameters(self) -> dict[str, Any]:
        """Base and number of pieces, always."""
        return {"base": getattr(self.base, "spec", self.base.name), "k": self.k}

    @property
    def label(self) -> str:
        """``split k=9``, with the base unless it is the default: ``split SDP k=9``."""
        base = (
            "" if self.base == DividedDifference(1.25) else f" {getattr(self.base, 'label', self.base.name)}"
        )
        return f"{self.title}{base} k={self.k}"

    @property
    def marginal(self) -> bool:  # type: ignore[override]  # as its base is
        return bool(getattr(self.base, "marginal", False))

    @property
    def known_faults(self) -> Mapping[str, str]:  # type: ignore[override]  # the base's, and its own
        own = {
            "gradients": "the choice of the pieces is not differentiated",
            "diagonal": "mean and variance of many pieces come near those of f(X), each by itself",
            "permutation": "pieces are correlated, and points may depend on the order of such inputs",
        }
        own = own if self.k > 1 else {}
        return {**getattr(self.base, "known_faults", {}), **own}

    def prepare(self, net: Net) -> Callable[[Law], Law]:
        """Prepare the base only."""
        base = self.base
        prepare = getattr(base, "prepare", None)
        predict: Callable[[Law], Law] = prepare(net) if prepare else partial(base.propagate, net)

        def propagate(x: Law) -> Law:
            if isinstance(x, Mixture):
                return self._of_mixture(net, x)
            if self.k == 1:
                return predict(x)
            if not isinstance(x, Cauchy | SymmetricStable):
                x = as_any_gaussian(self.name, x)
            if self.marginal:
                x = cast(Splittable, as_marginal(self.name, x))
            with self.at():
                frame = Frame.of(net, x, axes=self.marginal)
                split = narrower(self.k, 1.0 if isinstance(x, Cauchy) else getattr(x, "alpha", None))
                shape = x.batch, frame.steps.shape[2]
                pieces = grown(
                    frame.evaluate(net),
                    shape,
                    self.k,
                    split,
                    turning=frame.turning,
                    rounding=torch.finfo(x.location.dtype).eps,
                )
                used = np.flatnonzero(pieces.weights.max(0))
                if len(used) == 1:
                    return predict(x)
                pieces = pieces[used[None].repeat(x.batch, 0)]
                weights = torch.from_numpy(pieces.weights).to(x.location)
                return unchecked(Mixture, weights, predict(frame.pieces(pieces)))

        return propagate

    def _of_mixture(self, net: Net, x: Mixture) -> Mixture:
        """Split each component into its share of the pieces, at least one."""
        y = replace(self, k=max(1, self.k // x.pieces)).propagate(net, x.components)
        if not isinstance(y, Mixture):
            return unchecked(Mixture, x.weights, y)
        weights = x.weights.unsqueeze(-1) * y.weights.unflatten(0, x.weights.shape)
        return unchecked(Mixture, weights.flatten(1), y.components)
