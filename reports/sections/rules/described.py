"""What a rule is, from its own docstring."""

from __future__ import annotations

import inspect
import re
import textwrap
from dataclasses import dataclass

from markupsafe import Markup, escape

import sdp_ref

_ROLE = re.compile(r":\w+:`~?(?:[\w.]+\.)?(\w+)`")
_CODE = re.compile(r"``(.+?)``|`(.+?)`")
_HEADING = re.compile(r"^(\w[\w ]*)\n-{3,}$", re.MULTILINE)


@dataclass(frozen=True)
class Described:
    """What a rule's docstring says.

    Attributes
    ----------
    summary : str
        Its first sentence.
    about : tuple of str
        Paragraphs, as HTML.
    sources : tuple of str
        References, as HTML.
    faults : tuple of (str, str)
        Checks of the kit that the rule as published fails, and why.
    """

    summary: str = ""
    about: tuple[str, ...] = ()
    sources: tuple[str, ...] = ()
    faults: tuple[tuple[str, str], ...] = ()


def described(rule: str) -> Described:
    """What one of the package's own rules is; nothing of others, whose code is not run to make a page.

    Parameters
    ----------
    rule : str
        Spec, as in records.

    Returns
    -------
    Described
    """
    try:
        own = sdp_ref.rule(rule)
    except ValueError:
        return Described()
    parts = _HEADING.split(inspect.getdoc(type(own)) or "")
    summary, *about = _paragraphs(parts[0])
    headed = dict(zip(parts[1::2], parts[2::2], strict=True))
    faults = tuple((check, str(_marked(why))) for check, why in own.known_faults.items())
    return Described(summary, tuple(about), tuple(_paragraphs(headed.get("References", ""))), faults)


def _paragraphs(text: str) -> list[str]:
    parts = [" ".join(textwrap.dedent(part).split()) for part in text.strip().split("\n\n")]
    return [str(_marked(part)) for part in parts if part]


def _marked(text: str) -> Markup:
    """Text with its names as code."""
    plain = _ROLE.sub(r"``\1``", text)
    return Markup(_CODE.sub(lambda found: f"<code>{found[1] or found[2]}</code>", str(escape(plain))))  # noqa: S704  escaped
