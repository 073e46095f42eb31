"""How tables show a metric, where that hangs on the nets that they are about."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from sdp_bench.bench.metrics import Metric, recorded_metric
from sdp_bench.bench.metrics.total_variation import ClassTotalVariation
from sdp_bench.reports.style.nets import NetKind


@dataclass(frozen=True)
class ClassDistance(ClassTotalVariation):
    """The decision's total variation as the paper's tables of image classifiers have it: as a distance."""

    title = "Total variation of the class"
    label = "TV of the class"
    about = (
        "Between the distributions of the arg max, as the paper’s tables have it. Few samples make for a "
        "floor as large as its smallest values."
    )
    better = "lower"
    complement = False
    decimals = 5  # the paper's smallest values would all read 1 − TV = 1.000
    published = "tv_class"
    companion = companion_label = ""


def displayed(name: str, kind: NetKind) -> Metric:
    """Metric of some records as tables show it.

    Parameters
    ----------
    name : str
        Of the metric, or its whole spec, as records have it.
    kind : NetKind
        What the records are of.

    Returns
    -------
    Metric
        The recorded one, but for the decision of image classifiers a distance.
    """
    if name == ClassTotalVariation.name and kind.is_classifier:
        return ClassDistance()
    return recorded_metric(name)


def variants(specs: Collection[str]) -> dict[str, str]:
    """Names of one metric's variants, by the options in which they differ.

    Parameters
    ----------
    specs : collection of str
        Of one metric, as records have them.

    Returns
    -------
    dict of str to str
        By spec, the metric with its default options first: ``bins 20, bin range joint``. A single one has an
        empty name.
    """
    options = {spec: _options(spec) for spec in specs}
    written = list(options.values())
    differing = [name for own in written for name in own if len({other.get(name) for other in written}) > 1]
    usual = _options(next(iter(specs)).partition(":")[0])
    return {
        spec: ", ".join(
            f"{name.replace('_', ' ')} {own[name]}" for name in dict.fromkeys(differing) if name in own
        )
        for spec, own in sorted(options.items(), key=lambda item: (item[1] != usual, item[0]))
    }


def _options(spec: str) -> dict[str, str]:
    """All options of a metric as text; of one whose code is not here those that are written."""
    _, _, written = (spec if ":" in spec else recorded_metric(spec).spec).partition(":")
    pairs = (item.partition("=") for item in written.split(",") if item)
    return {name: value for name, _, value in pairs}
