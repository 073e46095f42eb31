"""The numbers that versions stand for: predictions of rules, values of metrics and samples of oracles.

    python -m tests.bench.record_versions

The command records the numbers of new rules, metrics and versions in ``versions.json``. It refuses numbers
that changed under an unchanged version, and says which version to raise.
"""

import functools
import json
import sys
from pathlib import Path

import numpy as np
import torch

import sdp_ref as sr
from sdp_bench.bench.errors import RefusedError
from sdp_bench.bench.experiments import ci
from sdp_bench.bench.experiments.versions import of_rule
from sdp_bench.bench.gate.cases import Probe, Way, probes
from sdp_bench.bench.gate.predictions import answers
from sdp_bench.bench.identity import OracleKey, Sampling
from sdp_bench.bench.metrics import metric, metrics, oracle
from sdp_bench.bench.metrics.oracle import Oracle, Prediction
from sdp_bench.bench.metrics.references import references
from sdp_bench.bench.noise import noise_of
from sdp_bench.bench.rules import rule_of
from sdp_bench.oracles import sample_outputs

FILE = Path(__file__).with_name("versions.json")
COMMAND = "python -m tests.bench.record_versions"
VARIANTS = (
    "dvia:means=regular",
    "dvia:means=regular_covariance",
    "marginal_moment_matching:precision=1e-5",
    "control_variate:coefficient=jacobian",
    "split:base=sdp,k=3",
)
"""Parameters that choose other formulas; on the committed nets alone."""
RULES = tuple(dict.fromkeys((*ci.RULES, *sr.rules(), *VARIANTS)))
NAMES = ["oracle"]
NAMES += [f"rule {spec}" for spec in (*RULES, *references())]
NAMES += [f"metric {name}" for name in metrics()]

SAMPLES = 2**11
PRECISION = 1e-6
"""Of a number, relative to the largest of its kind in a setting: processors differ by less."""
ROUGH = {"metric bures_logits": 1e-4}
"""The same where rounding shows more: these covariances are singular, and their roots are taken."""
FLIPS = 5 / SAMPLES
"""Of a share of the samples: as many may lie in another cell on another processor."""
SHARES = ("tv_", "moved_class", "coverage", "brier")
"""Beginnings of the names of metrics that count samples."""

_CELLS = ((1, 1.0), (4, 0.1))
"""Depth of a committed net and scale of the noise."""
_EXACT = ("leaky_relu chain", "relu chain, singular input", "relu chain, sigma 0.01")
"""Probes of the rule `exact`, which takes a minute for all of them."""
_TIE = {"split": "relu chain, singular input"}
"""Probe by rule on which two directions are as good, so that rounding chooses between them."""
_SETTINGS = {
    "two outputs": ("gelu chain", "mc"),
    "five outputs": ("relu chain, 12 inputs, 5 outputs", "sobol"),
}
_HEAVY = {"heavy tails": ("relu chain, Cauchy input", "mc")}
NOISE = ("laplace", "uniform", "student_t:5", "cauchy", "stable:1.5", "mixture:0.9*1+0.1*5", "scales:1/0.5/2")
_OPTIONS = {"cells": 32, "pilot_samples": 2**11, "w1_points": 200, "w1_pairs": 4, "certified_points": 200}


@functools.cache
def _probes():
    """Probes in float64 that are asked alone, and two cells of committed nets, by name."""
    cells = [
        Probe(group.title, functools.partial(_net, group), group.law[0].to(dtype=torch.float64))
        for group in ci.groups(["sdp"], inputs=1)
        if (group.net.architecture.depth, group.sigma) in _CELLS
    ]
    alone = [probe for probe in probes() if probe.way is Way.PREPARED and "float32" not in probe.name]
    return {probe.name: probe for probe in (*cells, *alone)}


def _net(group):
    return group.net.build().double()


@functools.cache
def _oracles():
    """Oracles by setting; their samples are seeded by a key in words, and in float64."""
    made = {}
    for name, (probe, sampler) in {**_SETTINGS, **_HEAVY}.items():
        law, net = _probes()[probe].law.to(dtype=torch.float64), _probes()[probe].build().double()
        key = OracleKey(name, "input", "noise", sampler, SAMPLES)
        made[name] = Oracle(net, law, key, Sampling(SAMPLES, SAMPLES, sampler))
    return made


def _predictions(setting):
    """Laws near an oracle's own, by name: whatever rules predict, these are the same."""
    truth = _oracles()[setting]
    if setting in _HEAVY:
        law = sr.Cauchy(torch.zeros(1, 2).double(), torch.ones(1, 2).double())
        return {"Cauchy": Prediction(law, truth, passes=lambda: 11.0)}
    mean = torch.from_numpy(truth.moments.mean)[None]
    covariance = torch.from_numpy(truth.moments.covariance)[None]
    variance = covariance.diagonal(dim1=1, dim2=2)
    drawn = truth.redrawn("a prediction", "mc", 64).double()[None]
    laws = {"shifted": sr.Gaussian(mean + variance.sqrt() / 8, 1.25 * covariance)}
    if setting == "two outputs":
        laws |= {"marginal": sr.DiagonalGaussian(mean, variance), "draws": sr.Empirical(drawn)}
    return {name: Prediction(law, truth, passes=lambda: 11.0) for name, law in laws.items()}


def numbers_of(name):
    """Numbers of the oracle, a rule or a metric today, by what they are."""
    kind, _, spec = name.partition(" ")
    return {"oracle": _of_oracle, "rule": _of_rule, "metric": _of_metric}[kind](spec)


def _of_oracle(_):
    numbers = {}
    for setting, truth in _oracles().items():
        for purpose, samples in {
            "samples": truth.samples,
            "pilot": truth.pilot(SAMPLES),
            "normals": truth.normals,
        }.items():
            numbers[f"{setting}, {purpose}"] = [*samples[:2].flatten().tolist(), *samples[-1].tolist()]
    net = _probes()[_SETTINGS["two outputs"][0]].build().double()
    for text in NOISE:
        law = noise_of(text).law(torch.ones(1, 3).double(), 0.5)
        samples = sample_outputs(net, law, 64, seed=0)
        numbers[f"{text} noise, samples"] = [*samples[0].tolist(), *samples[-1].tolist()]
    return numbers


def _of_rule(spec):
    rule = rule_of(spec)
    if spec in references():
        laws = {name: rule.predict(truth).law for name, truth in _oracles().items() if name in _SETTINGS}
        return {
            f"{name}, {what}": value.flatten().tolist()
            for name, law in laws.items()
            for what, value in (("mean", law.mean), ("covariance", law.covariance))
        }
    names = [name for name in _probes() if name != _TIE.get(rule.name)]
    names = _EXACT if rule.name == "exact" else names[: len(_CELLS)] if spec in VARIANTS else names
    by_key = {_probes()[name].key: name for name in names}
    numbers = {}
    for key, answer in answers(rule, [_probes()[name] for name in names]).items():
        if not answer.error:
            numbers[f"{by_key[key]}, mean"] = answer.mean.tolist()
            numbers[f"{by_key[key]}, covariance"] = answer.spread.flatten().tolist()
    return numbers


def _of_metric(name):
    chosen = metric(name, _OPTIONS)
    numbers = {}
    for setting, truth in _oracles().items():
        for label, prediction in _predictions(setting).items():
            try:
                for component, estimate in chosen.measure(truth, prediction):
                    key = f"{setting}, {label}{f', {component}' if component else ''}"
                    for what in ("value", "floor", "floor95", "stderr"):
                        numbers[f"{key}, {what}"] = [float(getattr(estimate, what))]
            except (RefusedError, ValueError):  # it is for other laws or numbers of outputs
                continue
    return numbers


def version_of(name):
    kind, _, spec = name.partition(" ")
    if kind == "oracle":
        return str(oracle.ORACLE_VERSION)
    return of_rule(rule_of(spec)) if kind == "rule" else str(metrics()[spec].version)


def today(names=NAMES):
    return {name: {"version": version_of(name), "numbers": numbers_of(name)} for name in names}


def recorded():
    return json.loads(FILE.read_text()) if FILE.exists() else {}


def problems(now, before):
    """Return one line for each name whose numbers are not those recorded: what to raise or record."""
    changed, lines = set(), []
    for name, entry in now.items():
        old = before.get(name)
        if old is None:
            lines.append(f"{name} is not recorded yet: run `{COMMAND}`")
            continue
        if not (what := difference(name, entry["numbers"], old["numbers"])):
            continue
        changed.add(name)
        if _cause(name) & changed:
            continue
        line = f"{_described(name)} other numbers than version {old['version']} did ({what})"
        if entry["version"] != old["version"]:
            lines.append(f"{line} and has version {entry['version']}: run `{COMMAND}`")
        else:
            owner, version = _owner(name)
            lines.append(
                f"{line}: if the change is intended, raise {owner} to {version + 1} and run `{COMMAND}`"
            )
    return lines


def difference(name, now, before):
    """Return the largest difference in words, "" if processors may differ by as much."""
    largest, text = 1.0, ""
    for what, old in before.items():
        if what not in now:
            return f"nothing any more for {what}"
        a, b = np.array(now[what]), np.array(old)
        size = np.nanmax(np.abs(b), initial=0.0, where=np.isfinite(b))
        allowed = max(ROUGH.get(name, PRECISION) * size, 1e-12)
        if name.startswith(tuple(f"metric {share}" for share in SHARES)):
            # The floors are simulated from counts: one sample in another cell draws other numbers.
            error = before[f"{what.rpartition(', ')[0]}, stderr"][0]
            allowed = max(allowed, FLIPS, error if what.endswith(("floor", "floor95")) else 0.0)
        same = (a.shape == b.shape) and np.array_equal(np.isfinite(a), np.isfinite(b))
        off = float(np.max(np.abs(a - b), initial=0.0, where=np.isfinite(b))) if same else np.inf
        if off / allowed > largest:
            largest, text = off / allowed, f"{what} off by {off / (size or 1.0):.0e} of its size"
    return text


def _cause(name):
    """Names whose change also changes these numbers, and is then reported instead."""
    kind, _, spec = name.partition(" ")
    if kind == "metric" or spec in references():
        return {"oracle"}
    base = getattr(rule_of(spec), "base", None) if kind == "rule" else None
    return {f"rule {name}" for name in RULES if base is not None and rule_of(name).name == base.name}


def _described(name):
    kind, _, spec = name.partition(" ")
    return {
        "oracle": "the oracle draws",
        "rule": f"rule '{spec}' predicts",
        "metric": f"metric '{spec}' gives",
    }[kind]


def _owner(name):
    """The version to raise in words, and its value."""
    kind, _, spec = name.partition(" ")
    if kind == "oracle":
        return "ORACLE_VERSION (bench/metrics/oracle.py)", oracle.ORACLE_VERSION
    owner = type(rule_of(spec)) if kind == "rule" else metrics()[spec]
    return f"{owner.__name__}.version", owner.version


def record(now, before):
    """Return what the file must hold: recorded numbers of unchanged versions, and all that is new."""
    entries = {}
    for name, entry in now.items():
        old = before.get(name, entry)
        if old["version"] != entry["version"]:
            old = entry
        entries[name] = {**entry, "numbers": {**entry["numbers"], **old["numbers"]}}
    return entries


def write(entries):
    """Write the file, a line for each list of numbers."""
    lines = []
    for name, entry in entries.items():
        rounded = {what: [float(f"{x:.10g}") for x in value] for what, value in entry["numbers"].items()}
        inner = ",\n".join(f"   {json.dumps(what)}: {json.dumps(value)}" for what, value in rounded.items())
        lines.append(
            f' {json.dumps(name)}: {{"version": {json.dumps(entry["version"])}, "numbers": {{\n{inner}\n }}}}'
        )
    FILE.write_text("{\n" + ",\n".join(lines) + "\n}\n")


def main():
    """Record new versions, or exit with the versions to raise."""
    now, before = today(), recorded()
    refused = [line for line in problems(now, before) if "raise " in line]
    if refused:
        sys.exit("\n".join(refused))
    write(record(now, before))
    print(f"{len(now)} versions in {FILE}")


if __name__ == "__main__":
    main()
