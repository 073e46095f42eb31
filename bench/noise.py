"""Families of input noise, and their text form on the command line."""

from __future__ import annotations

import base64
import functools
import io
import math
import re
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sdp_ref import laws
from sdp_ref.laws import Law
from sdp_ref.registry import spelled

from . import identity
from .errors import UserError
from .files import is_csv, read_array
from .text import printable

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Array = NDArray[np.float64]
    from torch import Tensor


_FAMILIES = {
    "gaussian": ("gaussian", "Gaussian"),
    "laplace": ("laplace", "Laplace"),
    "uniform": ("uniform or uniform:0.5/1/2 (half-widths; or FILE)", "uniform {}"),
    "triangular": ("triangular or triangular:0.5/1/2 (half-widths; or FILE)", "triangular {}"),
    "split_normal": ("split_normal:+0.2-0.1 or FILE", "split normal {}"),
    "student_t": ("student_t:DF", "Student t({})"),
    "cauchy": ("cauchy", "Cauchy"),
    "stable": ("stable:ALPHA", "{}-stable"),
    "mixture": ("mixture:0.9*1+0.1*5", "mixture {}"),
    "scales": ("scales:1/0.5/2 or FILE", "scaled Gaussian {}"),
    "covariance": ("covariance:FILE", "correlated Gaussian {}"),
    "residuals": ("residuals:FILE", "residual {}"),
}
"""The form in which users write a family, and its display name."""
FORMS = tuple(form for form, _ in _FAMILIES.values())
"""The forms in which users write noise; FILE is a .npy or .csv file."""

_DIGEST = re.compile(r"[0-9a-f]{16}")
_WHOLE = re.compile(r"\.0(?![0-9])")


def name_of(family: str) -> str:
    """Return the display name of a family: ``Student t(5)`` for ``student_t:df=5.0``."""
    kind, _, rest = family.partition(":")
    value = rest.rpartition("=")[2]
    if _DIGEST.fullmatch(value):
        value = value[:8]
    value = _WHOLE.sub("", value)
    _, name = _FAMILIES.get(kind, ("", family))
    return name.format(value).strip()


def parameter_of(family: str) -> str:
    """Return the name of the scale: ``sigma``, or ``gamma`` if the family has no variance."""
    kind, _, rest = family.partition(":")
    heavy = kind in ("cauchy", "stable") or (
        kind == "student_t" and float(rest.removeprefix("df=")) <= _LIGHT
    )
    return "gamma" if heavy else "sigma"


_LIGHT = 2.0
"""Degrees of freedom above which Student's t has a variance."""


@dataclass(frozen=True)
class Noise:
    """A family of laws around an input, with one scale for all components.

    Two families are equal if their prefixes are: the prefix identifies the laws, including contents of files.

    `prefix`: prefix of the label that identifies oracles. `make`: returns the law with these locations, shape
    (B, *event), and this scale. `text`: the family as a user writes it, without folders:
    ``covariance:c.npy``. `values`: contents of its file, float64. `event`: shape of the inputs that it fits.
    One number fits all shapes with that many components; None fits all.
    """

    prefix: str
    make: Callable[[Tensor, float], Law] = field(compare=False, repr=False)
    text: str = field(default="", compare=False)
    values: Array | None = field(default=None, compare=False, repr=False)
    event: tuple[int, ...] | None = field(default=None, compare=False)

    @property
    def family(self) -> str:
        """Name in records, without the scale: ``gaussian``."""
        return self.prefix.rstrip(":,")

    @property
    def name(self) -> str:
        return name_of(self.family)

    @property
    def parameter(self) -> str:
        """Name of the scale: ``sigma`` (a standard deviation, or a factor of one) or ``gamma``."""
        return parameter_of(self.family)

    @property
    def example(self) -> Law:
        """The law of one input of zeros with scale 1, with as few components as possible, in one row."""
        import torch

        return self.law(torch.zeros(1, math.prod(self.event or (1,))), 1.0)

    @property
    def note(self) -> str:
        """Warning about rules that use moments; empty for Gaussian noise and for noise without moments."""
        law = self.example
        if isinstance(law, laws.DiagonalGaussian | laws.Gaussian) or not hasattr(law, "covariance"):
            return ""
        replaced = "rules of moments take it for the Gaussian with its mean and covariance"
        if bool((law.mean.abs() > _CENTRED * law.variance.sqrt()).any()):
            replaced += (
                "; its mean is not 0, and rules linearise at the mean of the noisy input, not at the input"
            )
        return f"{self.name} noise: {replaced}"

    @property
    def scale_notes(self) -> list[str]:
        """A line on the scale of noise with numbers, because it is a factor of them."""
        if self.values is None:
            return []
        return [f"σ is a factor of the noise {self.text}, not a standard deviation"]

    def label(self, scale: float) -> str:
        """Return family and scale as stored in an `OracleKey`: ``gaussian:sigma=0.1``."""
        return f"{self.prefix}{self.parameter}={scale!r}"

    def law(self, locations: Tensor, scale: float, rows: Sequence[int] = ()) -> Law:
        """Return the laws at `locations`, shape (B, *event), in their dtype.

        `rows` are the positions of the locations among all inputs, for noise with scales for each of them.
        """
        if rows and self.values is not None and self.by_input(tuple(locations.shape[1:])):
            law, _ = _FILLED[self.family.partition(":")[0]]
            return law(locations, scale, values=self.values[list(rows)])
        return self.make(locations, scale)

    def by_input(self, event: tuple[int, ...]) -> bool:
        """Whether it has scales for each of several inputs with this shape, instead of the same for all."""
        if self.event is None or self.family.partition(":")[0] not in _BY_INPUT:
            return False
        return len(self.event) > 1 and self.event[1:] in (event, (math.prod(event),))

    def check(
        self, event: tuple[int, ...], scales: tuple[float, ...], sampler: str, inputs: int | None = None
    ) -> None:
        """Raise a UserError if the family does not fit inputs, scales or sampler.

        `event` is the shape of one input, and `inputs` the number of inputs of a user's net. Scales must be
        finite in float32, and Sobol points need quantile functions.
        """
        import torch

        if self.event and self.by_input(event):
            if self.event[0] != inputs:
                there = f"{inputs} inputs are measured" if inputs else "rows need --net"
                raise UserError(f"noise '{self.text}' has {self.event[0]} rows of scales, but {there}")
        elif self.event not in (None, event, (math.prod(event),)):
            kind = self.family.partition(":")[0]
            hint = ""
            if kind in _BY_INPUT and event[-len(self.event) :] == self.event:
                repeated = f"numpy.broadcast_to(NUMBERS, {tuple(event)})"
                hint = f"; repeat the numbers: numpy.save('noise.npy', {repeated}), then {kind}:noise.npy"
            raise UserError(
                f"noise '{self.text}' is for inputs of shape {self.event}, the net takes {tuple(event)}{hint}"
            )
        standard = self.example.standard
        if sampler == "sobol" and (standard is None or standard.uniforms > 1):
            raise UserError(
                f"--sampler sobol needs a law with quantiles, which {self.name} noise is not; use mc"
            )
        for scale in scales:
            try:
                reason = self.law(torch.zeros(inputs or 1, *event), scale, range(inputs or 1)).unsound()
            except ValueError as error:
                reason = str(error)
            if reason:
                raise UserError(f"noise '{self.text}' of {self.parameter} {scale:g} is no law: {reason}")


# Laws, given locations and a scale ------------------------------------------------------------------


def _gaussian(locations: Tensor, scale: float) -> Law:
    return laws.DiagonalGaussian(locations, locations.new_full(locations.shape, scale**2))


def _cauchy(locations: Tensor, scale: float) -> Law:
    return laws.Cauchy(locations, locations.new_full(locations.shape, scale))


def _stable(locations: Tensor, scale: float, *, alpha: float) -> Law:
    return laws.SymmetricStable(locations, locations.new_full(locations.shape, scale), alpha)


def _shaped(locations: Tensor, scale: float, *, shape: laws.Shape) -> Law:
    unit = math.sqrt(shape.variance) if math.isfinite(shape.variance) else 1.0
    return laws.LocationScale(locations, locations.new_full(locations.shape, scale / unit), shape)


def _mixed(locations: Tensor, scale: float, *, parts: tuple[tuple[float, float], ...]) -> Law:
    """Gaussian noise with a random scale, drawn once for all components; each one's deviation is sigma."""
    unit = math.sqrt(sum(weight * relative**2 for weight, relative in parts))
    weights = locations.new_tensor([[weight for weight, _ in parts]]).expand(len(locations), -1)
    variances = locations.new_tensor([(scale * relative / unit) ** 2 for _, relative in parts])
    # One Gaussian for each input and component, (B * components, *event), in this order.
    means = locations.repeat_interleave(len(parts), 0)
    variances = variances.repeat(len(locations)).reshape([-1] + [1] * (locations.ndim - 1))
    return laws.Mixture(weights, laws.DiagonalGaussian(means, variances.expand_as(means)))


def _scaled(locations: Tensor, scale: float, *, values: Array) -> Law:
    """Independent Gaussian noise; `values` have the shape of an input, or of all inputs of a user's net."""
    variance = locations.new_tensor((scale * values) ** 2).reshape(-1, *locations.shape[1:])
    return laws.DiagonalGaussian(locations, variance.expand_as(locations))


def _bounded(locations: Tensor, scale: float, *, values: Array, shape: laws.Shape) -> Law:
    """Noise with these half-widths: one for all components, or like the `values` of `_scaled`."""
    widths = locations.new_tensor(scale * values)
    if widths.ndim:
        widths = widths.reshape(-1, *locations.shape[1:])
    return laws.LocationScale(locations, widths.expand_as(locations), shape)


def _asymmetric(locations: Tensor, scale: float, *, values: Array) -> Law:
    """Split normal noise; `values` has the deviations above and below, shape (2,) or (2, *event)."""
    sides = locations.new_tensor(scale * values)
    if sides.ndim > 1:
        sides = sides.reshape(2, *locations.shape[1:])
    above, below = (side.expand_as(locations) for side in sides)
    return laws.SplitNormal(locations, above, below)


def _correlated(locations: Tensor, scale: float, *, values: Array) -> Law:
    covariance = locations.new_tensor(scale**2 * values)  # validated when the file was read
    return laws.unchecked(laws.Gaussian, locations, covariance.expand(len(locations), -1, -1))


def _drawn(locations: Tensor, scale: float, *, values: Array) -> Law:
    """Noise that draws one of N residuals, shape (N, *event); they are not centred."""
    draws = locations.new_tensor(scale * values).reshape(-1, *locations.shape[1:])
    return laws.Empirical(locations.unsqueeze(1) + draws)


# Families -------------------------------------------------------------------------------------------


GAUSSIAN = Noise("gaussian:", _gaussian, "gaussian")
CAUCHY = Noise("cauchy:", _cauchy, "cauchy")
_LAPLACE = Noise("laplace:", functools.partial(_shaped, shape=laws.Shape("laplace")), "laplace")
_UNIFORM = Noise("uniform:", functools.partial(_shaped, shape=laws.Shape("uniform")), "uniform")
_TRIANGULAR = Noise("triangular:", functools.partial(_shaped, shape=laws.Shape("triangular")), "triangular")
_PLAIN = {noise.text: noise for noise in (GAUSSIAN, _LAPLACE, _UNIFORM, _TRIANGULAR, CAUCHY)}

_MOST = 2**20
"""Most numbers in a file: they are sent to every worker, stored in results, and repeated for each input."""
_MOST_PARTS = 100
_SUM = 1e-6
"""Tolerance for the sum of weights."""
_IN_WORDS = 8
"""Most scales that a label spells out."""
_CENTRED = 1e-6
"""Largest mean of noise that counts as 0, relative to its standard deviation."""
_PAIR = re.compile(r"\+([^+-]+?(?:[eE][+-]?[0-9]+)?)-(.+)")
"""A pair of deviations, +0.2-0.1."""
_LARGEST = 1e18
"""Bound on scales: the square is finite in float32."""


def noise_of(text: str, values: Array | None = None) -> Noise:
    """Return the noise that `text` names.

    `text` has one of the `FORMS`: ``student_t:5``, for example. `values` replaces the contents of a named
    file, which is then not read. An unknown family, an invalid number or an unusable file raises a one-line
    UserError.
    """
    kind, colon, rest = text.strip().partition(":")
    kind = spelled(kind, _FAMILIES)
    try:
        if kind in _PLAIN and not colon:
            return _PLAIN[kind]
        if kind in _NUMBERED and rest:
            return _NUMBERED[kind](rest)
        if kind in _FILLED and rest:
            return _filled(kind, rest, values)
    except ValueError as error:
        raise UserError(f"noise '{printable(text)}': {error}") from error
    raise UserError(f"unknown noise '{printable(text)}'; write one of {', '.join(FORMS)}")


def noise_of_law(law: Law) -> Noise:
    """Return the noise with this law around an input: of a law with one row and mean 0.

    It may be a Gaussian, a DiagonalGaussian, or an Empirical law of equally likely residuals.
    """
    if isinstance(law, laws.Empirical) and law.weights is not None:
        raise UserError("residuals are drawn alike; an Empirical law with weights cannot be noise")
    mean = law.mean
    if len(mean) != 1 or bool((mean.abs() > 1e-6 * law.variance.sqrt()).any()):
        raise UserError(
            "noise as a law has one row and mean 0; it is put around each input, got "
            f"{len(mean)} row(s) with means up to {float(mean.abs().max()):.3g}"
        )
    if isinstance(law, laws.Gaussian):
        kind, values = "covariance", law.covariance[0]
    elif isinstance(law, laws.DiagonalGaussian):
        kind, values = "scales", law.variance[0].sqrt()
    elif isinstance(law, laws.Empirical):
        kind, values = "residuals", law.samples[0]
    else:
        raise UserError(f"a {type(law).__name__} law cannot be noise")
    return noise_of(f"{kind}:law.npy", values.detach().cpu().double().numpy())


def to_plain(noise: Noise) -> dict[str, Any]:
    """Return plain values that include a file's contents, so that results can be replayed without it."""
    if noise.values is None:
        return {"text": noise.text, "values": None}
    import numpy as np

    content = io.BytesIO()
    np.save(content, noise.values, allow_pickle=False)
    return {"text": noise.text, "values": base64.b85encode(zlib.compress(content.getvalue())).decode()}


def from_plain(plain: Mapping[str, Any]) -> Noise:
    """Inverse of `to_plain`, after JSON; raises a UserError for anything else."""
    import numpy as np

    text, kept = str(plain.get("text")), plain.get("values")
    if kept is None:
        kind, colon, _ = text.partition(":")
        if colon and kind in _FILLED:
            raise UserError(f"noise '{printable(text)}' was stored without the contents of its file")
        return noise_of(text)
    try:
        content = zlib.decompressobj().decompress(base64.b85decode(kept), 8 * _MOST + 2**12)
        values = np.load(io.BytesIO(content), allow_pickle=False)
    except (ValueError, TypeError, EOFError, OSError, zlib.error) as error:
        raise UserError(f"the stored contents of noise '{printable(text)}' cannot be read") from error
    return noise_of(text, values)


def _number(text: str, what: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise ValueError(f"{what} must be a number, got '{printable(text)}'") from None


def stable(alpha: float) -> Noise:
    """Return symmetric alpha-stable noise; for alpha 2 it is Gaussian with variance 2 gamma^2."""
    if not 0 < alpha <= 2:
        raise ValueError(f"alpha must lie in (0, 2], got {alpha:g}")
    return Noise(f"stable:alpha={alpha!r},", functools.partial(_stable, alpha=alpha), f"stable:{alpha:g}")


def _student_t(df: float) -> Noise:
    if not 0 < df < math.inf:
        raise ValueError(f"the degrees of freedom must be positive and finite, got {df:g}")
    make = functools.partial(_shaped, shape=laws.Shape("student_t", df))
    return Noise(f"student_t:df={df!r},", make, f"student_t:{df:g}")


def _mixture(text: str) -> Noise:
    pairs = [part.split("*") for part in re.split(r"\+(?=[^+*]*\*)", text)]  # do not split 1e+3
    if any(len(pair) != 2 for pair in pairs):
        raise ValueError("write weights and relative scales as 0.9*1+0.1*5")
    if len(pairs) > _MOST_PARTS:
        raise ValueError(f"at most {_MOST_PARTS} components, got {len(pairs)}")
    weights, scales = [], []
    for weight, scale in pairs:
        weights.append(_number(weight, "a weight"))
        scales.append(_number(scale, "a scale"))
    total = math.fsum(weights)
    if not (min(weights) > 0 and abs(total - 1) <= _SUM):
        raise ValueError(f"weights must be positive and sum to 1, their sum is {total:.7g}")
    if not (all(0 <= scale < _LARGEST for scale in scales) and any(scale > 0 for scale in scales)):
        raise ValueError(f"scales must be >= 0 and below {_LARGEST:g}, and one must be positive")
    parts = tuple(zip(weights, scales, strict=True))
    label = "+".join(f"{weight!r}*{scale!r}" for weight, scale in parts)
    return Noise(f"mixture:{label},", functools.partial(_mixed, parts=parts), f"mixture:{label}")


_NUMBERED: Mapping[str, Callable[[str], Noise]] = {
    "stable": lambda text: stable(_number(text, "alpha")),
    "student_t": lambda text: _student_t(_number(text, "the degrees of freedom")),
    "mixture": _mixture,
}


def _filled(kind: str, rest: str, values: Array | None) -> Noise:
    """Return noise with an array, from a file or from the text."""
    in_words = kind in _SPELLED and not (rest.endswith(".npy") or is_csv(rest))
    text = f"{kind}:{rest if in_words else Path(rest).name}"
    if values is None:
        values = _read_values(kind, rest, in_words)
    values = _checked_values(values)
    if kind in _SPELLED:
        _check_widths(kind, values)
    elif kind == "covariance":
        _check_covariance(values)
    elif values.ndim < 2:
        raise ValueError(f"residuals have shape (N, *event), got {values.shape}")
    law, axes = _FILLED[kind]
    make = functools.partial(law, values=values)
    event = values.shape[axes] or None  # the same for all components
    return Noise(f"{kind}:{_name_of_values(kind, values)},", make, text, values, event)


def _read_values(kind: str, rest: str, in_words: bool) -> Array:
    """Return the numbers of a family's text, or of the file that it names."""
    import numpy as np

    if in_words:
        if kind == "split_normal":
            sides = np.array([_deviations(pair) for pair in rest.split("/")]).T
            return sides if sides.shape[1] > 1 else sides[:, 0]
        widths = np.array([_number(number, f"a {_SPELLED[kind]}") for number in rest.split("/")])
        return widths if kind == "scales" or len(widths) > 1 else widths[0]
    values = read_array(Path(rest))
    if kind in _BY_INPUT and is_csv(rest) and len(values) == 1:
        return values[0]  # a table of one row has the shape of an input
    return values


def _deviations(text: str) -> tuple[float, float]:
    """Return the deviations above and below of a text such as ``+0.2-0.1``."""
    pair = _PAIR.fullmatch(text.replace(" ", ""))
    if pair is None:
        raise ValueError(
            f"'{printable(text)}' must be the standard deviations above and below, as +0.2-0.1, for all "
            "inputs or for each, as +0.2-0.1/+1-2"
        )
    return _number(pair[1], "the one above"), _number(pair[2], "the one below")


def _checked_values(values: Array) -> Array:
    """Return a float64 copy, since the file may change; a ValueError for numbers that cannot be noise."""
    import numpy as np

    if values.dtype.kind not in "fiu":
        raise ValueError(f"it must hold real numbers, got {values.dtype}")
    if not 0 < values.size <= _MOST:
        raise ValueError(f"it holds {values.size} numbers; at least 1 and at most {_MOST} are taken")
    values = np.array(values, dtype=np.float64, order="C")
    if not np.isfinite(values).all():
        raise ValueError("it has NaN or infinite entries")
    if np.abs(values).max() >= _LARGEST:
        raise ValueError(f"its entries must be below {_LARGEST:g}")
    if not values.any():
        raise ValueError("some number must not be 0")
    return values


def _check_widths(kind: str, values: Array) -> None:
    name = _SPELLED[kind]
    if kind == "scales" and values.ndim < 1:
        raise ValueError("scales must have the shape of an input")
    if kind == "split_normal" and (values.ndim < 1 or len(values) != 2):
        raise ValueError(
            f"the file must have two rows, the deviations above and those below, got shape {values.shape}"
        )
    if (values < 0).any():
        raise ValueError(f"{name}s must be >= 0, the smallest is {values.min():g}")


def _check_covariance(values: Array) -> None:
    import torch

    if values.ndim != 2 or values.shape[0] != values.shape[1]:
        raise ValueError(f"a covariance has shape (n, n), got {values.shape}")
    # The law rejects a matrix that is not symmetric and positive semi-definite.
    laws.Gaussian(torch.zeros(1, len(values), dtype=torch.float64), torch.from_numpy(values)[None])


def _name_of_values(kind: str, values: Array) -> str:
    """Return a few numbers themselves, as 1.0/0.5 or +0.2-0.1, and otherwise a digest."""
    import torch

    if kind == "split_normal" and values.ndim <= 2 and values[0].size <= _IN_WORDS:
        return "/".join(f"+{above!r}-{below!r}" for above, below in values.reshape(2, -1).T.tolist())
    if kind in _BY_INPUT and values.ndim <= 1 and values.size <= _IN_WORDS:
        return "/".join(map(repr, values.reshape(-1).tolist()))
    return identity.digest(torch.from_numpy(values))[:16]


_FILLED: Mapping[str, tuple[Callable[..., Law], slice]] = {
    "scales": (_scaled, slice(None)),
    "uniform": (functools.partial(_bounded, shape=laws.Shape("uniform")), slice(None)),
    "triangular": (functools.partial(_bounded, shape=laws.Shape("triangular")), slice(None)),
    "split_normal": (_asymmetric, slice(1, None)),
    "covariance": (_correlated, slice(1)),
    "residuals": (_drawn, slice(1, None)),
}
"""Law by family, and the axes of the array that have the shape of an input."""
_SPELLED = {
    "scales": "scale",
    "uniform": "half-width",
    "triangular": "half-width",
    "split_normal": "standard deviation",
}
"""Families with numbers in the text or in a file, and what the numbers are."""
_BY_INPUT = ("scales", "uniform", "triangular")
"""Families with numbers for all inputs or for each of them."""
