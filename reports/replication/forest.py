"""Forest plot of a statement: effects with 95 % intervals by convention, beside the threshold."""

from __future__ import annotations

import math
import textwrap

from sdp_bench.reports.replication.statement import Effect, Ruled, Ruling
from sdp_bench.reports.style.figure import SMALL, Figure, clean, look, panels
from sdp_bench.reports.style.theme import INK, LIGHT, ORDERED, Style, shade

_FEWEST, _MOST = 3, 20  # conventions
_LEVELS = 5  # noise levels that are drawn one by one; of more parts the deciding one is drawn
_ROW = 0.2  # in


@look()
def forest(ruled: Ruled) -> Figure | None:
    """Effects of a statement under each convention; None without intervals, or with too few or many rows."""
    rows = ruled.rows["first"]
    trials = [ruling.trial for _, ruling in rows if ruling.trial]
    if not _FEWEST <= len(rows) <= _MOST or all(math.isnan(trial.deciding.range[1]) for trial in trials):
        return None
    first = rows[0][1].trial
    levels = [effect.sigma for effect in first.effects] if first else []
    by_level = 1 < len(levels) <= _LEVELS and all(levels) and len(set(levels)) == len(levels)
    styles = {
        level: Style(f"σ = {level}", shade(colour, LIGHT), "o")
        for level, colour in zip(levels, ORDERED, strict=False)
    }
    names = [_named(version, ruling, several=len({v for v, _ in rows}) > 1) for version, ruling in rows]
    left = min(0.065 * max(map(len, names)), 3.6) + 0.15
    drawing, (axes,) = panels(
        [""],
        styles.values() if by_level else [],
        width=4.4,
        height=_ROW * len(rows) + 0.1,
        left=left,
        above=0.08,
    )
    thresholds = set()
    words = []
    for place, (name, (_, ruling)) in enumerate(zip(names, rows, strict=True)):
        if ruling.trial is None:
            continue
        effects = ruling.trial.effects if by_level else (ruling.trial.deciding,)
        for k, effect in enumerate(effects):
            offset = 0.7 * ((k + 0.5) / len(effects) - 0.5)
            colour = styles[effect.sigma].colour if by_level else INK
            mean, low, high = effect.range
            axes.plot([mean], [place + offset], color=colour, marker="o", markersize=3, linestyle="none")
            if math.isfinite(low):
                axes.hlines(place + offset, low, high, color=colour, linewidth=1.1)
            thresholds.add(effect.shown(effect.threshold))
        words.append(f"{name}: {', '.join(f'{effect.interval}' for effect in effects)}")
    for threshold in thresholds if len(thresholds) == 1 else ():
        axes.axvline(threshold, color=INK, linewidth=0.9, linestyle=(0, (4, 3)))
    axes.set_yticks(range(len(rows)), [clean(name) for name in names], fontsize=SMALL)
    axes.set_ylim(len(rows) - 0.5, -0.5)
    axes.grid(visible=False, axis="y")
    effect = _shown(rows[0][1], by_level=by_level)
    needed = f" (needed: {effect.needed})" if len(thresholds) == 1 else ""
    part = "" if by_level or len(first.effects if first else ()) == 1 else "deciding part, e.g. "
    axes.set_xlabel(
        clean(textwrap.shorten(f"{part}{effect.name}", 62 - len(needed), placeholder=" …") + needed)
    )
    title = f"Effects by convention: {ruled.statement.key}"
    return Figure(f"forest-{ruled.statement.key}", title, "", f"{title}. {'; '.join(words)}.", drawing)


def _named(version: str, ruling: Ruling, *, several: bool) -> str:
    choices = [choice for choice in ruling.convention if choice != "first recipe"]
    name = textwrap.shorten(", ".join(choices) or "–", 52, placeholder=" …")
    return f"{name}{f' ({version})' if several else ''}: {ruling.verdict}"


def _shown(ruling: Ruling, *, by_level: bool) -> Effect:
    if ruling.trial is None:
        raise ValueError("rows have trials")
    return ruling.trial.effects[0] if by_level else ruling.trial.deciding
