"""Pages as text: the environment of templates, its filters, and formatting of values."""

from __future__ import annotations

import contextlib
import json
import math
import re
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

from jinja2 import Environment, FunctionLoader, StrictUndefined, select_autoescape
from markupsafe import Markup, escape

from ..bench.text import printable, public
from .statistics.ranking import Labels
from .style import labels
from .style.names import RuleTraits, activation_label

TEMPLATES = Path(__file__).with_name("templates")

_BACKQUOTED = re.compile(r"`([^`]+)`")
_LINK = Markup('<a href="{}">{}</a>')

Links = Mapping[Labels, str]
"""Addresses of lists of measurements, by the labels of their rows."""


def environment(traits: RuleTraits, links: Links | None = None) -> Environment:
    """Return the environment of a page's templates, which all escape HTML except Markdown.

    Templates are named by their path, those in ``templates`` by their name alone. `links` are addresses of
    the lists of measurements behind the page's numbers.
    """
    templates = Environment(
        loader=FunctionLoader(lambda name: ((path := TEMPLATES / name).read_text("utf-8"), str(path), None)),
        # entities would be visible in Markdown
        autoescape=select_autoescape(disabled_extensions=("md",), default=True),
        undefined=StrictUndefined,
        finalize=_shown,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    templates.filters |= {
        "number": labels.number,
        "known": lambda value: labels.number(math.nan if value is None else value),
        "small": lambda value: "< 1e-5" if 0 < abs(value) < 1e-5 else labels.number(value),
        "spread": labels.spread,
        "elapsed": lambda seconds: "–" if seconds == "" else labels.duration(float(seconds)),
        "rule_label": traits.label,
        "activation_label": activation_label,
        "plural": labels.plural,
        "value": value,
        "moment": moment,
        "drawing": Markup,
        "coded": coded,
    }
    templates.tests["nan"] = math.isnan
    templates.globals["inf"] = math.inf

    def link(rows: Labels, text: Any) -> Any:
        address = (links or {}).get(rows)
        return _LINK.format(address, _shown(text)) if address else text

    templates.globals["link"] = link
    return templates


def rendered(template: str | Path, traits: RuleTraits, variables: Mapping[str, Any]) -> str:
    """Return the text of a template; its numbers are not linked to lists of measurements."""
    return environment(traits).get_template(str(template)).render(variables)


def _shown(value: Any) -> Any:
    """Value for a template, without control characters for terminal or browser and without local paths."""
    if not isinstance(value, str):
        return value
    if value.isprintable() and "/" not in value:  # shortcut for nearly all texts, ten times faster
        return value
    if isinstance(value, Markup):  # composed of escaped texts by a macro or an operator
        return Markup(printable(value))  # noqa: S704  as it was
    return printable(public(value))


def coded(text: str) -> Markup:
    """Text with parts in backquotes as code."""
    return Markup(_BACKQUOTED.sub(r"<code>\1</code>", str(escape(text))))  # noqa: S704  escaped before


def value(setting: Any) -> str:
    """Format a setting, which may be a list or a mapping (or one as JSON), on one line."""
    if isinstance(setting, str) and setting.startswith("{"):
        with contextlib.suppress(json.JSONDecodeError):
            setting = json.loads(setting)
    match setting:
        case None:
            return "none"
        case Mapping():
            return ", ".join(f"{key} {value(entry)}" for key, entry in setting.items())
        case list() | tuple() | set():
            return ", ".join(value(entry) for entry in setting)
        case bool():
            return "yes" if setting else "no"
        case int() if abs(setting) >= 10_000:
            return f"{setting:,}"
        case float():
            return f"{setting:g}"
    return str(setting)


def moment(text: Any) -> str:
    """Format an ISO 8601 time to the minute; other values are unchanged."""
    try:
        return datetime.fromisoformat(str(text)).strftime("%Y-%m-%d %H:%M %Z").strip()
    except ValueError:
        return str(text)


def recorded(meta: Mapping[str, Any]) -> list[tuple[str, Mapping[str, Any]]]:
    """Return run, settings and environment of results by title, without empty ones.

    `meta` is that of :class:`sdp_bench.reports.results.Results`.
    """
    times = {key: meta[key] for key in ("started", "finished") if meta.get(key)}
    if meta.get("seconds"):
        times["took"] = labels.duration(float(meta["seconds"]))
    listed = (
        ("Run", times | dict(meta.get("counts", {}))),
        ("Settings", meta.get("options", {})),
        ("Environment", meta.get("environment", {})),
    )
    return [(title, entries) for title, entries in listed if entries]
