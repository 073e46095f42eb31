"""Text as LaTeX."""

from __future__ import annotations

import functools

from sdp_bench.bench.text import printable, public
from sdp_ref.errors import on_one_line


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
