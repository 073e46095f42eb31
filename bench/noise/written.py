"""Noise as text and as stored values; a named file is read once, when the text is parsed."""

from __future__ import annotations

import base64
import io
import math
import re
import zlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sdp_bench.bench.errors import UserError
from sdp_bench.bench.files import read_array
from sdp_bench.bench.identity import keys
from sdp_bench.bench.noise import families
from sdp_bench.bench.noise.families import CAUCHY, GAUSSIAN, LAPLACE, UNIFORM, Noise
from sdp_bench.bench.text import printable

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Array = NDArray[np.float64]

FORMS = (
    *("gaussian", "laplace", "uniform", "student_t:DF", "cauchy", "stable:ALPHA"),
    *("mixture:0.9*1+0.1*5", "scales:1/0.5/2 or FILE.npy", "covariance:FILE.npy", "residuals:FILE.npy"),
)
"""The forms in which users write noise."""

_PLAIN = {noise.text: noise for noise in (GAUSSIAN, LAPLACE, UNIFORM, CAUCHY)}
_MOST = 2**20
"""Most numbers in a file: they are sent to every worker, stored in results, and repeated for each input."""
_MOST_PARTS = 100
_SUM = 1e-6
"""Tolerance for the sum of weights."""
_IN_WORDS = 8
"""Most scales that a label spells out."""


def noise_of(text: str, values: Array | None = None) -> Noise:
    """Return the noise that `text` names.

    `text` has one of the `FORMS`: ``student_t:5``, for example. `values` replaces the contents of a named
    file, which is then not read. An unknown family, an invalid number or an unusable file raises a one-line
    UserError.
    """
    kind, colon, rest = text.strip().partition(":")
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


def stored(noise: Noise) -> dict[str, Any]:
    """Return plain values that include a file's contents, so that results can be replayed without it."""
    if noise.values is None:
        return {"text": noise.text, "values": None}
    import numpy as np

    content = io.BytesIO()
    np.save(content, noise.values, allow_pickle=False)
    return {"text": noise.text, "values": base64.b85encode(zlib.compress(content.getvalue())).decode()}


def restored(plain: Mapping[str, Any]) -> Noise:
    """Inverse of `stored`, after JSON; raises a UserError for anything else."""
    import numpy as np

    text, kept = str(plain.get("text")), plain.get("values")
    if kept is None:
        if text.partition(":")[0] in _FILLED:
            raise UserError(f"noise '{printable(text)}' was stored without the contents of its file")
        return noise_of(text)
    try:
        content = zlib.decompressobj().decompress(base64.b85decode(kept), 8 * _MOST + 2**12)
        values = np.load(io.BytesIO(content), allow_pickle=False)
    except (ValueError, TypeError, EOFError, OSError, zlib.error) as error:
        raise UserError(f"the stored contents of noise '{printable(text)}' cannot be read") from error
    return noise_of(text, values)


# Families with numbers in their name ---------------------------------------------------------------


def _number(text: str, what: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise ValueError(f"{what} must be a number, got '{printable(text)}'") from None


def _stable(text: str) -> Noise:
    alpha = _number(text, "alpha")
    if not 0 < alpha <= 2:
        raise ValueError(f"alpha must lie in (0, 2], got {alpha:g}")
    return families.stable(alpha)


def _student_t(text: str) -> Noise:
    df = _number(text, "the degrees of freedom")
    if not 0 < df < math.inf:
        raise ValueError(f"the degrees of freedom must be positive and finite, got {df:g}")
    return families.student_t(df)


def _mixture(text: str) -> Noise:
    pairs = [part.split("*") for part in re.split(r"\+(?=[^+*]*\*)", text)]  # do not split 1e+3
    if any(len(pair) != 2 for pair in pairs):
        raise ValueError("write weights and relative scales as 0.9*1+0.1*5")
    if len(pairs) > _MOST_PARTS:
        raise ValueError(f"at most {_MOST_PARTS} components, got {len(pairs)}")
    parts = tuple((_number(weight, "a weight"), _number(scale, "a scale")) for weight, scale in pairs)
    if not all(weight > 0 for weight, _ in parts):
        raise ValueError("weights must be positive")
    total = math.fsum(weight for weight, _ in parts)
    if not abs(total - 1) <= _SUM:
        raise ValueError(f"weights must sum to 1, their sum is {total:.7g}")
    if not all(0 <= scale < _LARGEST for _, scale in parts):
        raise ValueError(f"scales must be >= 0 and below {_LARGEST:g}")
    if not any(scale > 0 for _, scale in parts):
        raise ValueError("some scale must be positive")
    return families.mixture(parts)


_LARGEST = 1e18  # its square is finite in float32
_NUMBERED: Mapping[str, Callable[[str], Noise]] = {
    "stable": _stable,
    "student_t": _student_t,
    "mixture": _mixture,
}


# Families with a file -------------------------------------------------------------------------------


def _filled(kind: str, rest: str, values: Array | None) -> Noise:
    import numpy as np

    in_words = kind == "scales" and not rest.endswith(".npy")
    if values is None:
        listed = [_number(each, "a scale") for each in rest.split("/")] if in_words else None
        values = read_array(Path(rest)) if listed is None else np.array(listed)
    text = f"{kind}:{rest if in_words else Path(rest).name}"
    if values.dtype.kind not in "fiu":
        raise ValueError(f"it must hold real numbers, got {values.dtype}")
    if not 0 < values.size <= _MOST:
        raise ValueError(f"it holds {values.size} numbers; at least 1 and at most {_MOST} are taken")
    values = np.array(values, dtype=np.float64, order="C")  # a copy, since the file may change
    if not np.isfinite(values).all():
        raise ValueError("it has NaN or infinite entries")
    if np.abs(values).max() >= _LARGEST:
        raise ValueError(f"its entries must be below {_LARGEST:g}")
    return _FILLED[kind](values, text)


def _name(values: Array) -> str:
    import torch

    return keys.digest(torch.from_numpy(values))[:16]


def _scales(values: Array, text: str) -> Noise:
    if values.ndim < 1:
        raise ValueError("scales must have the shape of an input")
    if (values < 0).any():
        raise ValueError(f"scales must be >= 0, the smallest is {values.min():g}")
    if not (values > 0).any():
        raise ValueError("some scale must be positive")
    plain = values.ndim == 1 and len(values) <= _IN_WORDS
    name = "/".join(map(repr, values.tolist())) if plain else _name(values)
    return families.scales(values, name, text)


def _covariance(values: Array, text: str) -> Noise:
    import torch

    from sdp_ref.laws import Gaussian

    if values.ndim != 2 or values.shape[0] != values.shape[1]:
        raise ValueError(f"a covariance has shape (n, n), got {values.shape}")
    if not values.any():
        raise ValueError("some variance must be positive")
    Gaussian(torch.zeros(1, len(values), dtype=torch.float64), torch.from_numpy(values)[None])
    return families.covariance(values, _name(values), text)


def _residuals(values: Array, text: str) -> Noise:
    if values.ndim < 2:
        raise ValueError(f"residuals have shape (N, *event), got {values.shape}")
    if not values.any():
        raise ValueError("some residual must not be 0")
    return families.residuals(values, _name(values), text)


_FILLED: Mapping[str, Callable[[Array, str], Noise]] = {
    "scales": _scales,
    "covariance": _covariance,
    "residuals": _residuals,
}
