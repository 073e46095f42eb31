"""The tables of docs/models.md, from docs/models.csv and docs/models_agreement.csv."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from statistics import median

from benchmarks.models.agreement import MODERATE, SMALL, Agreement
from benchmarks.models.agreement import RULES as COMPARED
from benchmarks.models.measuring import DEAR, FALLBACK, RULES, TRACE, UNKNOWN, Row
from benchmarks.models.zoo import HOW_MANY

PAGE = Path(__file__).parents[2] / "docs" / "models.md"
ALL = (*RULES, DEAR)
SHORT = {
    "marginal_sdp": "marginal SDP",
    "marginal_moment_matching": "marginal moments",
    "monte_carlo": "100 draws",
    "monte_carlo:samples=1000": "1000 draws",
}


def write(rows: Sequence[Row], compared: Sequence[Agreement]) -> None:
    """Put the tables in the place of those that the page has."""
    made = {
        "summary": summary(rows),
        "agreement": agreement(compared),
        **{package: models([row for row in rows if row.package == package]) for package in HOW_MANY},
    }
    text = PAGE.read_text(encoding="utf-8")
    for name, lines in made.items():
        begin, end = f"<!-- {name}: made by benchmarks/models -->\n", f"<!-- {name}: end -->"
        before, _, rest = text.partition(begin)
        _, _, after = rest.partition(end)
        text = "".join([before, begin, *(f"{line}\n" for line in lines), end, after])
    PAGE.write_text(text, encoding="utf-8")


def summary(rows: Sequence[Row]) -> Iterator[str]:
    """For each package how many models each rule gives a prediction of, and its median time."""
    yield from _head("package", "tried", "traced", "every op known", *(_short(rule) for rule in ALL))
    for package in HOW_MANY:
        own = [row for row in rows if row.package == package]
        traces = [row for row in own if row.part == TRACE]
        traced = [row for row in traces if row.seconds is not None]
        known = [row for row in traced if UNKNOWN not in row.note]
        cells = [_reached([row for row in own if row.part == rule]) for rule in ALL]
        yield _line(package, f"{len(traces)} of {HOW_MANY[package]}", len(traced), len(known), *cells)


def models(rows: Sequence[Row]) -> Iterator[str]:
    """One line a model."""
    yield from _head(
        *("model", "input", "weights", "steps", "trace"),
        *(_short(rule) for rule in ALL),
        *("σ over that of 100 draws", "approximated, or why not"),
    )
    for name in dict.fromkeys(row.model for row in rows):
        parts = {row.part: row for row in rows if row.model == name}
        trace = parts.get(TRACE)
        if trace is None:
            continue
        steps = trace.note.partition(" ")[0] if trace.seconds is not None else "-"
        seconds = [_seconds(parts.get(part)) for part in (TRACE, *ALL)]
        yield _line(
            name, trace.event.replace("x", " × "), f"{trace.weights / 1e6:.3g} M", steps, *seconds,
            _ratios(parts), "; ".join(_remarks(parts)),
        )  # fmt: skip


def agreement(rows: Sequence[Agreement]) -> Iterator[str]:
    """One line a small model: errors of standard deviations, and of means, in percent."""
    rules = [f"{_short(rule)}, σ = {sigma:g}" for sigma in (SMALL, MODERATE) for rule in COMPARED]
    yield from _head("model", *rules)
    for package, name in dict.fromkeys((row.package, row.model) for row in rows):
        own = {(row.sigma, row.rule): row for row in rows if (row.package, row.model) == (package, name)}
        found = [own.get((sigma, rule)) for sigma in (SMALL, MODERATE) for rule in COMPARED]
        yield _line(f"{name} ({package})", *(_errors(row) for row in found))


def _errors(row: Agreement | None) -> str:
    if row is None or row.std is None or row.mean is None:
        return "-"
    return f"{_percent(row.std)} / {_percent(row.mean)}"


def _percent(share: float) -> str:
    return f"{100 * share:.2g}" if share < 1 else f"{100 * share:.0f}"


def _reached(rows: Sequence[Row]) -> str:
    reached = [row.seconds for row in rows if row.seconds is not None]
    return f"{len(reached)} of {len(rows)}, {median(reached):.2g} s" if reached else f"0 of {len(rows)}"


def _seconds(row: Row | None) -> str:
    return "" if row is None else "-" if row.seconds is None else f"{row.seconds:.2g}"


def _ratios(parts: dict[str, Row]) -> str:
    drawn = parts.get("monte_carlo")
    if drawn is None or not drawn.std:
        return ""
    others = (parts.get(rule) for rule in ALL if rule != "monte_carlo")
    return " / ".join(
        "-" if row is None or row.std is None else f"{row.std / drawn.std:.2f}" for row in others
    )


def _remarks(parts: dict[str, Row]) -> Iterator[str]:
    """What is to say of a model, each once."""
    unknown = parts[TRACE].note.partition(UNKNOWN)[2]
    if unknown:
        yield f"no formula for {unknown}"
    for rule in (TRACE, *ALL):
        row = parts.get(rule)
        if row is not None and row.seconds is None:
            yield f"{_short(rule)}: {row.note}"
        elif row is not None and rule in RULES:
            yield from (each for each in row.note.split("; ") if each and each != FALLBACK)


def _short(rule: str) -> str:
    return SHORT.get(rule, "SDP" if rule == "sdp" else rule)


def _head(*titles: str) -> Iterable[str]:
    return "", _line(*titles), _line(*("---" for _ in titles))


def _line(*cells: object) -> str:
    return "| " + " | ".join(str(cell).replace("|", "\\|") for cell in cells) + " |"
