"""What a law is: a batch of distributions on one event shape, validated where a user builds it."""

from __future__ import annotations

import copy
import math
import operator
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, ClassVar, SupportsIndex, TypeVar

from sdp_ref.errors import UndefinedError
from sdp_ref.laws.standard import Standard

if TYPE_CHECKING:
    import torch
    from torch import Tensor
    from torch.distributions import Distribution

LawT = TypeVar("LawT", bound="Law")
Push = Callable[["Tensor"], "Tensor"]

_NOTES = "_notes"
_MOMENTS = ("mean", "variance", "covariance")


@dataclass(frozen=True, eq=False)
class Law:
    """What every family shares: a batch of laws on one event shape.

    What a law has not (a Cauchy law its mean) is asked of it like what it has, and refused by an
    :class:`~sdp_ref.UndefinedError` that names it; ``hasattr(law, "mean")`` tells.
    """

    joint: ClassVar[bool] = True
    """Whether it tells its components together, and not one by one."""
    negative: ClassVar[tuple[str, ...]] = ()
    """Of which of its parameters a negative value makes it no law."""

    if TYPE_CHECKING:  # properties here at run time would be taken for defaults of a subclass's fields

        @property
        def location(self) -> Tensor:
            """Centre of the law, shape (B, *event): its mean where it has one."""

        @property
        def mean(self) -> Tensor:
            """Shape (B, *event)."""

        @property
        def variance(self) -> Tensor:
            """Of each component, shape (B, *event)."""

        @property
        def covariance(self) -> Tensor:
            """Over the flattened event, shape (B, n, n)."""

    def __getattr__(self, name: str) -> Any:
        # Reached where nothing else answers: also where a property raised an UndefinedError of a part's.
        if name in _MOMENTS:
            raise UndefinedError(f"{self.described} has no {name}")
        raise AttributeError(f"'{type(self).__name__}' object has no attribute '{name}'")

    @property
    def notes(self) -> tuple[str, ...]:
        """Which approximations a rule took to predict it, beside what defines the rule; empty if none.

        They tell where a law is from and are no part of it: no field, and not looked at by anything else.
        """
        parts = (getattr(self, field.name) for field in fields(self))
        inner = (part.notes for part in parts if isinstance(part, Law))
        own: tuple[str, ...] = self.__dict__.get(_NOTES, ())
        return tuple(dict.fromkeys(note for notes in (own, *inner) for note in notes))

    @property
    def described(self) -> str:
        """In a message: ``a Cauchy law``."""
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
    def draws(self) -> float | None:
        """Of how many independent draws the law is made, whose noise it has; None if of none."""
        return None

    @property
    def standard(self) -> Standard | None:
        """Variates of which draws of the law are a map; None if they are not known to be one."""
        return None

    @property
    def variates(self) -> int:
        """How many of them make one draw."""
        return self.dimension

    def push(self, device: torch.device | str | None = None, dtype: torch.dtype | None = None) -> Push:  # noqa: ARG002
        """Map from standard variates, shape (rows, variates), to draws, shape (rows, n), of one law.

        Parameters
        ----------
        device, dtype
            Of the draws; the law's own if not given.

        Raises
        ------
        UndefinedError
            If the law is not known as such a map.
        """
        raise UndefinedError(f"{self.described} is not known as a map of standard variates")

    def sample(self, samples: int, generator: torch.Generator | None = None) -> Tensor:
        """Independent draws.

        Parameters
        ----------
        samples : int
            How many of each law.
        generator : torch.Generator, optional
            On the CPU; torch's own if not given.

        Raises
        ------
        UndefinedError
            If the law cannot be sampled.
        """
        import torch

        if self.standard is None or not self.joint:
            raise UndefinedError(f"{self.described} cannot be sampled")
        shape = samples, self.batch, self.standard.uniforms * self.variates
        # the middle of a cell of the grid on which they lie, so that no quantile is infinite
        uniform = torch.rand(shape, generator=generator, dtype=torch.float64) * (1 - 2.0**-53) + 2.0**-54
        noise = self.standard.from_uniform(uniform).to(self.location.device)
        rows = [self[row].push()(noise[:, row]) for row in range(self.batch)]
        drawn: Tensor = torch.stack(rows, 1).unflatten(2, self.event_shape)
        return drawn

    def log_prob(self, value: Tensor) -> Tensor:  # noqa: ARG002
        """Logarithm of the density, shape (..., B), float64.

        Parameters
        ----------
        value : Tensor, shape (..., B, *event)

        Raises
        ------
        UndefinedError
            If the law has no density, or none that is known.
        """
        raise UndefinedError(f"{self.described} has no known density")

    def survival(self, value: Tensor) -> Tensor:  # noqa: ARG002
        """Probability that each component is above a value, shape (..., B, *event), float64.

        Parameters
        ----------
        value : Tensor, shape (..., B, *event)
            One for each component.

        Raises
        ------
        UndefinedError
            If it is not known.
        """
        raise UndefinedError(f"{self.described} has no known probabilities of single outputs")

    def to_torch(self) -> Distribution:
        """The same law as torch has it, batch shape (B,) and event shape (n,), float64.

        Returns
        -------
        torch.distributions.Distribution
            Where torch has no such law, an :class:`~sdp_ref.UndefinedError` says so.
        """
        return self.as_torch(self.location.shape[:1])

    def as_torch(self, batch: torch.Size) -> Distribution:  # noqa: ARG002
        """See :meth:`to_torch`; the batch in another shape."""
        raise UndefinedError(f"torch.distributions has no such law as {self.described}")

    def unsound(self) -> str:
        """Why it is no law at all, which a rule may give: ``mean is not finite``; empty if it is one."""
        return next((said() for said in _failed(self.soundness())), "")

    def soundness(self, *, derived: bool = True) -> tuple[Check, ...]:
        """What has to hold of its parameters, each with what is to be said where it does not.

        Parameters
        ----------
        derived : bool
            Also of what follows from them: the variances in a covariance matrix.
        """
        import torch
        from torch import Tensor

        checks: list[Check] = []
        for field in fields(self):
            value = getattr(self, field.name)
            if isinstance(value, Law):
                checks += value.soundness(derived=derived)
            elif isinstance(value, Tensor):
                checks.append((torch.isfinite(value.detach()).all(), f"{field.name} is not finite".__str__))
        own = {field.name for field in fields(self)}
        for name in self.negative:
            if derived or name in own:
                value = getattr(self, name).detach()
                checks.append(((value >= 0).all(), f"{name} is negative".__str__))
        return tuple(checks)

    def __getitem__(self: LawT, index: SupportsIndex | slice) -> LawT:
        """Law or laws at `index`, still batched: ``x[0]`` has batch 1."""
        if not isinstance(index, slice):
            index = operator.index(index)
            if not -self.batch <= index < self.batch:  # also what ends a plain `for law in laws`
                raise IndexError(f"law {index} of a batch of {self.batch}")
            index %= self.batch
            index = slice(index, index + 1)
        elif not range(self.batch)[index]:
            raise ValueError(f"a batch has one law or more, the slice holds none of {self.batch}")
        return noted(self.rows(index), self.notes)

    def rows(self: LawT, index: slice) -> LawT:
        """Laws of a slice that holds some."""
        return unchecked(type(self), *(_row(getattr(self, f.name), index) for f in fields(self)))

    def to(self: LawT, *args: Any, **kwargs: Any) -> LawT:
        """Same law with every tensor moved or cast as by :meth:`torch.Tensor.to`."""
        from torch import Tensor

        moved = (getattr(self, f.name) for f in fields(self))
        law = unchecked(
            type(self), *(v.to(*args, **kwargs) if isinstance(v, Tensor | Law) else v for v in moved)
        )
        return noted(law, self.notes)

    @classmethod
    def join(cls: type[LawT], laws: Sequence[LawT]) -> LawT:
        """See :func:`joined`.

        Raises
        ------
        UndefinedError
            If they do not make one batch: all have one index, one shape of a component.
        """
        import torch
        from torch import Tensor

        def both(values: list[Any]) -> Any:
            if isinstance(values[0], Tensor):
                return torch.cat(values)
            if any(value != values[0] for value in values):
                described = " and ".join(sorted({law.described for law in laws}))
                raise UndefinedError(f"laws of different parameters do not make one batch: {described}")
            return values[0]

        values = ([getattr(law, f.name) for law in laws] for f in fields(laws[0]))
        return unchecked(type(laws[0]), *map(both, values))


def unchecked(family: type[LawT], *values: object) -> LawT:
    """Build a law of `family` from its fields without validating them (for results of rules)."""
    law = object.__new__(family)
    names: Any = family.__match_args__  # of its fields; torch.compile does not read `fields`
    for name, value in zip(names, values, strict=True):
        object.__setattr__(law, name, value)
    return law


def noted(law: LawT, notes: Sequence[str]) -> LawT:
    """Give a law :attr:`Law.notes`, beside those of its parts.

    Parameters
    ----------
    law : Law
        Left as it is.
    notes : sequence of str

    Returns
    -------
    Law
        The same where there is nothing to note.
    """
    if not notes:
        return law
    law = copy.copy(law)
    object.__setattr__(law, _NOTES, tuple(dict.fromkeys((*law.notes, *notes))))
    return law


def _row(value: Any, index: slice) -> Any:
    from torch import Tensor

    return value[index] if isinstance(value, Tensor) else value


_COMPILED = (
    "a law's parameters must be finite, and its scales and weights >= 0, its covariances symmetric and "
    "positive semi-definite"
)
Check = tuple["Tensor", Callable[[], str]]
"""Whether values are sound, a truth value of no dimension where they are, and what else to say of them."""


def require(*checks: Check) -> None:
    """Refuse values that are not sound, in the order of the checks; a device is waited for once for all."""
    import torch

    if torch.compiler.is_compiling():
        for sound, _ in checks:
            torch._assert_async(sound, _COMPILED)
        return
    for said in _failed(checks):
        raise ValueError(said())


def _failed(checks: Sequence[Check]) -> Iterator[Callable[[], str]]:
    """What is to be said of checks that fail, in their order; a device is waited for once for all."""
    import torch

    sounds = [sound for sound, _ in checks]
    on_host = all(sound.device.type == "cpu" for sound in sounds)
    for sound, (_, said) in zip(sounds if on_host else torch.stack(sounds).tolist(), checks, strict=True):
        if not sound:
            yield said


def finite(name: str, value: Tensor) -> Check:
    """That a value has neither NaN nor infinite entries."""
    import torch

    sound = torch.isfinite(value.detach()).all()
    return sound, lambda: f"{name} must be finite, but has NaN or infinite entries"


def check_tensor(name: str, value: object, location: Tensor | None = None) -> Tensor:
    """Give back a field of a law that is a finite floating-point tensor."""
    tensor = check_kind(name, value, location)
    require(finite(name, tensor))
    return tensor


def check_kind(name: str, value: object, location: Tensor | None = None) -> Tensor:
    """As :func:`check_tensor`, without a look at the values."""
    from torch import Tensor

    if not isinstance(value, Tensor):
        raise ValueError(f"{name} must be a torch tensor, got {type(value).__name__}")
    if not value.is_floating_point():
        raise ValueError(f"{name} must have a floating-point dtype, got {value.dtype}")
    if location is not None and value.dtype != location.dtype:
        raise ValueError(f"{name} has dtype {value.dtype}, the location {location.dtype}; make them one")
    if location is not None and value.device != location.device:
        raise ValueError(f"{name} is on {value.device}, the location on {location.device}; make them one")
    return value


def check_location(name: str, value: object) -> Tensor:
    """Give back a location that has a batch dimension, without a look at the values."""
    location = check_kind(name, value)
    shape = location.shape
    if len(shape) < 2:
        raise ValueError(f"{name} must have a batch dimension first, shape (B, *event), got {tuple(shape)}")
    if shape[0] < 1:
        raise ValueError(f"a batch has one law or more, {name} has shape {tuple(shape)}")
    return location


def check_pair(name: str, value: object, scale_name: str, scale_value: object) -> None:
    """Refuse a location and scales of independent components that are not finite, do not fit or are negative."""
    location = check_location(name, value)
    scale = check_kind(scale_name, scale_value, location).detach()
    if scale.shape != location.shape:
        raise ValueError(
            f"{scale_name} must have the location's shape {tuple(location.shape)}, got {tuple(scale.shape)}"
        )
    require(
        finite(name, location),
        finite(scale_name, scale),
        (
            (scale >= 0).all(),
            lambda: f"{scale_name} must be >= 0, smallest entry is {scale.min().item():.3g}",
        ),
    )
