"""The section on the design of each experiment, compared with the paper's."""

from __future__ import annotations

from collections.abc import Iterator

import pandas as pd

from ....bench.experiments import experiments
from ....bench.experiments.laws import LawExperiment
from ....bench.metrics import recorded_metric
from ...results import POOR_ACCURACY, Results
from ...section import Context, Section
from ...site import MEASURED
from ...style import labels
from ...style.names import NetKind, activation_label, activation_rank
from ...tables.frame import noises_of

SAMPLES = 10**6
W1_POINTS = 30_000
W1_TABLES = ("iris-w1", "iris-w1-certified")
"""Experiments of the paper's tables of W1; those of the claims have a design with fewer points."""
_KINDS = ["experiment", "activation", "depth", "recipe"]
_SUMMARY = ("network", "activation", "depth", "net", "input", "rule", "seconds", "run")
_COLUMNS = (*_KINDS, "net", "input", "noise", "sigma", "metric_spec", "samples", "accuracy")


class WhatWasRun(Section):
    name = "fidelity"
    title = "What was run"
    page = MEASURED
    order = 130

    def build(self, results: Results) -> Context | None:
        frame = results.columns_with_oracle(_SUMMARY)
        if frame.empty:
            return None
        designs = fidelity(results.once_a_unit(_COLUMNS, ("experiment", "metric_spec")), POOR_ACCURACY)
        ran = [*what_ran(frame, results), *missing(results)]
        return {"ran": ran, "designs": designs, "poor": POOR_ACCURACY}


def what_ran(frame: pd.DataFrame, results: Results) -> Iterator[str]:
    """Yield sentences on the numbers of rules, nets and measurements, and on the machine.

    `frame` has the columns of `_SUMMARY`.
    """
    meta, traits = results.meta, results.traits
    nets = frame.drop_duplicates("net")
    kinds = nets.drop_duplicates(["activation", "depth", "network"])
    pairs = frame.drop_duplicates(["net", "input"])
    rules = [rule for rule in frame["rule"].unique() if not traits.is_reference(rule)]
    counts = (
        f"{labels.plural(len(rules), 'rule')} on {labels.plural(len(nets), 'trained net')} "
        f"of {labels.plural(len(kinds), 'kind')}, {labels.plural(len(pairs), 'pair')} of net and input, "
        f"{labels.plural(len(frame), 'measurement')}"
    )
    earlier = int((frame["run"] != meta["run"]).sum()) if "run" in meta else 0
    if earlier:
        counts += f", {earlier:,} of them by earlier runs"
    # Committed results are of several runs, each with its own preset.
    preset = "" if results.published else meta.get("preset")
    yield f"Preset {preset}: {counts}." if preset else f"{counts}."
    if len(pairs) == len(kinds):
        yield "Each number is of a single net and input, so no spread is known."
    environment = meta.get("environment", {})
    processors = [environment.get("cpu"), environment.get("gpu")]
    known = [str(processor) for processor in processors if processor not in (None, "", "none")]
    if known:
        duration = f"Took {labels.duration(float(meta['seconds']))}" if meta.get("seconds") else "Run"
        cores = f", {labels.plural(environment['cores'], 'core')}" if environment.get("cores") else ""
        yield f"{duration} on {' and '.join(known)}{cores}."


def missing(results: Results) -> Iterator[str]:
    """Yield sentences on failures, and on what was skipped before the run."""
    if len(results.failed):
        yield f"{labels.plural(len(results.failed), 'failure')}, listed below."
    skipped: dict[str, list[str]] = {}  # rules with their nets, and experiments
    left_out = results.meta.get("left_out") or ()
    for entry in sorted(left_out, key=lambda entry: activation_rank(entry.where)):
        if entry.rule is None:
            skipped[entry.where] = []
        else:
            skipped.setdefault(results.traits.label(entry.rule), []).append(activation_label(entry.where))
    if skipped:
        distinct = {name: ", ".join(dict.fromkeys(nets)) for name, nets in skipped.items()}
        parts = [f"{name} on {nets}" if nets else name for name, nets in distinct.items()]
        yield f"Skipped (no formula, or too slow): {'; '.join(parts)}."


def fidelity(frame: pd.DataFrame, poor: float) -> list[Context]:
    """Designs by experiment and kind of net.

    `full` says whether the design is the experiment's own or larger. For the paper's tables this is the
    paper's: 10 nets with 10 inputs, 10^6 samples and, for W1, 30 000 points a side (0: no W1). `poor` is the
    training accuracy below which a net counts as not having learned.
    """
    designs: list[Context] = []
    for (experiment, activation, depth, recipe), part in frame.groupby(_KINDS, sort=True):
        counts = part.drop_duplicates(["net", "input"]).groupby("net")["input"].size()
        nets = part.drop_duplicates("net")
        kind = NetKind(str(activation), int(depth))  # type: ignore[call-overload]
        points = max(recorded_metric(str(spec)).points for spec in part["metric_spec"].unique())
        low, high = int(counts.min()), int(counts.max())
        designs.append(
            {
                "experiment": str(experiment),
                "layers": kind.label,
                "nets": len(nets),
                "inputs": f"{low}" if low == high else f"{low}-{high}",
                "samples": int(part["samples"].min()),
                "points": points,
                "poor": 0 if kind.is_classifier else int((nets["accuracy"] < poor).sum()),
                "recipe": str(recipe),
                "full": _full(str(experiment), part, low, points),
            }
        )
    return designs


def _full(name: str, part: pd.DataFrame, inputs: int, points: int) -> bool:
    known = experiments().get(name)
    if not isinstance(known, LawExperiment):
        return False
    paper = known.paper
    return (
        part["net"].nunique() >= (paper.nets or 0)
        and inputs >= (paper.inputs or 0)
        and bool((part["samples"] >= (paper.samples or SAMPLES) * known.scale).all())
        and set(known.sigmas) <= set(part["sigma"])
        and set(noises_of(name)) <= set(part["noise"])
        and (name not in W1_TABLES or points >= W1_POINTS)
    )
