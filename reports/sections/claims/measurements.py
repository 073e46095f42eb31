"""Which measurements the effects of the claims are made of."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from sdp_bench.bench.metrics import Metric, recorded_metric
from sdp_bench.reports.numbers.number import FOLDER, Group, Number, Page, slug
from sdp_bench.reports.sections.claims.claims import ACTIVATION, CLAIMS, SUITES, quantity
from sdp_bench.reports.sections.claims.judging import Finding, Ruling
from sdp_bench.reports.statistics.rows import Labels
from sdp_bench.reports.style.nets import NetKind
from sdp_bench.reports.style.rules import RuleTraits
from sdp_bench.reports.tables.frame import by_kind, coded, places

_ABOUT = (
    "Claims compare rules net by net: a score of each measurement is averaged over the inputs (and outputs) "
    "of a net first, and over nets then; what stands at each list is the plain mean of what was measured."
)

_NEEDED = ["experiment", "activation", "depth", "sigma", "rule", "metric_spec", "component", "value"]
_CELL = ("recipe", "metric_spec", "depth", "sigma", "rule")


def numbers_of_claims(frame: pd.DataFrame, traits: RuleTraits) -> Iterator[Number]:
    """Means that the claims' effects are made of: every rule and sigma that a claim is about."""
    own = frame[_NEEDED][frame["experiment"].isin(SUITES.keys()) & (frame["activation"] == ACTIVATION)]
    own = own.assign(recipe=by_kind(own["experiment"], SUITES.__getitem__))
    cells = {
        (measured, part.depth, sigma, rule)
        for claim in CLAIMS
        for part in claim.parts
        for rule, sigma in part.cells
        for measured in part.scale.quantities
    }
    value, (component, _) = own["value"].to_numpy(float), coded(own["component"])
    for (recipe, spec, depth, sigma, rule), rows in places(own, _CELL):
        measured = quantity(spec)
        if (measured, int(depth), sigma, rule) not in cells:
            continue
        metric = recorded_metric(spec)
        heading = f"{metric.label}: {metric.variant}" if metric.convention else metric.title
        layers = NetKind(ACTIVATION, int(depth)).label
        title = f"{layers}, {recipe}" if recipe else layers
        page = Page(_file(recipe, int(depth)), title, "the paper’s claims", "claims", _ABOUT)
        yield Number(
            Group(page, slug(measured), heading, metric),
            _anchor(measured, sigma, rule),
            f"{traits.label(rule)}, σ = {sigma:g}",
            _mean(metric, value[rows]),
            Labels(own.index[rows]),
            ("component",) if np.ptp(component[rows]) else (),
        )


def addresses(ruling: Ruling, finding: Finding) -> list[tuple[str, str]]:
    """What an effect is made of: names of rules, with sigma where there are several, and addresses."""
    part = finding.part
    measured = part.scale.metric or ruling.column
    several = len({sigma for _, sigma in part.cells}) > 1
    lists = {}
    for rule, sigma in part.cells:
        name = finding.traits.label(rule) + (f" at σ = {sigma:g}" if several else "")
        anchor = _anchor(measured, sigma, rule)
        lists[name] = f"{FOLDER}/{_file(ruling.recipe, part.depth)}#{anchor}"
    return list(lists.items())


def _file(recipe: str, depth: int) -> str:
    return f"{slug('claims', str(depth), recipe)}.html"


def _anchor(measured: str, sigma: float, rule: str) -> str:
    return slug(measured, f"{sigma:g}", rule)


def _mean(metric: Metric, values: NDArray[np.float64]) -> float:
    return float(metric.shown(values).mean()) if np.isfinite(values).all() else math.inf
