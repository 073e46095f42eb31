"""Isolation of checks from global state."""

from __future__ import annotations

import copy
import dataclasses
import random
import warnings
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from sdp_ref.activations import ACTIVATIONS, activation
from sdp_ref.conformance.reference import known
from sdp_ref.errors import UnsupportedError
from sdp_ref.graph.trace import Net
from sdp_ref.laws import DiagonalGaussian, Law, Mixture


def seed_globally(seed: int) -> None:
    """Seed the global generators of torch, numpy and random."""
    torch.default_generator.manual_seed(seed)
    np.random.seed(seed)  # noqa: NPY002  the legacy global state is what a rule might read
    random.seed(seed)


def generators() -> tuple[Any, ...]:
    """State of the global generators, in a comparable form."""
    _, keys, *rest = np.random.get_state(legacy=True)  # noqa: NPY002
    numpy_state = (np.asarray(keys).tobytes(), *rest)
    return bytes(torch.default_generator.get_state().numpy()), numpy_state, random.getstate()


@contextmanager
def preserved() -> Iterator[None]:
    """Restore generators, default dtype, grad mode and thread count; silence warnings.

    Warnings of a rule, such as about dropped covariances, are not test results.
    """
    numpy_state, python_state = np.random.get_state(), random.getstate()  # noqa: NPY002
    dtype, threads, grad = torch.get_default_dtype(), torch.get_num_threads(), torch.is_grad_enabled()
    try:
        with (
            warnings.catch_warnings(action="ignore"),
            torch.random.fork_rng(devices=[]),
            torch.inference_mode(False),
            torch.enable_grad(),
        ):
            yield
    finally:
        np.random.set_state(numpy_state)  # noqa: NPY002
        random.setstate(python_state)
        torch.set_default_dtype(dtype)
        torch.set_grad_enabled(grad)
        if torch.get_num_threads() != threads:
            torch.set_num_threads(threads)


DRAWS = 2**13
"""Number of samples of a sampling rule in comparisons with exact values: enough for the central limit theorem
to hold at six standard errors, few enough to take milliseconds.
"""


class NotApplicable(Exception):  # noqa: N818  no error: the check has nothing to ask of this rule
    """A check, or one of its cases, does not apply to a rule; the message states the reason."""


@dataclasses.dataclass(frozen=True)
class Prediction:
    """Result of a rule: mean (B, n) and covariance (B, n, n).

    For a marginal result, `full` is False and only the diagonal is meaningful.
    """

    mean: Tensor
    covariance: Tensor
    full: bool

    @property
    def variance(self) -> Tensor:
        return self.covariance.diagonal(dim1=-2, dim2=-1)

    def detached(self) -> Prediction:
        return Prediction(self.mean.detach(), self.covariance.detach(), self.full)


class Subject:
    """A rule under test.

    A rule with an integer attribute ``samples`` is a sampling rule: it is tested with statistical tolerances,
    on a copy that draws :data:`DRAWS` samples. If the results of a rule depend on its ``seed`` but it has no
    such attribute, its errors are unknown, and comparisons with exact values are skipped. `seed` replaces a
    seed that is not a single integer.
    """

    def __init__(self, rule: Any, seed: int = 0) -> None:
        self.name: str = rule.name
        rule_seed = getattr(rule, "seed", None)
        if rule_seed is not None and not _is_integer(
            rule_seed
        ):  # a seed per law would restrict the batch size
            rule = with_attribute(rule, "seed", seed) or rule
        self.rule = rule
        self.claims: Collection[str] = getattr(rule, "claims", None) or ()
        self.known_faults: Mapping[str, str] = getattr(rule, "known_faults", None) or {}
        self.samples = getattr(rule, "samples", None)
        self.sampling = _is_integer(self.samples)

    def predict(self, net: Net, x: Law, rule: Any = None) -> Prediction:
        """Predict with the rule, or a variant of it, as configured."""
        seed_globally(0)  # makes rules that use the global generators repeatable, except in `global-rng`
        return as_prediction((self.rule if rule is None else rule).propagate(net, x), x)

    def estimate(self, net: Net, x: Law, through: Callable[[Any], Any] = lambda rule: rule) -> Prediction:
        """Predict for comparison with exact values: a sampling rule draws many samples."""
        return self.predict(net, x, through(self._accurate)).detached()

    def law(self, net: Net, x: Law) -> Law:
        """The law with the moments that :meth:`estimate` returns."""
        seed_globally(0)
        law: Law = self._accurate.propagate(net, x)
        return law

    @cached_property
    def _accurate(self) -> Any:
        if self.sampling:
            many = self.with_samples(DRAWS)
            if many is None:
                raise NotApplicable("it samples, and its `samples` cannot be set on a copy of it")
            return many
        if self._depends_on_seed():
            raise NotApplicable(
                "it depends on its seed and has no integer attribute `samples`: its error is unknown"
            )
        return self.rule

    def with_samples(self, samples: int) -> Any:
        """Copy of the rule that draws so many samples, or None if that is not possible."""
        return with_attribute(self.rule, "samples", samples)

    def _depends_on_seed(self) -> bool:
        seed = getattr(self.rule, "seed", None)
        if seed is None or not _is_integer(seed):
            return False
        other = with_attribute(self.rule, "seed", seed + 1)
        if other is None:
            return False
        net = nn.Linear(2, 1, bias=False, dtype=torch.float64)
        nn.init.ones_(net.weight).requires_grad_(False)
        x = DiagonalGaussian(*torch.ones(2, 1, 2, dtype=torch.float64))
        try:
            a, b = self.predict(net, x), self.predict(net, x, other)
        except (Exception, SystemExit):  # noqa: BLE001  for the checks to meet
            return False
        return not (torch.equal(a.mean, b.mean) and torch.equal(a.covariance, b.covariance))

    @cached_property
    def activations(self) -> tuple[str, ...]:
        """The kit's activations that the rule supports; ReLU if it supports none."""
        return tuple(n for n in known(ACTIVATIONS) if self._takes(activation(n).build())) or ("relu",)

    def _takes(self, nonlinearity: nn.Module) -> bool:
        first, last = nn.Linear(1, 1, dtype=torch.float64), nn.Linear(1, 1, dtype=torch.float64)
        for parameter in (*first.parameters(), *last.parameters()):
            nn.init.ones_(parameter).requires_grad_(False)
        x = DiagonalGaussian(*torch.ones(2, 1, 1, dtype=torch.float64))
        for net in (nn.Sequential(first, nonlinearity), nn.Sequential(first, nonlinearity, last)):
            try:
                self.rule.propagate(net.eval(), x)
            except UnsupportedError:
                continue
            except (Exception, SystemExit):  # noqa: BLE001  supported and broken: for the checks to meet
                return True
            return True
        return False


_NO_LAW = (
    "propagate returned a {} for a Gaussian input, not an sdp_ref.Gaussian, an sdp_ref.DiagonalGaussian or "
    "another law with mean and covariance"
)


def as_prediction(law: object, x: Law) -> Prediction:
    """Flatten the result of a rule."""
    names = ("mean", "variance" if isinstance(law, DiagonalGaussian) else "covariance")
    if not isinstance(law, Law) or not all(hasattr(law, name) for name in names):
        raise ValueError(_NO_LAW.format(type(law).__name__))
    parts = law.components if isinstance(law, Mixture) else law
    full = not isinstance(parts, DiagonalGaussian)
    for name in names:
        value = getattr(law, name)
        if not isinstance(value, Tensor):
            raise ValueError(f"{name} of the result is a {type(value).__name__}, not a tensor")
    if law.mean.ndim < 2 or law.mean.shape[0] != x.batch:
        raise ValueError(
            f"mean of the result has shape {tuple(law.mean.shape)}, not (B, m) with the batch's B = {x.batch}"
        )
    mean, n = law.mean.flatten(1), law.dimension
    expected = law.mean.shape if isinstance(law, DiagonalGaussian) else (x.batch, n, n)
    if (shape := getattr(law, names[1]).shape) != expected:
        raise ValueError(f"{names[1]} of the result has shape {tuple(shape)}, not {tuple(expected)}")
    return Prediction(mean, law.covariance, full)


def with_attribute(rule: Any, name: str, value: Any) -> Any:
    """Copy of a rule with one attribute set, or None if it cannot be set."""
    try:
        if dataclasses.is_dataclass(rule) and name in {f.name for f in dataclasses.fields(rule) if f.init}:
            return dataclasses.replace(rule, **{name: value})  # type: ignore[type-var]
        other = copy.copy(rule)
        setattr(other, name, value)
    except Exception:  # noqa: BLE001  a class of the user's may refuse in its own way
        return None
    return other if getattr(other, name, None) == value else None


def _is_integer(value: object) -> bool:
    return hasattr(value, "__index__") and not isinstance(value, bool | Tensor)
