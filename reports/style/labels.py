"""Numbers and texts for readers, as plain text and as LaTeX."""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable, Sequence

from sdp_ref.errors import on_one_line

from ...bench.text import plural as plural
from ...bench.text import printable, public


def number(x: float, decimals: int | None = None) -> str:
    """Format a number with `decimals`, or to three significant figures; a dash for NaN."""
    if math.isnan(x):
        return "–"
    if math.isinf(x):
        return "∞" if x > 0 else "−∞"
    if x == 0 and decimals is None:
        text = "0"
    elif decimals is not None:
        text = f"{x:.{decimals}f}"
    elif not 1e-3 <= abs(x) < 1e5:
        mantissa, exponent = f"{x:.2e}".split("e")
        text = f"{mantissa}e{int(exponent)}"
    else:
        text = f"{x:.0f}" if abs(x) >= 99.95 else f"{x:#.3g}"
    return text.replace("-", "−")


def span(values: Iterable[float], decimals: int | None = None) -> str:
    """Format the range of some numbers, as one number if both ends read alike: ``2.10 to 3.45``."""
    known = list(values)
    low, high = number(min(known), decimals), number(max(known), decimals)
    return low if low == high else f"{low} to {high}"


def interval(value: float, low: float, high: float) -> str:
    """Format a value with its interval, to two digits of the narrower side; without the interval if NaN."""
    if math.isnan(low) or math.isnan(high):
        return number(value)
    if abs(value) >= 1e5:  # digits of an interval would not fit into a line
        return f"{number(value)} ({number(low)} to {number(high)})"
    side = min(value - low, high - value)
    decimals = max(0, 1 - math.floor(math.log10(side))) if 1e-6 < side < math.inf else None
    shown = [value, low, high] if decimals is None else [round(x, decimals) + 0.0 for x in (value, low, high)]
    mean, start, end = (number(x, decimals) for x in shown)
    return f"{mean} ({start} to {end})"


def spread(sd: float, mean: float, decimals: int | None = None) -> str:
    """Format a standard deviation with as many decimals as its mean."""
    shown = number(mean, decimals)
    if "e" in shown or not math.isfinite(mean):
        return number(sd, decimals)
    return number(sd, len(shown.partition(".")[2]))


def duration(seconds: float) -> str:
    """Format a duration, without line breaks: ``3 min 20 s``."""
    minutes, rest = divmod(round(seconds), 60)
    if seconds < 1:
        text = f"{seconds * 1000:.3g} ms"
    elif seconds < 60:
        text = f"{seconds:.3g} s"
    elif minutes < 60:
        text = f"{minutes} min {rest} s" if rest else f"{minutes} min"
    else:
        text = f"{minutes // 60} h {minutes % 60} min"
    return text.replace(" ", "\u00a0")


def listed(parts: Sequence[str]) -> str:
    """Join texts: ``a, b and c``."""
    return " and ".join([", ".join(parts[:-1]), parts[-1]] if len(parts) > 1 else list(parts))


_MOST_NAMED = 4


def abridged(texts: Iterable[str]) -> str:
    """Join the distinct non-empty texts, of many the first four: ``a, b, c, d, 3 more``."""
    distinct = list(dict.fromkeys(filter(None, texts)))
    if len(distinct) > _MOST_NAMED:
        distinct[_MOST_NAMED:] = [f"{len(distinct) - _MOST_NAMED} more"]
    return ", ".join(distinct)


def layers(depths: Iterable[float]) -> str:
    """Format distinct numbers of hidden layers: ``1 layer``, ``1, 2, 4 layers``."""
    known = sorted(set(depths))
    return f"{', '.join(f'{depth:g}' for depth in known)} layer{'' if known == [1] else 's'}"


def escaped(text: str) -> str:
    """Escape a text for LaTeX, as one line of ASCII; unknown characters become code points, ``U+4E2D``."""
    return str(_encoder().unicode_to_latex(on_one_line(printable(public(text)))))


def typed(text: str) -> str:
    """Like :func:`escaped`, without ligatures of dashes and quotes, for commands and the like."""
    plain = escaped(text).replace("--", "-{}-")
    return plain.replace("'", r"\textquotesingle{}").replace("`", r"\textasciigrave{}")


@functools.cache
def _encoder():  # type: ignore[no-untyped-def]  # pylatexenc has no types
    from pylatexenc.latexencode import UnicodeToLatexEncoder

    return UnicodeToLatexEncoder(
        unknown_char_policy=lambda sign: rf"\texttt{{U+{ord(sign):04X}}}",
        unknown_char_warning=False,
        replacement_latex_protection="braces",
    )
