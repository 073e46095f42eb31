"""Measurements made up for the tests: frames of the shape of real ones, and folders of results with them."""

import hashlib
from dataclasses import asdict

import numpy as np
import pandas as pd

from sdp_bench.bench.results.columns import FAILED, MEASURED, MEASUREMENT, PLAN, typed
from sdp_bench.bench.results.folder import Writer, new_run
from sdp_bench.bench.settings import Settings
from sdp_bench.reports import results as real
from sdp_bench.reports.page import cover, pages, parts
from sdp_bench.reports.section import sections
from sdp_bench.reports.style.names import RuleTraits
from sdp_bench.reports.tables.frame import checked as real_checked
from sdp_bench.reports.tables.frame import noises_of
from sdp_bench.reports.writing import environment


def completed(frame):
    """Measurements with the columns of those in a results file."""
    if frame.empty:
        return frame
    noise = {name: next(iter(noises_of(name)), "") for name in frame["experiment"].dropna().unique()}
    known = {"metric_spec": frame.metric, "noise": frame["experiment"].map(noise), "samples": 10**6, "run": 1}
    for name, own in (known | dict.fromkeys(("recipe", "dataset", "objective", "precision"), "")).items():
        frame = frame.assign(**{name: frame[name].astype(object).fillna(own) if name in frame else own})
    names = ["net", "seed", "input", "sigma", "noise", "samples", "recipe", "dataset", "objective"]
    if "unit" not in frame or frame["unit"].isna().any():
        unit = frame.groupby(names, dropna=False, observed=True).ngroup()
        frame = frame.assign(unit=unit.map("{:016x}".format))
    return frame


def checked(frame):
    return real_checked(completed(frame))


def Results(frame, *args, **more):  # noqa: N802
    return real.Results(completed(frame), *args, **more)


TRAITS = RuleTraits()
"""Of the package's own rules."""

DETERMINISTIC = ("sdp", "dvia", "moment_matching", "marginal_sdp", "marginal_moment_matching")
MONTE_CARLO = (
    "monte_carlo:samples=5",
    "monte_carlo:samples=10",
    "monte_carlo:samples=100",
    "monte_carlo:samples=1000",
)
RULES = DETERMINISTIC + MONTE_CARLO
FEW = ("sdp", "dvia", "monte_carlo:samples=100")
TV_SIGMAS = (0.1, 1.0, 10.0, 100.0, 1000.0)
W1_SIGMAS = (0.01, 0.1, 1.0)

_TV = dict(zip(RULES, (0.01, 0.02, 0.012, 0.72, 0.7, 0.22, 0.15, 0.05, 0.02), strict=True))
_GROWTH = {"sdp": 0.06, "dvia": 0.055, "moment_matching": 0.045}
_COST = dict(zip(DETERMINISTIC, (2e-3, 9e-2, 4e-1, 8e-4, 1e-3), strict=True))


def frame(
    depths=(1, 2, 4),
    nets=2,
    inputs=2,
    rules=RULES,
    experiments=("iris-tv", "iris-w1", "iris-std"),
    seed=0,
    activation="relu",
):
    """Long-format measurements like those of the quick preset."""
    rng = np.random.default_rng(seed)
    rows = []
    for depth in depths:
        network = "4" + "-100" * depth + "-3"
        for number in range(nets):
            net = hashlib.sha256(f"{network} {number}".encode()).hexdigest()[:16]
            accuracy = 0.87 if (depth, number) == (4, 1) else 0.98 - 0.005 * number
            for place in range(inputs):
                subject = {"network": network, "activation": activation, "depth": depth, "net": net}
                subject |= {"seed": number, "input": 7 + 31 * place + number, "accuracy": accuracy}
                rows += [subject | row for row in _measurements(depth, rules, experiments, rng)]
    return pd.DataFrame(rows)


def _measurements(depth, rules, experiments, rng):
    if "iris-tv" in experiments:
        for sigma in TV_SIGMAS:
            yield from _tv(depth, sigma, rules, rng)
    if "iris-w1" in experiments:
        for sigma in W1_SIGMAS:
            for rule in rules:
                floor = 0.3 * sigma * depth
                value = floor * (1 + 8 * _TV.get(rule, 0.3)) * float(np.exp(rng.normal(0, 0.1)))
                errors = floor, floor * 1.12, 0.02 * value
                yield _record("iris-w1", sigma, rule, "w1", "", value, *errors, "output")
    if "iris-std" in experiments:
        for sigma in TV_SIGMAS:
            yield from _moments(depth, sigma, rules, rng)


def _tv(depth, sigma, rules, rng):
    decade = np.log10(sigma) + 1
    scales = {"tv_headline": (1.0, 0.0127), "tv_paper": (0.8, 0.003), "tv_class": (0.25, 0.0008)}
    for rule in rules:
        base = _TV.get(rule, 0.3) + _GROWTH.get(rule, 0.05) * decade * np.sqrt(depth)
        base = min(float(base * np.exp(rng.normal(0, 0.08))), 0.97)
        for metric, (scale, floor) in scales.items():
            value = float(np.hypot(scale * base, floor))
            if rule == "moment_matching" and sigma == 0.1:
                value = floor * (1 + 0.02 * float(rng.normal()))
            yield _record("iris-tv", sigma, rule, metric, "", value, floor, floor * 1.05, 4e-4, "1")
        for pair in ("0-1", "0-2", "1-2"):
            value = 0.5 * base * float(rng.uniform(0.5, 1))
            yield _record("iris-tv", sigma, rule, "tv_difference", pair, value, 0.003, 0.0035, 4e-4, "1")


def _moments(depth, sigma, rules, rng):
    for rule in rules:
        marginal = rule.startswith("marginal")
        for output in range(3):
            ratio = 0.02 if marginal else 1 + 0.3 * _TV.get(rule, 0.3) * (np.log10(sigma) + 1)
            value = float(ratio * np.exp(rng.normal(0, 0.05)))
            yield _record("iris-std", sigma, rule, "std_ratio", str(output), value, 1.0, 1.0014, 7e-4, "1")
        bures = sigma * depth * (2.0 if marginal else 0.1) * float(np.exp(rng.normal(0, 0.1)))
        errors = 0.002 * sigma, 0.003 * sigma, 0.01 * bures
        yield _record("iris-std", sigma, rule, "bures", "", bures, *errors, "output")
        infinite = rule == "monte_carlo:samples=5" and sigma == 1000
        kl = np.inf if infinite else 0.1 * (np.log10(sigma) + 1.5) * depth
        yield _record("iris-std", sigma, rule, "gaussian_kl", "", kl, 1e-5, 2e-5, 1e-4, "nat")
        low = -1e-3 if rule == "dvia" and depth == 4 and sigma >= 10 else 1e-4
        yield _record("iris-std", sigma, rule, "min_eigenvalue", "", low, 0.0, 0.0, 0.0, "1")


def table(columns, rows, **fixed):
    """A frame of rows with columns that are named in a line, and others that are the same in all."""
    return pd.DataFrame(rows, columns=columns.split()).assign(**fixed)


ROW = {
    "experiment": "iris-tv",
    "network": "4-100-100-100-100-3",
    "activation": "relu",
    "depth": 4,
    "net": "net0",
    "seed": 0,
    "input": 0,
    "sigma": 1.0,
    "rule": "sdp",
    "metric": "tv_headline",
    "component": "",
    "floor": 0.01,
    "floor95": 0.012,
    "stderr": 4e-4,
    "unit_of_measure": "1",
    "seconds": 1e-3,
    "accuracy": 0.98,
}
"""A measurement but for its value."""


def row(value, **changes):
    """A measurement of SDP under noise of scale 1, with changes."""
    return ROW | {"value": float(value)} | changes


def _record(experiment, sigma, rule, metric, component, value, floor, floor95, stderr, unit):
    samples = int(rule.partition("samples=")[2] or 0)
    own = {"experiment": experiment, "sigma": sigma, "rule": rule, "metric": metric, "component": component}
    traits = {"sampling": TRAITS[rule].sampling, "reference": TRAITS[rule].reference}
    errors = {"floor": floor, "floor95": floor95, "stderr": stderr, "unit_of_measure": unit}
    return own | traits | errors | {"value": float(value), "seconds": _COST.get(rule, 2e-4 + 2e-6 * samples)}


_ERROR = "ValueError: <covariance> is not finite & cannot be sampled"
FAILURES = pd.DataFrame(
    [("iris-tv 4-100x4-3 net 3f2a sigma 1000", "dvia", None, _ERROR, 0.21, FAILED)],
    columns=["group", "rule", "metric", "error", "seconds", "status"],
)
NO_FAILURES = FAILURES.iloc[:0]


def meta(data=None):
    columns = ["network", "activation", "depth", "seed", "net", "accuracy"]
    nets = []
    if data is not None and not data.empty:
        own = data.dropna(subset="net").drop_duplicates("net")[columns].rename(columns={"net": "digest"})
        recipe = '{"optimizer": "sgd", "learning_rate": 0.01, "epochs": 5000, "features": "raw"}'
        nets = own.assign(recipe=recipe, source="trained").to_dict("records")
    return {
        "command": "sdp-bench run iris-tv iris-w1 iris-std --preset quick",
        "preset": "quick",
        "started": "2025-11-21T09:00:00+00:00",
        "finished": "2025-11-21T09:03:21+00:00",
        "seconds": 201.4,
        "options": {"recipe": "by depth: SGD 1e-2 to 6 layers", "features": "raw", "samples": 1000000},
        "environment": {
            "cpu": "Made-up CPU @ 2.60GHz",
            "gpu": "none",
            "cores": 2,
            "torch": "2.13.0",
            "numpy": "2.3.1",
            "POT": "0.9.7",
            "python": "3.11.2",
            "commit": "0123456",
        },
        "counts": {"groups": 90, "measurements": 0 if data is None else len(data), "failures": 1},
        "nets": nets,
    }


DEFAULTS = {
    "experiment": "iris-tv",
    "group": "made-up",
    "unit": "0" * 16,
    "marginal": False,
    "reference": False,
    "rank": 0,
    "fingerprint": "rule 1, metric 1, oracle 1",
    "status": MEASURED,
}
"""Values of columns that rows of results do not have."""


def columns_of(traits):
    """The columns of rows that hold the traits of a rule."""
    fields = asdict(traits)
    return {"rule_label": fields.pop("label"), **fields}


def write_results(folder, rows, *, measured=None, nets=None, finished=True, **described):
    """Write a run that requests rows (a frame), has measured them or some others, and return its id."""
    rows = pd.DataFrame(rows)
    rows = rows.assign(**{name: value for name, value in DEFAULTS.items() if name not in rows})
    if "rule" in rows and "rule_label" not in rows:
        rows = rows.assign(rule_label=rows["rule"])
    description = {
        "command": "sdp-bench run",
        "preset": "quick",
        "settings": Settings().as_dict(),
        "code": "",
    }
    description |= {"experiments": tuple(rows["experiment"].unique()), "left_out": (), "environment": {}}
    plan = typed(rows, PLAN).drop_duplicates(ignore_index=True)
    run = new_run(folder, plan, nets or {}, **description | described)
    writer = Writer(run)
    found = typed(rows if measured is None else rows[measured], MEASUREMENT)
    if len(found):
        writer.write("made-up", found.drop_duplicates(ignore_index=True))
    if finished:
        writer.finish(1.0)
    return run.id


SECTIONS = sections()


def some(*names):
    return [section for section in SECTIONS if section.name in names]


PLAIN = some("settings", "tables")


def results(data, failures=NO_FAILURES, **more):
    return Results(data, meta(data), failures, **more)


def page(results, sections=SECTIONS):
    """The pages of some results, one after the other, and their numbers."""
    made, numbers, _ = parts(results, sections)
    return "\n".join(pages(made, cover(results, "results.csv")).values()), numbers


def rendered(section, /, **context):
    """What a section's template makes of a context."""
    return environment(TRAITS).get_template(str(section.template)).render(context)


def titles(figure):
    return [axes.get_title(loc="left") for axes in figure.drawing.axes]


def written(axes):
    return [text.get_text() for text in axes.texts]
