"""How tables show a metric that is displayed differently for some kinds of nets."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from sdp_bench.bench.metrics import Metric, recorded_metric
from sdp_bench.bench.metrics.total_variation import ClassTotalVariation
from sdp_bench.reports.style.nets import NetKind


@dataclass(frozen=True)
class ClassDistance(ClassTotalVariation):
    """The total variation of the decision as a distance, as in the paper's tables of image classifiers."""

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
    """Return a recorded metric, by name or spec, as tables show it for nets of this kind."""
    if name == ClassTotalVariation.name and kind.is_classifier:
        return ClassDistance()
    return recorded_metric(name)


def variants(specs: Collection[str]) -> dict[str, str]:
    """Return names for the variants of one metric, by spec, from the options in which they differ.

    An example is ``bins 20, bin range joint``. The variant with default options comes first. The name is
    empty if there is only one variant.
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
    """Options of a metric as text; only the written ones if its code is not available here."""
    _, _, written = (spec if ":" in spec else recorded_metric(spec).spec).partition(":")
    pairs = (item.partition("=") for item in written.split(",") if item)
    return {name: value for name, _, value in pairs}
