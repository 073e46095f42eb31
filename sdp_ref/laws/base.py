"""Standard variates, which laws map to samples: different laws can share one set of random numbers."""

from __future__ import annotations

import copy
import itertools
import math
import operator
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, ClassVar, SupportsIndex, TypeVar

from sdp_ref.errors import UndefinedError
from sdp_ref.lazy import torch

if TYPE_CHECKING:
    from torch import Tensor
    from torch.distributions import Distribution


@dataclass(frozen=True)
class Standard:
    """Independent standard variates that are functions of uniform numbers.

    `name` is ``normal``, ``cauchy``, ``stable`` or ``uniform``. `from_uniform` maps uniform numbers inside
    (0, 1), shape (..., uniforms k), to k variates, shape (..., k). If `uniforms` is 1, it is the quantile
    function. `alpha` is the stability of a stable law.
    """

    name: str
    from_uniform: Callable[[Tensor], Tensor]
    uniforms: int = 1
    alpha: float = 2.0


def _normal(uniform: Tensor) -> Tensor:
    return torch.special.ndtri(uniform)


def _cauchy(uniform: Tensor) -> Tensor:
    return (math.pi * (uniform - 0.5)).tan()


NORMAL = Standard("normal", _normal)
CAUCHY = Standard("cauchy", _cauchy)
UNIFORM = Standard("uniform", lambda uniform: uniform)


def stable(alpha: float) -> Standard:
    """Symmetric alpha-stable variates with characteristic function exp(-abs(t)^alpha).

    References
    ----------
    Chambers, Mallows and Stuck, "A method for simulating stable random variables", JASA 1976.
    """

    def draw(uniform: Tensor) -> Tensor:
        angle, other = uniform.unflatten(-1, (-1, 2)).unbind(-1)
        angle = math.pi * (angle - 0.5)
        exponential = -(-other).log1p()
        tail = (((1 - alpha) * angle).cos() / exponential).pow((1 - alpha) / alpha)
        return (alpha * angle).sin() / angle.cos().pow(1 / alpha) * tail

    return Standard("stable", draw, 2, alpha)


LawT = TypeVar("LawT", bound="Law")
Push = Callable[["Tensor"], "Tensor"]

_NOTES = "_notes"
_ROWS, _COLUMNS = 5, 8  # laws and components that a notebook shows
_MOMENTS = ("mean", "variance", "covariance")


@dataclass(frozen=True, eq=False)
class Law:
    """A batch of probability distributions with a common event shape.

    Accessing a property that the law does not have (the mean of a Cauchy law) raises
    :class:`~sdp_ref.UndefinedError`. This is an AttributeError, so ``hasattr(law, "mean")`` works.
    """

    joint: ClassVar[bool] = True
    """Whether the law is a joint law of all components, rather than one law per component."""
    negative: ClassVar[tuple[str, ...]] = ()
    """Names of the parameters that must not be negative."""
    batched: ClassVar[tuple[str, ...]] = ()
    """Names of the fields that hold a tuple with an entry for each law."""

    if TYPE_CHECKING:  # at run time, properties would become defaults of the fields of subclasses

        @property
        def location(self) -> Tensor:
            """Centre of the law, shape (B, *event): its mean if that exists."""

        @property
        def mean(self) -> Tensor:
            """Mean, shape (B, *event)."""

        @property
        def variance(self) -> Tensor:
            """Variance of each component, shape (B, *event)."""

        @property
        def covariance(self) -> Tensor:
            """Covariance of the flattened event, shape (B, n, n)."""

    def __getattr__(self, name: str) -> Any:
        # Python also calls this after a property raised an UndefinedError, which is an AttributeError.
        if name == "location":  # the mean, unless a law has a centre of its own
            return self.mean
        if name in _MOMENTS:
            raise UndefinedError(f"{self.described} has no {name}")
        raise AttributeError(f"'{type(self).__name__}' object has no attribute '{name}'")

    @property
    def notes(self) -> tuple[str, ...]:
        """Approximations that the rule used for this input in addition to those that define the rule.

        They document the origin of the law. They are not a field, and no computation depends on them.
        """
        notes: tuple[str, ...] = self.__dict__.get(_NOTES, ())
        names: Any = self.__match_args__  # the field names; `fields` is slower
        for name in names:
            part = self.__dict__[name]
            if isinstance(part, Law):
                notes = tuple(dict.fromkeys((*notes, *part.notes)))
        return notes

    def _repr_html_(self) -> str:
        """Table of means and standard deviations, or of centres, of the first laws and components."""
        from html import escape

        has_moments = hasattr(self, "mean") and hasattr(self, "variance")
        parts = [self.mean, self.variance.sqrt()] if has_moments else [self.location]
        numbers = torch.stack([part.detach().cpu().flatten(1)[:_ROWS, :_COLUMNS] for part in parts], -1)
        rows = "".join(
            "<tr>" + "".join(f"<td>{' ± '.join(f'{x:.4g}' for x in cell)}</td>" for cell in row) + "</tr>"
            for row in numbers.tolist()
        )
        shown = "mean ± standard deviation" if has_moments else "centre (it has no mean and variance)"
        if numbers[..., 0].numel() < self.location.numel():
            shown += f" of the first {len(numbers)} laws and {numbers.shape[1]} components"
        title = f"{self.batch} × {type(self).__name__} of shape {tuple(self.event_shape)}"
        notes = "".join(f"<p>{escape(note)}</p>" for note in self.notes)
        return f"<div><strong>{title}</strong><p>{shown}</p><table>{rows}</table>{notes}</div>"

    @property
    def described(self) -> str:
        """Name for messages, such as ``a Cauchy law``."""
        return f"a {type(self).__name__} law"

    @property
    def batch(self) -> int:
        """Number of laws, B."""
        return self.location.shape[0]

    @property
    def event_shape(self) -> torch.Size:
        """Shape of one draw."""
        return self.location.shape[1:]

    @property
    def dimension(self) -> int:
        """Number of components of one draw, n."""
        return math.prod(self.event_shape)

    @property
    def spread(self) -> Tensor:
        """Size of the noise in each component, shape (B, *event).

        The standard deviation, the scale if no variance exists, or 1.
        """
        try:
            return self.variance.detach().clamp(min=0).sqrt()
        except UndefinedError:
            return getattr(self, "scale", torch.ones_like(self.location)).detach()

    @property
    def draws(self) -> float | None:
        """Number of independent samples that the law consists of; None if it is not an empirical law."""
        return None

    @property
    def standard(self) -> Standard | None:
        """Distribution of the standard variates that :meth:`push` maps to samples, or None."""
        return None

    @property
    def variates(self) -> int:
        """Number of standard variates per sample."""
        return self.dimension

    def push(self, device: torch.device | str | None = None, dtype: torch.dtype | None = None) -> Push:  # noqa: ARG002
        """Return the map from standard variates to samples of one law, shape (rows, variates) to (rows, n).

        `device` and `dtype` are those of the samples, by default those of the law. Laws without a known map
        raise :class:`~sdp_ref.UndefinedError`.
        """
        raise UndefinedError(f"{self.described} is not known as a map of standard variates")

    def sample(self, samples: int, generator: torch.Generator | None = None) -> Tensor:
        """Draw independent samples, shape (samples, B, *event).

        The `generator` must be on the CPU; by default the global one is used. Laws that cannot be sampled
        raise :class:`~sdp_ref.UndefinedError`.
        """
        if self.standard is None or not self.joint:
            raise UndefinedError(f"{self.described} cannot be sampled")
        shape = samples, self.batch, self.standard.uniforms * self.variates
        # Use the midpoints of the grid cells of torch.rand, so that no quantile is infinite.
        uniform = torch.rand(shape, generator=generator, dtype=torch.float64) * (1 - 2.0**-53) + 2.0**-54
        noise = self.standard.from_uniform(uniform).to(self.location.device)
        rows = [self[row].push()(noise[:, row]) for row in range(self.batch)]
        return torch.stack(rows, 1).unflatten(2, self.event_shape)

    def log_prob(self, value: Tensor) -> Tensor:  # noqa: ARG002
        """Return the log-density at `value` of shape (..., B, *event), shape (..., B), float64.

        Laws without a known density raise :class:`~sdp_ref.UndefinedError`.
        """
        raise UndefinedError(f"{self.described} has no known density")

    def survival(self, value: Tensor) -> Tensor:  # noqa: ARG002
        """Return the probability that each component exceeds `value`, shape (..., B, *event), float64.

        Laws whose marginal probabilities are unknown raise :class:`~sdp_ref.UndefinedError`.
        """
        raise UndefinedError(f"{self.described} has no known probabilities of single outputs")

    def class_probabilities(self) -> tuple[Tensor, Tensor]:
        """Return the probability that each component is the largest, (B, n), and an error bound, (B,).

        Both are float64. The first of equal components counts as the largest. Laws for which only samples
        show this raise :class:`~sdp_ref.UndefinedError`.
        """
        raise UndefinedError(f"{self.described} has no known probabilities of classes")

    def at_rows(self, value: Tensor) -> Tensor:
        """Broadcast values (..., B, *event) against the laws."""
        event = self.event_shape
        return value.expand(*value.shape[: value.ndim - len(event) - 1], self.batch, *event)

    def to_torch(self) -> Distribution:
        """Return the law as a ``torch.distributions`` object of float64.

        Its batch shape is (B,) and its event shape (n,). Laws that torch does not have raise
        :class:`~sdp_ref.UndefinedError`.
        """
        return self.as_torch(self.location.shape[:1])

    def as_torch(self, batch: torch.Size) -> Distribution:  # noqa: ARG002
        """Return the same as :meth:`to_torch`, with the batch reshaped to `batch`."""
        raise UndefinedError(f"torch.distributions has no such law as {self.described}")

    def unsound(self) -> str:
        """Return why the parameters do not define a law, such as ``mean is not finite``, or "" if they do."""
        return next((said() for said in _failed(self.soundness())), "")

    def soundness(self, *, derived: bool = True) -> tuple[Check, ...]:
        """Return the conditions on the parameters, each with a function that makes the error message.

        With `derived`, conditions on derived quantities are included, such as the variances in a covariance
        matrix.
        """
        checks: list[Check] = []
        for field in fields(self):
            value = getattr(self, field.name)
            if isinstance(value, Law):
                checks += value.soundness(derived=derived)
            elif isinstance(value, torch.Tensor):
                checks.append((torch.isfinite(value.detach()).all(), f"{field.name} is not finite".__str__))
        stored = {field.name for field in fields(self)}
        for name in self.negative:
            if derived or name in stored:
                value = getattr(self, name).detach()
                checks.append(((value >= 0).all(), f"{name} is negative".__str__))
        return tuple(checks)

    def __getitem__(self: LawT, index: SupportsIndex | slice) -> LawT:
        """Select laws and keep the batch dimension: ``x[0]`` has batch 1."""
        if not isinstance(index, slice):
            index = operator.index(index)
            if not -self.batch <= index < self.batch:  # ends iteration, too
                raise IndexError(f"law {index} of a batch of {self.batch}")
            index %= self.batch
            index = slice(index, index + 1)
        elif not range(self.batch)[index]:
            raise ValueError(f"a batch has one law or more, the slice holds none of {self.batch}")
        return noted(self.rows(index), self.notes)

    def rows(self: LawT, index: slice) -> LawT:
        """Select the laws of a slice that is not empty."""
        values = []
        for f in fields(self):
            value = getattr(self, f.name)
            per_law = f.name in self.batched or isinstance(value, torch.Tensor)
            values.append(value[index] if per_law else value)
        return unchecked(type(self), *values)

    def to(self: LawT, *args: Any, **kwargs: Any) -> LawT:
        """Move or cast every tensor as :meth:`torch.Tensor.to` does."""
        values = []
        for f in fields(self):
            value = getattr(self, f.name)
            movable = isinstance(value, torch.Tensor | Law)
            values.append(value.to(*args, **kwargs) if movable else value)
        return noted(unchecked(type(self), *values), self.notes)

    @classmethod
    def join(cls: type[LawT], laws: Sequence[LawT]) -> LawT:
        """Concatenate laws of this class along the batch; see :func:`joined`."""
        if len({law.event_shape for law in laws}) > 1:
            raise UndefinedError("laws of different shapes do not make one batch")

        def joined_field(name: str) -> Any:
            values = [getattr(law, name) for law in laws]
            if isinstance(values[0], torch.Tensor):
                return torch.cat(values)
            if name in cls.batched:
                return tuple(itertools.chain(*values))
            if any(value != values[0] for value in values):
                described = " and ".join(sorted({law.described for law in laws}))
                raise UndefinedError(f"laws of different parameters do not make one batch: {described}")
            return values[0]

        return unchecked(type(laws[0]), *[joined_field(f.name) for f in fields(laws[0])])


def unchecked(family: type[LawT], *values: object) -> LawT:
    """Build a law from its fields without validating them, for results of rules."""
    law = object.__new__(family)
    names: Any = family.__match_args__  # the field names; torch.compile cannot trace `fields`
    for name, value in zip(names, values, strict=True):
        object.__setattr__(law, name, value)
    return law


def noted(law: LawT, notes: Sequence[str]) -> LawT:
    """Return a copy of `law` with `notes` added to :attr:`Law.notes`, or `law` itself if there are none."""
    if not notes:
        return law
    law = copy.copy(law)
    object.__setattr__(law, _NOTES, tuple(dict.fromkeys((*law.notes, *notes))))
    return law


_COMPILED = (
    "a law's parameters must be finite, and its scales and weights >= 0, its covariances symmetric and "
    "positive semi-definite"
)
Check = tuple["Tensor", Callable[[], str]]
"""A boolean scalar tensor that is true for valid values, and a function that makes the error message."""


def require(*checks: Check) -> None:
    """Raise a ValueError for the first failed check, with one device synchronisation for all checks."""
    if torch.compiler.is_compiling():
        for sound, _ in checks:
            torch._assert_async(sound, _COMPILED)
        return
    for said in _failed(checks):
        raise ValueError(said())


def _failed(checks: Sequence[Check]) -> Iterator[Callable[[], str]]:
    """Yield the messages of failed checks, with one device synchronisation for all checks."""
    sounds = [sound for sound, _ in checks]
    on_host = all(sound.device.type == "cpu" for sound in sounds)
    for sound, (_, said) in zip(sounds if on_host else torch.stack(sounds).tolist(), checks, strict=True):
        if not sound:
            yield said


def finite(name: str, value: Tensor) -> Check:
    """Check that a tensor of any shape has no NaN and no infinite entries, for :func:`require`."""
    sound = torch.isfinite(value.detach()).all()
    return sound, lambda: f"{name} must be finite, but has NaN or infinite entries"


def power(x: Tensor, exponent: float) -> Tensor:
    """Return x**exponent of the positive part of x, with gradient 0 instead of infinity at 0."""
    positive = ~(x <= 0)  # not `x > 0`, so that NaN stays NaN
    return torch.where(positive, torch.where(positive, x, 1.0).pow(exponent), 0.0)


def check_tensor(name: str, value: object, location: Tensor | None = None) -> Tensor:
    """Require a finite floating-point tensor, and return it."""
    tensor = check_kind(name, value, location)
    require(finite(name, tensor))
    return tensor


def check_kind(name: str, value: object, location: Tensor | None = None) -> Tensor:
    """Require a floating-point tensor with the dtype and device of `location`; its values are not read."""
    if not isinstance(value, torch.Tensor):
        raise ValueError(f"{name} must be a torch tensor, got {type(value).__name__}")
    if not value.is_floating_point():
        raise ValueError(f"{name} must have a floating-point dtype, got {value.dtype}")
    if location is not None and value.dtype != location.dtype:
        raise ValueError(f"{name} has dtype {value.dtype}, the location {location.dtype}; make them one")
    if location is not None and value.device != location.device:
        raise ValueError(f"{name} is on {value.device}, the location on {location.device}; make them one")
    return value


def check_location(name: str, value: object) -> Tensor:
    """Require a location with a batch dimension; its values are not read."""
    location = check_kind(name, value)
    shape = location.shape
    if len(shape) < 2:
        raise ValueError(f"{name} must have a batch dimension first, shape (B, *event), got {tuple(shape)}")
    if shape[0] < 1:
        raise ValueError(f"a batch has one law or more, {name} has shape {tuple(shape)}")
    return location


def check_shape(name: str, value: Tensor, shape: Sequence[int]) -> None:
    """Require a tensor of exactly this shape, without broadcasting."""
    if tuple(value.shape) != tuple(shape):
        raise ValueError(f"{name} must have shape {tuple(shape)}, got {tuple(value.shape)}")


def check_pair(name: str, value: object, scale_name: str, scale_value: object) -> None:
    """Require a finite location and a scale of the same shape that is finite and not negative."""
    location = check_location(name, value)
    scale = check_kind(scale_name, scale_value, location).detach()
    check_shape(scale_name, scale, location.shape)
    require(
        finite(name, location),
        finite(scale_name, scale),
        (
            (scale >= 0).all(),
            lambda: f"{scale_name} must be >= 0, smallest entry is {scale.min().item():.3g}",
        ),
    )


SUM = 1e-5
"""Tolerance for the sum of weights: float32 sums of a thousand are off by 1e-6."""


def check_weights(weights: Tensor) -> None:
    """Require weights (B, K) that are not negative and sum to one."""
    weights = weights.detach()
    if bool((weights < 0).any()):
        raise ValueError(f"weights must be >= 0, smallest entry is {weights.min().item():.3g}")
    if bool(((weights.sum(1) - 1).abs() > SUM).any()):
        raise ValueError(f"weights must sum to 1, a row's sum is {weights.sum(1)[0].item():.6g}")


def chosen_by(weights: Tensor) -> Callable[[Tensor], Tensor]:
    """Return the map from uniform numbers to indices with these probabilities (K,), on the CPU."""
    bounds = weights.detach().double().cumsum(0).cpu()
    bounds = bounds / bounds[-1]

    def choose(uniform: Tensor) -> Tensor:
        # `right` makes an index of weight 0 an empty interval, so it is never chosen
        which = torch.searchsorted(bounds, uniform.double().cpu().contiguous(), right=True)
        return which.clamp(max=len(bounds) - 1)

    return choose
