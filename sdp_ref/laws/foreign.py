"""Adapters for ``torch.distributions`` and for objects that can be sampled."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sdp_ref.errors import UndefinedError
from sdp_ref.laws.base import UNIFORM, Law, Push, Standard, unchecked
from sdp_ref.laws.gaussian import DiagonalGaussian, Gaussian
from sdp_ref.laws.location_scale import Cauchy, LocationScale, Shape
from sdp_ref.laws.mixture import Mixture
from sdp_ref.lazy import torch

if TYPE_CHECKING:
    from torch import Tensor
    from torch.distributions import Distribution

_PEEK = 1024  # number of samples that estimate the median of a law without a mean


def law_of(given: object) -> Law:
    """Convert a distribution to a law.

    `given` may be a law, which is returned as it is; a ``torch.distributions`` object of batch shape (B,)
    with an event of at least one dimension; or an object whose ``sample(samples, generator)`` returns samples
    of shape (samples, B, *event). If such an object has ``mean``, ``variance``, ``covariance`` or
    ``log_prob``, they are used. The result is a family of this package if one matches. Anything else raises a
    ValueError.
    """
    if isinstance(given, Law):
        return given
    if isinstance(given, torch.distributions.Distribution):
        if len(given.batch_shape) != 1 or not given.event_shape:
            raise ValueError(
                f"a torch distribution must have batch shape (B,) and event shape (m,), got "
                f"{tuple(given.batch_shape)} and {tuple(given.event_shape)}; "
                "torch.distributions.Independent(..., 1) makes the last dimension of a batch one of the event"
            )
        return _known(given) or TorchLaw(given)
    if callable(getattr(given, "sample", None)):
        return SampledLaw(given)
    raise ValueError(
        f"not a law: {type(given).__name__}; a law is one of sdp_ref.laws, a torch distribution "
        "or an object with sample(samples, generator)"
    )


def _known(given: Distribution) -> Law | None:
    """Return the matching law of this package, if there is one.

    `given` has a batch shape of at least one dimension, (B,) or (B, K) for the components of a mixture. The
    law has one row for each of their combinations.
    """
    distributions = torch.distributions
    match given:
        case distributions.MultivariateNormal() | distributions.LowRankMultivariateNormal():
            covariance = given.covariance_matrix.flatten(0, -3)
            _require_stored(covariance.diagonal(dim1=-2, dim2=-1))
            return unchecked(Gaussian, given.mean.flatten(0, -2), covariance)
        case distributions.Independent(base_dist=base) if (
            # the event consists of batch dimensions of the base, so its components are independent
            given.event_shape == base.batch_shape[-len(given.event_shape) :]
        ):
            return _independent(base, given.event_shape)
        case distributions.MixtureSameFamily(component_distribution=parts) if (
            # a Mixture cannot have mixtures as components
            len(given.event_shape) and not isinstance(parts, distributions.MixtureSameFamily)
        ):
            components = _known(parts)
            weights = given.mixture_distribution.probs
            return None if components is None else Mixture(weights.to(components.location.dtype), components)
    return None


def _independent(base: Distribution, event: torch.Size) -> Law | None:
    distributions = torch.distributions

    def fields(*values: Tensor) -> list[Tensor]:
        return [value.expand(base.batch_shape).reshape(-1, *event) for value in values]

    match base:
        case distributions.Normal():
            _require_stored(base.scale.square())
            return unchecked(DiagonalGaussian, *fields(base.loc, base.scale.square()))
        case distributions.Cauchy():
            return unchecked(Cauchy, *fields(base.loc, base.scale))
        case distributions.Laplace():
            _require_stored(base.scale.square())
            return unchecked(LocationScale, *fields(base.loc, base.scale), Shape("laplace"))
        case distributions.Uniform():
            centre, half = (base.high + base.low) / 2, (base.high - base.low) / 2
            _require_stored(half.square())
            return unchecked(LocationScale, *fields(centre, half), Shape("uniform"))
        case distributions.StudentT() if bool((base.df == base.df.flatten()[0]).all()):
            _require_stored(base.scale.square())
            shape = Shape("student_t", float(base.df.flatten()[0]))
            return unchecked(LocationScale, *fields(base.loc, base.scale), shape)
    return None


def _require_stored(variance: Tensor) -> None:
    """Require variances that their dtype stores with all digits; those of torch's laws are positive."""
    if bool((variance < torch.finfo(variance.dtype).tiny).any()):
        raise ValueError(
            f"the distribution has variances too small for {variance.dtype}; use float64 parameters"
        )


@dataclass(frozen=True, eq=False)
class ForeignLaw(Law):
    """Base of the adapters, which evaluate the whole batch of an object and select rows of the result.

    `centre` (B, *event) is the mean of the object `given`, or the median of some samples if it has none, with
    the dtype and device of the samples. `chosen` are the selected rows of its batch of size `whole`.
    """

    given: Any
    centre: Tensor
    chosen: tuple[int, ...]
    whole: int

    @property
    def location(self) -> Tensor:
        return self.centre

    @property
    def described(self) -> str:
        return f"a law given as a {type(self.given).__name__}"

    @property
    def mean(self) -> Tensor:
        return self._stated_moment("mean")

    @property
    def variance(self) -> Tensor:
        return self._stated_moment("variance")

    def log_prob(self, value: Tensor) -> Tensor:
        if not hasattr(self.given, "log_prob"):
            raise UndefinedError(f"{self.described} has no density")
        try:
            return self._at_chosen_rows(self._density, value, 0).double()
        except NotImplementedError:
            raise UndefinedError(f"{self.described} has no density") from None

    def sample(self, samples: int, generator: torch.Generator | None = None) -> Tensor:
        return self._drawn(samples, generator)[:, list(self.chosen)].to(self.centre)

    def rows(self, index: slice) -> Any:
        return unchecked(type(self), self.given, self.centre[index], self.chosen[index], self.whole)

    @classmethod
    def join(cls, laws: Any) -> Any:
        """Concatenate rows of one wrapped object."""
        if any(law.given is not laws[0].given for law in laws):
            raise UndefinedError(f"{laws[0].described} cannot be joined with others to one batch")
        chosen = tuple(row for law in laws for row in law.chosen)
        return unchecked(cls, laws[0].given, torch.cat([law.centre for law in laws]), chosen, laws[0].whole)

    def _at_chosen_rows(self, function: Callable[[Tensor], Tensor], value: Tensor, trailing: int) -> Tensor:
        """Evaluate a function of the whole batch, (..., whole, *event), at values of the chosen rows."""
        event = self.event_shape
        lead = value.shape[: value.ndim - len(event) - 1]
        values = value.to(self.centre).expand(*lead, self.batch, *event).movedim(len(lead), 0)
        waiting = list(range(self.batch))
        results: dict[int, Tensor] = {}
        while (
            waiting
        ):  # a row may be chosen several times: evaluate as many distinct rows as possible at once
            law_of_row = {self.chosen[law]: law for law in reversed(waiting)}
            # rows that are not evaluated get any valid values
            laws = [law_of_row.get(row, waiting[0]) for row in range(self.whole)]
            output = function(values[laws].movedim(0, len(lead)))
            for row, law in law_of_row.items():
                results[law] = output.select(output.ndim - trailing - 1, row)
            waiting = [law for law in waiting if law not in results]
        return torch.stack([results[law] for law in range(self.batch)], len(lead))

    def _density(self, rows: Tensor) -> Tensor:
        return self.given.log_prob(rows)

    def _drawn(self, samples: int, generator: torch.Generator | None) -> Tensor:
        raise NotImplementedError

    def _stated_moment(self, name: str) -> Tensor:
        try:
            moment = getattr(self.given, name, None)
        except NotImplementedError:
            moment = None
        if moment is None:
            raise UndefinedError(f"{self.described} has no {name}")
        value = torch.as_tensor(moment() if callable(moment) else moment)[list(self.chosen)].to(self.centre)
        if not bool(torch.isfinite(value).all()):
            raise UndefinedError(f"{self.described} has no finite {name}")
        return value


class TorchLaw(ForeignLaw):
    """A ``torch.distributions`` object of batch shape (B,) that has no equivalent in this package."""

    def __init__(self, distribution: Distribution) -> None:
        try:
            centre = distribution.mean.detach()
            finite = bool(centre.isfinite().all())
        except NotImplementedError:
            finite = False
        if not finite:
            centre = _seeded(distribution, _PEEK, None).median(0).values
        super().__init__(distribution, centre, tuple(range(len(centre))), len(centre))

    @property
    def covariance(self) -> Tensor:
        """The covariance that torch gives, or the diagonal one of independent components."""
        if hasattr(self.given, "covariance_matrix"):
            return self._stated_moment("covariance_matrix")
        if isinstance(self.given, torch.distributions.Independent) and not self.given.base_dist.event_shape:
            return torch.diag_embed(self.variance.flatten(1))
        if self.dimension == 1:
            return self.variance.reshape(-1, 1, 1)
        raise UndefinedError(f"{self.described} has no covariance")

    @property
    def standard(self) -> Standard | None:
        """Uniform if torch has the quantile functions of independent components."""
        if not isinstance(self.given, torch.distributions.Independent) or self.given.base_dist.event_shape:
            return None
        try:
            self.given.base_dist.icdf(torch.tensor(0.5, dtype=self.centre.dtype))
        except NotImplementedError:
            return None
        return UNIFORM

    def push(self, device: torch.device | str | None = None, dtype: torch.dtype | None = None) -> Push:
        if self.standard is None:
            return super().push(device, dtype)
        (row,), base = self.chosen, _placed(self.given, "cpu").base_dist  # the variates are on the CPU
        like = self.centre[:1].flatten(1).to(device, dtype)

        def draws(uniform: Tensor) -> Tensor:
            inner = uniform.double().unflatten(1, self.event_shape).unsqueeze(1)
            return base.icdf(inner)[:, row].flatten(1).to(like)

        return draws

    def survival(self, value: Tensor) -> Tensor:
        """Defined for independent components whose distribution function torch has."""
        given = self._here
        if not isinstance(given, torch.distributions.Independent) or given.base_dist.event_shape:
            return super().survival(value)
        try:
            below = self._at_chosen_rows(given.base_dist.cdf, value, len(self.event_shape))
        except (NotImplementedError, ValueError):  # ValueError: a value outside the support
            return super().survival(value)
        # the same without torch's validation, which torch disables after its first compilation
        if below.isnan().any():
            return super().survival(value)
        return 1 - below.double()

    def _density(self, rows: Tensor) -> Tensor:
        """Return the density, which is 0 outside the support, where torch raises."""
        given: Any = self._here
        inside = given.support.check(rows)
        some = _seeded(given, 1, torch.Generator().manual_seed(0))[0].to(rows.device)
        kept = inside.reshape(inside.shape + (1,) * len(self.event_shape))
        density: Tensor = given.log_prob(torch.where(kept, rows, some))
        return torch.where(inside, density, -torch.inf)

    def _drawn(self, samples: int, generator: torch.Generator | None) -> Tensor:
        return _seeded(self.given, samples, generator)

    def as_torch(self, batch: torch.Size) -> Distribution:
        if self.chosen != tuple(range(self.whole)) or batch != self.given.batch_shape:
            raise UndefinedError(f"{self.described} is a part of a batch, which torch cannot take out of it")
        return self._here

    @property
    def _here(self) -> Distribution:
        """The distribution on the device of the law."""
        return _placed(self.given, self.centre.device)


class SampledLaw(ForeignLaw):
    """An object with ``sample(samples, generator)``; see :func:`law_of`."""

    def __init__(self, given: Any) -> None:
        centre = _checked_draws(given, _PEEK, torch.Generator().manual_seed(0)).median(0).values
        super().__init__(given, centre, tuple(range(len(centre))), len(centre))

    @property
    def covariance(self) -> Tensor:
        return self._stated_moment("covariance")

    def _density(self, rows: Tensor) -> Tensor:
        """Evaluate the density on the device of the samples, since the wrapped object cannot be moved."""
        home = _checked_draws(self.given, 1, torch.Generator().manual_seed(0)).device
        return super()._density(rows.to(home)).to(rows.device)

    def _drawn(self, samples: int, generator: torch.Generator | None) -> Tensor:
        return _checked_draws(self.given, samples, generator)


def _checked_draws(given: Any, samples: int, generator: torch.Generator | None) -> Tensor:
    """Draw samples from a user's object, and check their shape and dtype."""
    kind = type(given).__name__
    draws = given.sample(samples, generator)
    if not isinstance(draws, torch.Tensor) or not draws.is_floating_point():
        raise ValueError(f"sample of a {kind} gives no floating-point tensor but a {type(draws).__name__}")
    if draws.ndim < 3 or len(draws) != samples or not draws.shape[1]:
        raise ValueError(
            f"sample({samples}, generator) of a {kind} must have shape ({samples}, B, *event), "
            f"got {tuple(draws.shape)}"
        )
    if not bool(torch.isfinite(draws).all()):
        raise ValueError(f"a {kind} returns samples that are not finite")
    return draws.detach()


def _seeded(distribution: Distribution, samples: int, generator: torch.Generator | None) -> Tensor:
    """Sample with torch's global generator, which is seeded from `generator` and restored afterwards."""
    # All laws are sampled on the CPU, so that samples do not depend on the device.
    distribution = _placed(distribution, "cpu")
    if generator is None:
        return distribution.sample(torch.Size((samples,)))
    seed = int(torch.randint(2**62, (), generator=generator))
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return distribution.sample(torch.Size((samples,)))


def _placed(given: Distribution, device: torch.device | str) -> Any:
    """Return a copy of a torch distribution on a device (they have no ``to``), or itself if it is there."""
    done: dict[int, tuple[Any, Any]] = {}
    placed = _copied(given, device, done)
    moved = any(isinstance(part, torch.Tensor) and part is not copied for part, copied in done.values())
    return placed if moved else given


def _copied(part: Any, device: torch.device | str, done: dict[int, tuple[Any, Any]]) -> Any:
    """Copy a part of a distribution to a device; `done` maps the id of each part to the part and its copy."""
    if id(part) in done:  # a transform and its inverse refer to each other
        return done[id(part)][1]
    if isinstance(part, list | tuple):
        return type(part)([_copied(element, device, done) for element in part])
    if isinstance(part, torch.Tensor):
        done[id(part)] = part, part.to(device)
    elif isinstance(part, torch.distributions.Distribution | torch.distributions.Transform):
        copied = object.__new__(type(part))  # copy.copy drops a transform's reference to its inverse
        done[id(part)] = part, copied
        for name, attribute in vars(part).items():
            vars(copied)[name] = _copied(attribute, device, done)
    else:
        return part
    return done[id(part)][1]
