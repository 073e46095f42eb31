"""Mixtures of laws, and laws of piecewise affine functions of standard normal variates."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

from sdp_ref.errors import UndefinedError
from sdp_ref.laws.base import (
    NORMAL,
    SUM,
    UNIFORM,
    Check,
    Law,
    LawT,
    Push,
    Standard,
    check_tensor,
    check_weights,
    chosen_by,
    noted,
    unchecked,
)
from sdp_ref.laws.gaussian import DiagonalGaussian, Gaussian
from sdp_ref.lazy import torch

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from torch import Tensor
    from torch.distributions import Distribution

    Array = NDArray[np.float64]
    Indices = NDArray[np.intp]

_VALUES = 2**24  # numbers in memory at once while a density is computed: 128 MB


@dataclass(frozen=True, eq=False)
class Mixture(Law):
    """Mixtures of K laws each; :meth:`of` builds them from a list of laws.

    Parameters
    ----------
    weights : Tensor, shape (B, K)
        Probabilities of the components; every row sums to one.
    components : Law, batch B K
        Row b K + j is component j of mixture b.
    """

    weights: Tensor
    components: Law

    def __post_init__(self) -> None:
        if not isinstance(self.components, Law):
            raise ValueError(
                f"components must be one law that holds them all (or use Mixture.of), got "
                f"{type(self.components).__name__}"
            )
        shape = check_tensor("weights", self.weights, self.components.location).shape
        if len(shape) != 2 or not shape[1] or shape[0] * shape[1] != self.components.batch:
            raise ValueError(
                f"weights must have shape (B, K) with B K the {self.components.batch} components, "
                f"got {tuple(shape)}"
            )
        if isinstance(self.components, Mixture):
            raise ValueError("components of a mixture are not mixtures themselves: multiply the weights out")
        check_weights(self.weights)

    @classmethod
    def of(cls, weights: Tensor, components: Sequence[Law]) -> Mixture:
        """Build mixtures from K component laws of batch B each and weights of shape (B, K).

        The components must be of one family, except that full and diagonal Gaussians can be combined.
        """
        laws = list(components)
        if not laws or not all(isinstance(law, Law) for law in laws):
            raise ValueError("components must be one law or more")
        if len({law.location.shape for law in laws}) > 1:
            shapes = " and ".join(str(tuple(law.location.shape)) for law in laws)
            raise ValueError(f"components have one shape, got {shapes}")
        rows = joined([law[b] for b in range(laws[0].batch) for law in laws])
        return cls(torch.as_tensor(weights), rows)

    @property
    def described(self) -> str:
        return f"a mixture with {self.components.described} in it"

    @property
    def pieces(self) -> int:
        """Number of components, K."""
        return self.weights.shape[1]

    @property
    def location(self) -> Tensor:
        """Weighted mean of the components' locations, shape (B, *event)."""
        return self._average(self.components.location)

    @property
    def mean(self) -> Tensor:
        return self._average(self.components.mean)

    @property
    def variance(self) -> Tensor:
        within, centred = self._average(self.components.variance), self._centred()
        between = self._average(centred.square().flatten(0, 1))
        return (within + between).to(self.weights.dtype)

    @property
    def covariance(self) -> Tensor:
        within, centred = self._average(self.components.covariance), self._centred().flatten(2)
        between = (centred * self.weights.double().unsqueeze(2)).mT @ centred
        return (within + between).to(self.weights.dtype)

    @property
    def joint(self) -> bool:  # type: ignore[override]
        return self.components.joint

    @property
    def standard(self) -> Standard | None:
        return UNIFORM if self.components.standard is not None else None

    @property
    def variates(self) -> int:
        """One to select the component, plus those of the component."""
        inner = self.components.standard
        return 1 + self.components.variates * (inner.uniforms if inner else 1)

    def push(self, device: torch.device | str | None = None, dtype: torch.dtype | None = None) -> Push:
        inner = self.components.standard
        if inner is None:
            raise UndefinedError(f"{self.described} is not known as a map of standard variates")
        choose = chosen_by(self.weights[0])
        pushes = [self.components[j].push(device, dtype) for j in range(self.pieces)]

        def draws(uniform: Tensor) -> Tensor:
            uniform = uniform.double().cpu()
            which = choose(uniform[:, 0])
            noise = inner.from_uniform(uniform[:, 1:])
            # sort the samples by component and map each component's samples in one call
            order = which.argsort()
            counts = which.bincount(minlength=self.pieces)
            parts = noise[order].split(counts.tolist())
            drawn = torch.cat([push(part) for push, part in zip(pushes, parts, strict=True) if len(part)])
            back = torch.empty_like(drawn)
            back[order.to(drawn.device)] = drawn
            return back

        return draws

    def sample(self, samples: int, generator: torch.Generator | None = None) -> Tensor:
        if self.standard is not None:
            return super().sample(samples, generator)
        which = torch.multinomial(
            self.weights.double().cpu(), samples, replacement=True, generator=generator
        ).T
        drawn = self.components.sample(samples, generator).unflatten(1, (self.batch, self.pieces))
        rows = torch.arange(samples).unsqueeze(1), torch.arange(self.batch), which
        return drawn[rows]

    def log_prob(self, value: Tensor) -> Tensor:
        event, values = self.event_shape, self.at_rows(value)
        flat = values.reshape(-1, self.batch, *event)
        weights = self.weights.double().log()
        rows = max(1, _VALUES // (self.weights.numel() * max(1, self.dimension)))
        parts = []
        for points in flat.split(rows):
            densities = self.components.log_prob(points.repeat_interleave(self.pieces, 1))
            parts.append((densities.unflatten(1, weights.shape) + weights).logsumexp(2))
        return torch.cat(parts).reshape(values.shape[: values.ndim - len(event)])

    def survival(self, value: Tensor) -> Tensor:
        event, values = self.event_shape, self.at_rows(value)
        points = values.reshape(-1, self.batch, *event)
        of_components = self.components.survival(points.repeat_interleave(self.pieces, 1))
        weights = self.weights.double().reshape(self.weights.shape + (1,) * len(event))
        mixed: Tensor = (of_components.unflatten(1, self.weights.shape) * weights).sum(2)
        return mixed.reshape(values.shape)

    def class_probabilities(self) -> tuple[Tensor, Tensor]:
        of_components, errors = self.components.class_probabilities()
        weights = self.weights.detach().double().cpu()
        mixed = (of_components.unflatten(0, weights.shape) * weights.unsqueeze(2)).sum(1)
        return mixed, (errors.unflatten(0, weights.shape) * weights).sum(1)

    def as_torch(self, batch: torch.Size) -> Distribution:
        shape = torch.Size((*batch, self.pieces))
        weights = torch.distributions.Categorical(self.weights.double().reshape(shape))
        return torch.distributions.MixtureSameFamily(weights, self.components.as_torch(shape))

    def soundness(self, *, derived: bool = True) -> tuple[Check, ...]:
        weights = self.weights.detach().double()
        sound = (weights >= 0).all() & ((weights.sum(1) - 1).abs() <= SUM).all()
        reason = "weights are not those of a mixture (>= 0, sum 1)".__str__
        return (sound, reason), *super().soundness(derived=derived)

    def rows(self, index: slice) -> Mixture:
        chosen = [
            self.components.rows(slice(b * self.pieces, (b + 1) * self.pieces))
            for b in range(self.batch)[index]
        ]
        return unchecked(Mixture, self.weights[index], joined(chosen))

    @classmethod
    def join(cls: type[LawT], laws: Sequence[LawT]) -> LawT:
        """Concatenate mixtures; those with fewer components repeat their last one with weight 0."""
        mixtures = [law for law in laws if isinstance(law, Mixture)]
        most = max(law.pieces for law in mixtures)
        weights, components = [], []
        for law in mixtures:
            missing = most - law.pieces
            weights.append(torch.nn.functional.pad(law.weights, (0, missing)))
            for b in range(law.batch):
                of_law = law.components.rows(slice(b * law.pieces, (b + 1) * law.pieces))
                components.append(of_law)
                components += [of_law[-1]] * missing
        return unchecked(cls, torch.cat(weights), joined(components))

    def _split(self, values: Tensor) -> Tensor:
        return values.unflatten(0, self.weights.shape)

    def _average(self, values: Tensor) -> Tensor:
        weights = self.weights.reshape(self.weights.shape + (1,) * (values.ndim - 1))
        # a component of weight 0 may have moments that are not finite
        average: Tensor = (weights * torch.where(weights > 0, self._split(values), 0.0)).sum(1)
        return average

    def _centred(self) -> Tensor:
        """Means of the components with weight minus the mean, (B, K, *event), float64; 0 without weight."""
        means = self.components.mean.double()
        centred = self._split(means) - self._average(means).unsqueeze(1)
        weights = self.weights.reshape(self.weights.shape + (1,) * (means.ndim - 1))
        return torch.where(weights > 0, centred, 0.0)


def joined(laws: Sequence[LawT]) -> LawT:
    """Concatenate laws of one event shape along the batch.

    They must be of one family, with two exceptions: full and diagonal Gaussians can be combined, and a law
    can be combined with mixtures of its family, as a mixture with one component. Anything else raises
    :class:`~sdp_ref.UndefinedError`.
    """
    alike = laws
    if len({type(law) for law in laws}) != 1:
        alike = cast("list[LawT]", of_one_family(laws))
    return noted(type(alike[0]).join(alike), [note for law in laws for note in law.notes])


def of_one_family(laws: Sequence[Law]) -> list[Law]:
    """Convert the laws to one family: full-covariance Gaussians, or mixtures."""
    families = {type(law) for law in laws}
    if families == {Gaussian, DiagonalGaussian}:
        return [unchecked(Gaussian, law.location, law.covariance) for law in laws]
    if Mixture in families:
        return [
            law if isinstance(law, Mixture) else unchecked(Mixture, law.location.new_ones(law.batch, 1), law)
            for law in laws
        ]
    described = " and ".join(sorted({law.described for law in laws}))
    raise UndefinedError(f"laws of different families do not make one batch: {described}")


@dataclass(frozen=True, eq=False)
class Pieces:
    """A function of n standard normal variates z, affine on each of K regions of a binary space partition.

    Attributes
    ----------
    planes : ndarray, shape (K - 1, n + 1)
        Unit normals a and offsets b of the cuts: z is below a cut if a z + b < 0.
    below, above : ndarray of int, shape (K - 1,)
        Index of the next cut on each side, or ~k for region k. The first cut is the root.
    maps : ndarray, shape (K, m, n + 1)
        Matrix and constant of the affine function on each region.
    weights : ndarray, shape (K,)
        Probabilities of the regions.
    """

    planes: Array
    below: Indices
    above: Indices
    maps: Array
    weights: Array

    def regions(self, points: Array) -> Indices:
        """Return the index of the region of each point; `points` has shape (rows, n)."""
        import numpy as np

        at = np.full(len(points), 0 if len(self.planes) else ~0)
        open_rows = np.flatnonzero(at >= 0)
        while len(open_rows):
            cut = at[open_rows]
            plane, open_points = self.planes[cut], points[open_rows]
            side = np.einsum("rn,rn->r", plane[:, :-1], open_points) + plane[:, -1] < 0
            following = np.where(side, self.below[cut], self.above[cut])
            at[open_rows] = following
            open_rows = open_rows[following >= 0]
        return ~at

    def __call__(self, points: Array) -> Array:
        """Evaluate the function at points of shape (rows, n), shape (rows, m)."""
        import numpy as np

        regions = self.regions(points)
        order = np.argsort(regions, kind="stable")
        values = np.empty((len(points), self.maps.shape[1]))
        starts = np.flatnonzero(np.diff(regions[order], prepend=-1))
        for rows in np.split(order, starts[1:]) if len(order) else ():
            affine_map = self.maps[regions[rows[0]]]
            values[rows] = points[rows] @ affine_map[:, :-1].T + affine_map[:, -1]
        return values


@dataclass(frozen=True, eq=False)
class PiecewiseGaussian(Law):
    """Laws of g(Z) for a standard normal Z and a function g that is affine on each of several polytopes.

    They are mixtures of affine images of truncated Gaussians. Rules create them; samples are g at normal
    samples.

    Parameters
    ----------
    mean : Tensor, shape (B, *event)
    covariance : Tensor, shape (B, n, n)
        Over the flattened event.
    missing : Tensor, shape (B,)
        Upper bound of the probability that g differs from the function f that it stands for.
    mean_bound, covariance_bound : Tensor, shape (B,)
        Bounds of the distance in norm from the mean and covariance of f(Z), if f is nowhere steeper than g.
    pieces : tuple of B Pieces
        The functions, with the probabilities of their regions.
    """

    mean: Tensor
    covariance: Tensor
    missing: Tensor
    mean_bound: Tensor
    covariance_bound: Tensor
    pieces: tuple[Pieces, ...]
    batched = ("pieces",)

    @property
    def described(self) -> str:
        return "a law of a piecewise affine function"

    @property
    def variance(self) -> Tensor:
        return self.covariance.diagonal(dim1=-2, dim2=-1).reshape(self.mean.shape)

    @property
    def counts(self) -> tuple[int, ...]:
        """Number of regions of each law."""
        return tuple(len(mixture_pieces.weights) for mixture_pieces in self.pieces)

    @property
    def standard(self) -> Standard:
        return NORMAL

    @property
    def variates(self) -> int:
        """Rank of the input covariance."""
        return max(int(mixture_pieces.maps.shape[2]) - 1 for mixture_pieces in self.pieces)

    def push(self, device: torch.device | str | None = None, dtype: torch.dtype | None = None) -> Push:
        pieces = self.pieces[0]
        target = self.mean.device if device is None else device
        kind = self.mean.dtype if dtype is None else dtype

        def draws(noise: Tensor) -> Tensor:
            points = noise.detach().double().cpu().numpy()[:, : pieces.maps.shape[2] - 1]
            return torch.from_numpy(pieces(points)).to(target, kind)

        return draws
