"""How tables show a metric, where that hangs on the nets that they are about."""

from __future__ import annotations

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
        Of the metric, as records have it.
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
