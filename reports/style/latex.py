"""Text and numbers as LaTeX that needs no packages."""

from __future__ import annotations

import unicodedata

from sdp_bench.bench.text import printable, public
from sdp_bench.reports.style import labels
from sdp_ref.errors import on_one_line

_GREEK = ("alpha", "beta", "gamma", "delta", "epsilon", "lambda", "mu", "pi", "rho", "sigma", "tau")
_GREEK_LETTERS = "αβγδελμπρστ"
_SIGNS = {
    "\\": r"\textbackslash{}",
    **{sign: "\\" + sign for sign in "&%$#_{}"},
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    **{sign: f"${sign}$" for sign in "<>|"},
    **{letter: f"$\\{name}$" for letter, name in zip(_GREEK_LETTERS, _GREEK, strict=True)},
    **{"−": "$-$", "±": r"$\pm$", "×": r"$\times$", "≈": r"$\approx$", "≤": r"$\leq$", "≥": r"$\geq$"},
    **{"∞": r"$\infty$", "→": r"$\to$", "√": r"$\surd$", "·": r"$\cdot$", "°": r"$^\circ$"},
    **{sign: f"$^{digit}$" for digit, sign in enumerate("⁰¹²³⁴⁵⁶⁷⁸⁹")},
    **{"–": "--", "—": "---", "‘": "`", "’": "'", "“": "``", "”": "''", "…": r"\dots{}", "\u00a0": "~"},
}
_ACCENTS = {
    "\u0300": "`",
    "\u0301": "'",
    "\u0302": "^",
    "\u0303": "~",
    "\u0308": '"',
    "\u030c": "v",
    "\u0327": "c",
}


def escaped(text: str) -> str:
    """Escape a text for LaTeX, as one line of ASCII.

    A character that plain LaTeX cannot write is replaced by its code point, ``U+4E2D``.
    """
    return "".join(map(_sign, on_one_line(printable(public(text)))))


def typed(text: str) -> str:
    """Like :func:`escaped`, without ligatures of dashes and quotes, for commands and the like."""
    return (
        escaped(text)
        .replace("--", "-{}-")
        .replace("'", r"\textquotesingle{}")
        .replace("`", r"\textasciigrave{}")
    )


def number(x: float, decimals: int | None = None) -> str:
    """Like :func:`sdp_bench.reports.style.labels.number`, for LaTeX's math mode."""
    return _mathematical(labels.number(x, decimals))


def spread(sd: float, mean: float, decimals: int | None = None) -> str:
    """Like :func:`sdp_bench.reports.style.labels.spread`, for LaTeX's math mode."""
    return _mathematical(labels.spread(sd, mean, decimals))


def _mathematical(text: str) -> str:
    text = text.replace("−", "-").replace("∞", r"\infty").replace("–", r"\text{--}")
    mantissa, _, exponent = text.partition("e")
    return rf"{mantissa} \times 10^{{{exponent}}}" if exponent else text


def _sign(sign: str) -> str:
    if sign in _SIGNS:
        return _SIGNS[sign]
    if sign.isascii():
        return sign
    parts = unicodedata.normalize("NFD", sign)
    if len(parts) == 2 and parts[0].isascii() and parts[1] in _ACCENTS:
        return f"\\{_ACCENTS[parts[1]]}{{{parts[0]}}}"
    return rf"\texttt{{U+{ord(sign):04X}}}"
