"""Manifests of oracles: how each was made, statistics that it must reproduce, and the checks that it passed.

Those of the CI cells are committed (`MANIFESTS`). Continuous integration draws a part of them again in every
run (`verify`). Changes of the code that draws samples are guarded by ``tests/bench/test_versions.py``;
manifests show that recorded oracles are right, and that another platform draws the same ones.
"""

from __future__ import annotations

import json
import math
import os
import platform
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import stats
from torch import Tensor, nn

import sdp_ref
from sdp_bench.bench import environment, files
from sdp_bench.bench.errors import RunFailedError, UserError
from sdp_bench.bench.experiments import ci
from sdp_bench.bench.experiments.law_group import LawGroup
from sdp_bench.bench.identity import OracleKey, Sampler, digest
from sdp_bench.bench.metrics.oracle import Oracle, independent_blocks
from sdp_bench.bench.metrics.total_variation import HeadlineTotalVariation
from sdp_bench.oracles.moments.moments import Moments
from sdp_bench.oracles.partitions.partition import Classes
from sdp_bench.oracles.partitions.precision import precise
from sdp_bench.oracles.partitions.tree import EqualMassTree
from sdp_ref.rules.base import as_gaussian

SCHEMA = 1
MANIFESTS = Path(__file__).resolve().parents[1] / "reports" / "baselines" / "oracles.json"
METHODS = {"mc": "plain Monte Carlo", "sobol": "scrambled Sobol points, 16 independent scrambles"}
LEVEL = 1e-4
"""A check fails if agreement as poor as observed has this probability: one in 10^4 fails by chance."""

QUANTILES = (0.01, 0.05, 0.25, 0.5, 0.75, 0.95, 0.99)
_VERSIONS = ("cpu", "python", "torch", "numpy", "scipy", "platform", "sdp-bench")
ROWS = 16  # single samples recorded, evenly spaced: any other draw differs there

TOLERANCES = {"samples": 5e-5, "mean": 0.1, "covariance": 0.01, "cells": 2e-3, "classes": 1e-4}
"""Differences of two draws with one seed that rounding explains: single samples and quantiles in standard
deviations of the output, moments in their standard errors, and shares of samples in other cells or of another
class.

Over all CI cells, the largest differences of the same draw with kernels without FMA and AVX
(MKL_CBWR=COMPATIBLE) were 8.2e-6 sd, 0.004 and 0.0009 standard errors, 8e-4 of the samples, and no class. In
float64, which differs more than any float32 platform can, they were 9.4e-6, 0.064, 0.0024, 1.1e-3, and none.
"""

Array = NDArray[np.float64]
Source = tuple[LawGroup, int, Oracle]
"""An oracle with its group and the index of its input in the group."""


@dataclass(frozen=True)
class Manifest:
    """An oracle with everything needed to draw it again, as plain values."""

    oracle: OracleKey  # net, input, noise, sampler and number of samples
    net: str  # display name of the net
    row: int  # row of the input in the data set
    sigma: float
    method: str
    seed: int  # seed of the samples
    pilot: dict[str, int]  # seed, samples and number of cells of the draw from which the cells are derived
    statistics: dict[str, Any]  # see `statistics_of`
    cells: dict[str, Any]  # see `cells_of`
    checks: tuple[dict[str, Any], ...]  # see `checks_of`; all passed when it was recorded
    versions: dict[str, str]

    @property
    def key(self) -> str:
        return self.oracle.hex

    @property
    def title(self) -> str:
        return f"{self.key} ({self.net}, input {self.row}, sigma {self.sigma:g})"

    def as_dict(self) -> dict[str, Any]:
        """Return plain values with the oracle's key and a hash of the content, 16 hexadecimal digits."""
        content = json.loads(json.dumps(asdict(self)))
        return {"key": self.key, **content, "hash": digest(content)[:16]}

    @classmethod
    def from_dict(cls, plain: Mapping[str, Any]) -> Manifest:
        """Inverse of `as_dict`; a ValueError if the content does not match its hash."""
        content = {name: value for name, value in plain.items() if name not in ("key", "hash")}
        if digest(content)[:16] != plain.get("hash"):
            raise ValueError(f"the manifest of oracle {plain.get('key')} does not match its hash")
        checks = tuple(content["checks"])
        return cls(**{**content, "oracle": OracleKey(**content["oracle"]), "checks": checks})


def oracles(groups: Iterable[LawGroup]) -> Iterator[Source]:
    """Yield each group's oracles with their indices, as in a run; nothing is drawn yet."""
    for group in groups:
        net, law = group.net.build(), group.law
        for index, subject in enumerate(group.subjects):
            yield group, index, Oracle(net, law[index], subject.key, group.settings.sampling)


def ci_oracles() -> list[Source]:
    """Return the oracles of the CI cells (`sdp_bench.bench.experiments.ci`), not drawn yet."""
    return list(oracles(ci.groups(("sdp",))))  # one rule is enough: oracles do not depend on the rules


# Recording --------------------------------------------------------------------------------------


def record(group: LawGroup, index: int, oracle: Oracle) -> Manifest:
    """Return the manifest of an oracle of a group's input; a RunFailedError if a check fails."""
    subject, key = group.subjects[index], oracle.key
    headline = HeadlineTotalVariation.of({}, group.settings.metric_options)
    tree = headline.partition(oracle)
    pilot = oracle.pilot(headline.pilot_samples)
    statistics = statistics_of(oracle.samples, oracle.moments, pilot, tree)
    architecture, software = group.net.architecture, environment.describe("cpu", 1, 1)
    manifest = Manifest(
        oracle=key,
        net=f"{architecture.label} {architecture.activation} seed {group.net.seed}",
        row=subject.row,
        sigma=group.sigma,
        method=METHODS[key.sampler],
        seed=key.seed("oracle"),
        pilot={"seed": _pilot_seed(oracle), "samples": len(pilot), "cells": headline.cells},
        statistics=statistics,
        cells=cells_of(tree),
        checks=tuple(checks_of(oracle, statistics, tree)),
        versions={"machine": platform.machine(), **{name: str(software[name]) for name in _VERSIONS}},
    )
    if failed := [check for check in manifest.checks if not check["passed"]]:
        reasons = "; ".join(f"{check['name']}: {check['detail']}" for check in failed)
        raise RunFailedError(f"oracle {manifest.title} is not recorded, since a check failed: {reasons}")
    return manifest


def _pilot_seed(oracle: Oracle) -> int:
    """Return the pilot's seed; see `sdp_bench.bench.metrics.oracle.Oracle.pilot`."""
    samples = min(oracle.sampling.pilot_samples, oracle.sampling.samples)
    return replace(oracle.key, sampler="mc", samples=samples).seed("pilot")


def statistics_of(samples: Tensor, moments: Moments, pilot: Tensor, tree: EqualMassTree) -> dict[str, Any]:
    """Return the statistics of a draw of m outputs, shape (N, m), in the cells of a tree, as nested lists."""
    values = samples.double().numpy()
    mean_stderr, covariance_stderr = standard_errors(moments)
    return {
        "dtype": str(samples.dtype).removeprefix("torch."),
        "digest": digest(samples)[:32],  # of all bits of all samples
        "rows": values[:: len(values) // ROWS][:ROWS].tolist(),
        "mean": moments.mean.tolist(),
        "mean_stderr": mean_stderr.tolist(),
        "covariance": moments.covariance.tolist(),
        "covariance_stderr": covariance_stderr.tolist(),
        "quantiles": np.quantile(values, QUANTILES, axis=0).tolist(),
        "cells": tree.counts(samples).tolist(),
        "pilot_cells": tree.counts(pilot).tolist(),
        "classes": Classes(values.shape[1]).counts(samples).tolist(),
    }


def standard_errors(moments: Moments) -> tuple[Array, Array]:
    """Return the standard errors of mean, (m,), and covariance, (m, m), from the spread over blocks.

    These are the standard errors of the multiplier bootstrap in `Moments`, without simulation.
    """
    weights = moments.block_weights
    factor = len(weights) / (len(weights) - 1)
    means = np.square(moments.block_means - moments.mean)
    covariances = np.square(moments.block_covariances - moments.covariance)
    return (
        np.sqrt(factor * np.einsum("b,bi->i", weights**2, means)),
        np.sqrt(factor * np.einsum("b,bij->ij", weights**2, covariances)),
    )


def cells_of(tree: EqualMassTree) -> dict[str, Any]:
    """Return an equal-mass tree as plain values: the cells of an oracle's histogram."""
    names = ("centre", "axes", "null", "thresholds")
    return {**{name: getattr(tree, name).tolist() for name in names}, "rounding": tree.rounding}


def tree_of(cells: Mapping[str, Any]) -> EqualMassTree:
    """Inverse of `cells_of`."""
    m = len(cells["centre"])
    axes, null = (np.array(cells[name], dtype=float).reshape(m, -1) for name in ("axes", "null"))
    return EqualMassTree(
        np.array(cells["centre"]), axes, null, np.array(cells["thresholds"]), cells["rounding"]
    )


def save(manifests: Iterable[Manifest], path: Path = MANIFESTS) -> None:
    """Write manifests atomically, with one line per list of numbers for readable diffs."""
    plain = {"schema": SCHEMA, "oracles": [manifest.as_dict() for manifest in manifests]}
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
    try:
        found = [Manifest.from_dict(entry) for entry in plain["oracles"]]
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise UserError(f"{path} was damaged or edited ({error}); restore it, or {again}") from error
    if not found:
        raise UserError(f"{path} has no manifests; {again}")
    return found


# Checks -----------------------------------------------------------------------------------------


def checks_of(oracle: Oracle, statistics: Mapping[str, Any], tree: EqualMassTree) -> Iterator[dict[str, Any]]:
    """Yield the checks of one oracle, computed lazily: name, passed, detail and numbers.

    All samples are finite. A second draw of the same kind and one of the other kind (plain, or Sobol) agree
    in mean, covariance and, by a chi-squared test, in the cells of `tree`. The same draw through the net in
    float64 differs by rounding only. For a net with one hidden ReLU layer, mean and covariance are those of
    moment matching, which is exact there.
    """
    finite = bool(torch.isfinite(oracle.samples).all())
    yield _check("finite", f"{'all' if finite else 'not all'} samples are finite", {}, finite)
    other: Sampler = "mc" if oracle.sampler == "sobol" else "sobol"
    for name, sampler, purpose in (
        ("second draw", oracle.sampler, "again"),
        (f"{other} draw", other, f"check {other}"),
    ):
        samples = oracle.redrawn(purpose, sampler)
        moments = Moments.from_samples(samples, independent_blocks(sampler))
        counts = np.array(statistics["cells"]), tree.counts(samples)
        yield agreement(name, oracle.moments, (moments.mean, moments.covariance), moments, counts)
    if oracle.precision == "float64":
        yield _check("float64", "drawn in float64", {}, passed=True)
    else:
        double = Oracle(*precise(oracle.net, oracle.law), oracle.key, oracle.sampling)
        pilot = double.pilot(oracle.sampling.pilot_samples)
        again = statistics_of(double.samples, double.moments, pilot, tree) | {"dtype": statistics["dtype"]}
        wrong = disagreements(statistics, again)
        numbers = {name: distance for name, distance, _, _ in _distances(statistics, again)}
        yield _check("float64", "; ".join(wrong) or "differs by rounding only", numbers, not wrong)
    if isinstance(oracle.net, nn.Sequential) and [*map(type, oracle.net)] == [nn.Linear, nn.ReLU, nn.Linear]:
        law = sdp_ref.propagate(*precise(oracle.net, oracle.law), "moment_matching")
        gaussian = as_gaussian("moment_matching", law)
        exact = gaussian.mean[0].detach().numpy(), gaussian.covariance[0].detach().numpy()
        yield agreement("exact moments", oracle.moments, exact)


def _check(name: str, detail: str, numbers: Mapping[str, float], passed: bool) -> dict[str, Any]:
    return {"name": name, "passed": passed, "detail": detail, "numbers": dict(numbers)}


def agreement(
    name: str,
    own: Moments,
    other: tuple[Array, Array],
    noise: Moments | None = None,
    counts: tuple[NDArray[np.int64], NDArray[np.int64]] | None = None,
) -> dict[str, Any]:
    """Check that mean and covariance agree with others, which have the noise of a draw or are exact.

    `counts` are those of both draws in the same cells.
    """
    estimates = [own] if noise is None else [own, noise]
    upper = np.triu_indices(len(own.mean))
    sides = [*(standard_errors(one) for one in estimates), (own.mean - other[0], own.covariance - other[1])]
    *spreads, differences = (np.concatenate([mean, covariance[upper]]) for mean, covariance in sides)
    errors = np.linalg.norm(spreads, axis=0)
    z = np.divide(differences, errors, out=np.zeros_like(errors), where=differences != 0)
    largest = float(np.abs(z).max())
    freedom = min(len(one.block_weights) for one in estimates) - 1
    probability = min(1.0, len(z) * float(2 * stats.t.sf(largest, freedom)))
    numbers = {"largest_z": largest, "values": float(len(z)), "p": probability}
    detail = f"largest z of {len(z)} moments {largest:.2f}"
    if counts is not None:
        # Sobol points only reduce the statistic.
        held = counts[0] + counts[1] > 0
        x, y = (count[held].astype(float) for count in counts)
        ratio, cells = math.sqrt(y.sum() / x.sum()), int(held.sum())
        statistic = float((np.square(ratio * x - y / ratio) / (x + y)).sum())
        in_cells = float(stats.chi2.sf(statistic, max(cells - 1, 1)))
        numbers |= {"chi_squared": statistic, "cells": float(cells), "p_cells": in_cells}
        detail += f"; chi squared of {cells} cells {statistic:.1f}"
        probability = min(1.0, 2 * min(probability, in_cells))
    passed = math.isfinite(largest) and probability >= LEVEL
    return _check(name, f"{detail}; p {probability:.2g}", numbers, passed)


# Verification -----------------------------------------------------------------------------------


def verify(
    path: Path = MANIFESTS,
    shard: tuple[int, int] | None = None,
    *,
    sources: Sequence[Source] | None = None,
    report: Callable[[int, int, str], object] = lambda *_: None,
) -> tuple[dict[str, list[str]], str]:
    """Draw a part of the recorded oracles again; return their disagreements by title, and which part it was.

    `shard` is (i, n), counted from 1, by default the current one (`rotating_shard`). `sources` are oracles of
    the current code, by default those of the CI cells; a manifest without such an oracle and an oracle
    without manifest are disagreements, too. `report` is called after each oracle with number, total and
    title. A UserError is raised if the file cannot be read or the part is empty.
    """
    manifests = load(path)
    (part, parts), reason = (shard, "request") if shard else rotating_shard()
    today = {source[2].key.hex: source for source in sources or ci_oracles()}
    chosen = manifests[part - 1 :: parts]
    if not chosen:
        raise UserError(f"part {part}/{parts} by {reason} is empty: {path} has {len(manifests)} manifests")
    found: dict[str, list[str]] = {}
    for key in today.keys() - {manifest.key for manifest in manifests}:
        group, index, _ = today[key]
        title = f"{key} ({group.title}, input {group.subjects[index].row})"
        found[title] = ["missing: has no manifest; `sdp-bench oracles record` writes it"]
    for manifest in manifests:
        if manifest.key not in today:
            reasons = "its net, input, noise or sampling has changed"
            found[manifest.title] = [f"unknown: no oracle of the current code has this key; {reasons}"]
    for done, manifest in enumerate(chosen, 1):
        if manifest.key in today:
            found[manifest.title] = compare(manifest, today[manifest.key][2])
            report(done, len(chosen), manifest.title)
    return found, f"{len(chosen)} of {len(manifests)} recorded oracles, part {part}/{parts} by {reason}"


def rotating_shard(parts: int = 4) -> tuple[tuple[int, int], str]:
    """Return the current part (i, n), counted from 1, and what selected it.

    Selected by the run number on GitHub Actions, otherwise by the day of the year (UTC): consecutive runs or
    days cover all parts.
    """
    number = os.environ.get("GITHUB_RUN_NUMBER", "")
    if number.isdigit():
        return (int(number) % parts + 1, parts), f"GITHUB_RUN_NUMBER={number}"
    day = datetime.now(UTC).timetuple().tm_yday
    return (day % parts + 1, parts), f"the day of the year, {day}"


def compare(manifest: Manifest, oracle: Oracle) -> list[str]:
    """Return the disagreements of an oracle with its manifest, one line each."""
    seeds = {"seed": (manifest.seed, oracle.key.seed("oracle"))}
    seeds["pilot seed"] = manifest.pilot["seed"], _pilot_seed(oracle)
    found = [
        f"{name}: the key gives {now}, recorded is {was}" for name, (was, now) in seeds.items() if was != now
    ]
    try:
        pilot = oracle.pilot(oracle.sampling.pilot_samples)
        again = statistics_of(oracle.samples, oracle.moments, pilot, tree_of(manifest.cells))
    except (ValueError, RuntimeError) as error:
        return [*found, f"samples: cannot be drawn again: {str(error).splitlines()[0]}"]
    return found + disagreements(manifest.statistics, again)


def disagreements(stored: Mapping[str, Any], again: Mapping[str, Any]) -> list[str]:
    """Return the statistics in which two draws of one oracle differ by more than rounding, one line each."""
    found = []
    if again["dtype"] != stored["dtype"]:
        found.append(f"dtype: samples are {again['dtype']}, recorded {stored['dtype']}")
    try:
        distances = _distances(stored, again)
    except ValueError as error:
        return [*found, f"shape: {error}"]
    return found + [
        f"{name}: off by {distance:.2g} {unit}, allowed {TOLERANCES[kind]:.2g}"
        for name, distance, kind, unit in distances
        if not distance <= TOLERANCES[kind]  # NaN is a disagreement
    ]


def _distances(stored: Mapping[str, Any], again: Mapping[str, Any]) -> list[tuple[str, float, str, str]]:
    """Return each statistic's distance, the entry of `TOLERANCES` that bounds it, and its unit."""
    a, b = ({k: np.array(v, float) for k, v in one.items() if isinstance(v, list)} for one in (stored, again))
    for name, array in a.items():
        if array.shape != b[name].shape:
            raise ValueError(f"{name} has shape {b[name].shape}, recorded is {array.shape}")
    deviation = np.sqrt(np.diag(a["covariance"]))
    found = []
    for name, kind, scale, unit in (
        ("rows", "samples", deviation, "sd"),
        ("quantiles", "samples", deviation, "sd"),
        ("mean", "mean", a["mean_stderr"], "standard errors"),
        ("covariance", "covariance", a["covariance_stderr"], "standard errors"),
    ):
        difference = np.abs(a[name] - b[name])
        # A constant output has no spread: any difference counts.
        with np.errstate(divide="ignore", invalid="ignore"):
            distance = float(np.where(difference == 0, 0.0, difference / scale).max())
        found.append((name, distance, kind, unit))
    for name, kind in (("cells", "cells"), ("pilot_cells", "cells"), ("classes", "classes")):
        moved = float(np.abs(a[name] - b[name]).sum() / 2 / a[name].sum())
        found.append((name, moved, kind, "of the samples"))
    return found
