"""Manifests of oracles: how each was drawn, and statistics that another draw must reproduce.

Those of the CI cells are committed (`MANIFESTS`). Continuous integration draws a part of them again in every
run (`verify`). Changes of the code that draws samples are guarded by ``tests/bench/test_versions.py``;
manifests show that another platform draws the same samples.
"""

from __future__ import annotations

import os
import platform
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from sdp_bench.bench import environment, files
from sdp_bench.bench.errors import UserError
from sdp_bench.bench.experiments import ci
from sdp_bench.bench.experiments.law_group import LawGroup
from sdp_bench.bench.identity import digest
from sdp_bench.bench.metrics.oracle import Oracle
from sdp_bench.oracles.partitions.partition import Classes

SCHEMA = 1
MANIFESTS = Path(__file__).resolve().parents[1] / "reports" / "baselines" / "oracles.json"
METHODS = {"mc": "plain Monte Carlo", "sobol": "scrambled Sobol points, 16 independent scrambles"}
QUANTILES = (0.01, 0.05, 0.25, 0.5, 0.75, 0.95, 0.99)
ROWS = 16  # single samples recorded, evenly spaced: any other draw differs there

TOLERANCES = {"rows": 5e-5, "quantiles": 5e-5, "mean": 0.1, "covariance": 0.01, "classes": 1e-4}
"""Differences of two draws with one seed that rounding explains: single samples and quantiles in standard
deviations of the output, moments in their standard errors, and the share of samples of another class.

Over all CI cells, the largest differences of the same draw with kernels without FMA and AVX
(MKL_CBWR=COMPATIBLE) were 8.2e-6 sd, 0.004 and 0.0009 standard errors, and no class. In float64, which
differs more than any float32 platform can, they were 9.4e-6, 0.064, 0.0024, and none.
"""

Manifest = Mapping[str, Any]
Source = tuple[LawGroup, int, Oracle]
"""An oracle with its group and the index of its input in the group."""


def oracles(groups: Iterable[LawGroup]) -> Iterator[Source]:
    """Yield each group's oracles with their indices, not drawn yet, as in a run."""
    for group in groups:
        net, law = group.net.build(), group.law
        for index, subject in enumerate(group.subjects):
            yield group, index, Oracle(net, law[index], subject.key, group.settings.sampling)


def ci_oracles() -> list[Source]:
    """Return the oracles of the CI cells (`sdp_bench.bench.experiments.ci`), not drawn yet."""
    return list(oracles(ci.groups(("sdp",))))  # one rule is enough: oracles do not depend on the rules


def record(group: LawGroup, index: int, oracle: Oracle) -> Manifest:
    """Return the manifest of an oracle of a group's input: plain values, with a hash of the content."""
    architecture, software = group.net.architecture, environment.describe("cpu", 1, 1)
    names = ("cpu", "python", "torch", "numpy", "scipy", "platform", "sdp-bench")
    content = {
        "oracle": asdict(oracle.key),
        "net": f"{architecture.label} {architecture.activation} seed {group.net.seed}",
        "row": group.subjects[index].row,
        "sigma": group.sigma,
        "method": METHODS[oracle.key.sampler],
        "seed": oracle.key.seed("oracle"),
        "statistics": statistics_of(oracle),
        "versions": {"machine": platform.machine(), **{name: str(software[name]) for name in names}},
    }
    return {"key": oracle.key.hex, **content, "hash": digest(content)[:16]}


def statistics_of(oracle: Oracle) -> dict[str, Any]:
    """Return the statistics of an oracle's samples, as nested lists.

    The standard errors are those of the multiplier bootstrap in `Moments`, without simulation.
    """
    moments, values = oracle.moments, oracle.samples.double().numpy()
    weights = moments.block_weights
    squares = weights**2 * len(weights) / (len(weights) - 1)
    means = np.square(moments.block_means - moments.mean)
    covariances = np.square(moments.block_covariances - moments.covariance)
    return {
        "dtype": str(oracle.samples.dtype).removeprefix("torch."),
        "digest": digest(oracle.samples)[:32],  # of all bits of all samples
        "rows": values[:: len(values) // ROWS][:ROWS].tolist(),
        "mean": moments.mean.tolist(),
        "mean_stderr": np.sqrt(np.einsum("b,bi->i", squares, means)).tolist(),
        "covariance": moments.covariance.tolist(),
        "covariance_stderr": np.sqrt(np.einsum("b,bij->ij", squares, covariances)).tolist(),
        "quantiles": np.quantile(values, QUANTILES, axis=0).tolist(),
        "classes": Classes(values.shape[1]).counts(oracle.samples).tolist(),
    }


def save(manifests: Iterable[Manifest], path: Path = MANIFESTS) -> None:
    """Write manifests atomically, with one line per list of numbers for readable diffs."""
    plain = {"schema": SCHEMA, "oracles": list(manifests)}
    files.write(path, f"{files.as_text(plain, lists_apart=True)}\n")


def load(path: Path = MANIFESTS) -> list[Manifest]:
    """Read the manifests of a file; a UserError if it is missing, damaged or edited, or has none."""
    again = "`sdp-bench oracles record` writes it"
    try:
        plain = files.read_json(path)
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror}; {again}") from error
    except ValueError as error:
        raise UserError(f"{path} is not a file of manifests: {error}") from error
    if not isinstance(plain, dict) or plain.get("schema") != SCHEMA:
        raise UserError(f"{path} is not a file of manifests of schema {SCHEMA}")
    if not (isinstance(found := plain.get("oracles"), list) and found):
        raise UserError(f"{path} has no manifests; {again}")
    for entry in found:
        content = {name: value for name, value in dict(entry).items() if name not in ("key", "hash")}
        if digest(content)[:16] != entry.get("hash"):
            raise UserError(
                f"{path} was damaged or edited (the manifest of oracle {entry.get('key')} does not match its "
                f"hash); restore it, or {again}"
            )
    return found


def title_of(manifest: Manifest) -> str:
    """Return the display name of an oracle."""
    return f"{manifest['key']} ({manifest['net']}, input {manifest['row']}, sigma {manifest['sigma']:g})"


def verify(
    path: Path = MANIFESTS,
    shard: tuple[int, int] | None = None,
    *,
    sources: Sequence[Source] | None = None,
    report: Callable[[int, int, str], object] = lambda *_: None,
) -> tuple[dict[str, list[str]], str]:
    """Draw a part of the recorded oracles again; return their disagreements by title, and which part it was.

    `shard` is (i, n), counted from 1. `sources` are oracles of the current code, by default those of the CI
    cells; a manifest without such an oracle and an oracle without manifest are disagreements, too.
    """
    manifests = load(path)
    (part, parts), reason = (shard, "request") if shard else rotating_shard()
    today = {source[2].key.hex: source for source in sources or ci_oracles()}
    chosen = manifests[part - 1 :: parts]
    if not chosen:
        raise UserError(f"part {part}/{parts} by {reason} is empty: {path} has {len(manifests)} manifests")
    missing = "missing: has no manifest; `sdp-bench oracles record` writes it"
    unknown = (
        "unknown: no oracle of the current code has this key; its net, input, noise or sampling has changed"
    )
    new = [today[key] for key in today.keys() - {manifest["key"] for manifest in manifests}]
    found = {f"{o.key.hex} ({group.title}, input {group.subjects[i].row})": [missing] for group, i, o in new}
    found |= {title_of(manifest): [unknown] for manifest in manifests if manifest["key"] not in today}
    for done, manifest in enumerate(chosen, 1):
        if manifest["key"] in today:
            found[title_of(manifest)] = compare(manifest, today[manifest["key"]][2])
            report(done, len(chosen), title_of(manifest))
    return found, f"{len(chosen)} of {len(manifests)} recorded oracles, part {part}/{parts} by {reason}"


def rotating_shard() -> tuple[tuple[int, int], str]:
    """Return the current part (i, 4), counted from 1, and what selected it.

    Selected by the run number on GitHub Actions, otherwise by the day of the year (UTC): consecutive runs or
    days cover all parts.
    """
    run = os.environ.get("GITHUB_RUN_NUMBER", "")
    day = datetime.now(UTC).timetuple().tm_yday
    number, reason = (
        (run, f"GITHUB_RUN_NUMBER={run}") if run.isdigit() else (day, f"the day of the year, {day}")
    )
    return (int(number) % 4 + 1, 4), reason


def compare(manifest: Manifest, oracle: Oracle) -> list[str]:
    """Return the differences of an oracle from its manifest that are larger than rounding."""
    stored, seed = manifest["statistics"], oracle.key.seed("oracle")
    found = [f"seed: the key gives {seed}, recorded is {manifest['seed']}"] * (seed != manifest["seed"])
    try:
        again = statistics_of(oracle)
    except (ValueError, RuntimeError) as error:
        return [*found, f"samples: cannot be drawn again: {str(error).splitlines()[0]}"]
    if again["dtype"] != stored["dtype"]:
        found.append(f"dtype: samples are {again['dtype']}, recorded {stored['dtype']}")
    deviation = np.sqrt(np.diag(stored["covariance"]))
    for name, scale, unit in (
        ("rows", deviation, "sd"),
        ("quantiles", deviation, "sd"),
        ("mean", np.array(stored["mean_stderr"]), "standard errors"),
        ("covariance", np.array(stored["covariance_stderr"]), "standard errors"),
        ("classes", 2 * np.sum(stored["classes"]), "of the samples"),
    ):
        before, now = np.array(stored[name], float), np.array(again[name], float)
        if before.shape != now.shape:
            found.append(f"shape: {name} has shape {now.shape}, recorded is {before.shape}")
            continue
        difference = np.abs(before - now)
        # A constant output has no spread: any difference counts.
        with np.errstate(divide="ignore", invalid="ignore"):
            sizes = np.where(difference == 0, 0.0, difference / scale)
        distance = float(sizes.sum() if name == "classes" else sizes.max())
        if not distance <= TOLERANCES[name]:  # NaN is a disagreement
            found.append(f"{name}: off by {distance:.2g} {unit}, allowed {TOLERANCES[name]:.2g}")
    return found
