"""Manifests of oracles: definition, statistics, checks and versions.

Those of the CI cells are committed (`MANIFESTS`). Continuous integration recomputes a part of them in every
run (`sdp_bench.bench.gate.oracles.verify`), so that no oracle changes unnoticed.
"""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from sdp_bench.bench import environment, files
from sdp_bench.bench.errors import RunFailedError, UserError
from sdp_bench.bench.experiments.iris import ci
from sdp_bench.bench.experiments.law_group import LawGroup
from sdp_bench.bench.gate.documents import as_text, structure
from sdp_bench.bench.gate.oracles.checks import Check, checks_of
from sdp_bench.bench.gate.oracles.statistics import LEVELS, ROWS, Cells, Statistics
from sdp_bench.bench.identity import keys
from sdp_bench.bench.identity.keys import OracleKey
from sdp_bench.bench.metrics.oracle import Oracle
from sdp_bench.bench.metrics.total_variation import HeadlineTotalVariation

SCHEMA = 1
MANIFESTS = Path(__file__).resolve().parents[3] / "reports" / "baselines" / "oracles.json"
METHODS = {"mc": "plain Monte Carlo", "sobol": "scrambled Sobol points, 16 independent scrambles"}

_PLATFORM = ("cpu", "torch", "numpy", "scipy", "machine")


@dataclass(frozen=True)
class Pilot:
    """The draw from which an oracle's cells are derived."""

    seed: int
    samples: int
    cells: int


@dataclass(frozen=True)
class Manifest:
    """An oracle with everything needed to recompute it."""

    oracle: OracleKey  # net, input, noise, sampler and number of samples
    net: str  # display name of the net
    row: int  # row of the input in the data set
    sigma: float
    method: str
    seed: int  # seed of the samples
    pilot: Pilot
    statistics: Statistics
    cells: Cells
    checks: tuple[Check, ...]  # checks when it was recorded; all passed
    versions: dict[str, str]

    @property
    def key(self) -> str:
        return self.oracle.hex

    @property
    def title(self) -> str:
        return f"{self.key} ({self.net}, input {self.row}, sigma {self.sigma:g})"

    @property
    def hash(self) -> str:
        """Hash of the content, 16 hexadecimal digits, which detects manual edits."""
        return keys.digest(json.loads(json.dumps(asdict(self))))[:16]

    def made_on(self, here: dict[str, str]) -> bool:
        """Return whether draws on a platform with these `versions` must be bitwise equal."""
        return all(self.versions.get(name) == here[name] for name in _PLATFORM)

    def as_dict(self) -> dict[str, Any]:
        return {"key": self.key, **asdict(self), "hash": self.hash}

    @classmethod
    def from_dict(cls, plain: dict[str, Any]) -> tuple[Manifest, str]:
        """Return a manifest and its recorded hash, which is not verified; a UserError for invalid values."""
        try:
            manifest, written = structure(plain, cls), structure(plain, _Written)
            _check_sizes(manifest)
            _check_ranges(manifest, written.key)
        except ValueError as error:
            name = plain.get("key", "without a key") if isinstance(plain, dict) else "that is no mapping"
            raise UserError(f"not a manifest of an oracle ({name}): {error}") from error
        return manifest, written.hash


@dataclass(frozen=True)
class _Written:
    """Recorded key and hash of a manifest."""

    key: str
    hash: str


def _check_sizes(manifest: Manifest) -> None:
    """Raise a ValueError if the sizes of lists are not those of an oracle."""
    m, found = len(manifest.statistics.mean), manifest.statistics
    leaves = len(manifest.cells.thresholds)
    shapes: dict[str, tuple[Any, tuple[int, ...]]] = {
        "mean_stderr": (found.mean_stderr, (m,)),
        "covariance": (found.covariance, (m, m)),
        "covariance_stderr": (found.covariance_stderr, (m, m)),
        "rows": (found.rows, (ROWS, m)),
        "quantiles": (found.quantiles, (len(LEVELS), m)),
        "classes": (found.classes, (m,)),
        "cells": (found.cells, (leaves + 1,)),
        "pilot_cells": (found.pilot_cells, (leaves + 1,)),
        "cells.centre": (manifest.cells.centre, (m,)),
    }
    for name, (value, shape) in shapes.items():
        if np.array(value, dtype=float).shape != shape:  # a ragged list raises a ValueError here
            raise ValueError(f"{name} is not of shape {shape}")
    if not m or not leaves:
        raise ValueError("there are no outputs or no cells")
    directions = [np.array(each, dtype=float) for each in (manifest.cells.axes, manifest.cells.null)]
    if any(len(each) != m for each in directions) or sum(each.size for each in directions) != m * m:
        raise ValueError(f"the axes of the cells are not {m} directions of {m} outputs")


def _check_ranges(manifest: Manifest, key: str) -> None:
    """Raise a ValueError if a number is impossible for a draw of this oracle."""
    oracle, pilot, found = manifest.oracle, manifest.pilot, manifest.statistics
    covariance = np.array(found.covariance)
    variance = np.diag(covariance)
    deviation = np.sqrt(variance.clip(0))
    pairs = np.outer(deviation, deviation)
    # Whatever the kurtosis, standard errors are not larger than the spread; 10 times for blocks of a Sobol
    # draw.
    errors = np.array([*found.mean_stderr, *np.ravel(found.covariance_stderr)])
    largest = 10 * np.array([*deviation, *pairs.ravel()])
    numbers = [item for check in manifest.checks for item in check.numbers.items()]
    chances = [value for name, value in numbers if name == "p" or name.startswith("p_")]
    wrong: dict[str, bool | np.bool] = {
        f"its key gives {manifest.key}": key != manifest.key,
        "counts of cells or classes are not those of the samples": not (
            _are_counts(found.cells, oracle.samples)
            and _are_counts(found.classes, oracle.samples)
            and _are_counts(found.pilot_cells, pilot.samples)
        ),
        "a standard error is negative, or beyond the spread": ((errors < 0) | (errors > largest)).any(),
        "the covariance has a negative variance or is not symmetric": (variance < 0).any()
        or (np.abs(covariance - covariance.T) > 1e-9 * pairs).any(),
        "quantiles are not in ascending order": (np.diff(np.array(found.quantiles), axis=0) < 0).any(),
        f"the method is not that of '{oracle.sampler}'": manifest.method != METHODS.get(oracle.sampler),
        "the noise level is not positive": not manifest.sigma > 0,
        "a row or a seed is negative": min(manifest.row, manifest.seed, pilot.seed) < 0,
        "the cells are not as many, or of a negative rounding": manifest.cells.rounding < 0
        or not 0 < pilot.cells <= len(found.cells),
        "a check has a negative number": any(value < 0 for _, value in numbers),
        "a check has a probability above 1": any(value > 1 for value in chances),
    }
    if first := next((words for words, is_so in wrong.items() if is_so), ""):
        raise ValueError(first)


def _are_counts(counts: Sequence[int], total: int) -> bool:
    return min(counts) >= 0 and sum(counts) == total > 0


def versions() -> dict[str, str]:
    """Return the versions and the processor that a draw may depend on."""
    described = environment.describe("cpu", 1, 1)
    kept = {
        name: str(described[name]) for name in ("python", "torch", "numpy", "scipy", "platform", "sdp-bench")
    }
    return {"cpu": f"{described['cpu']}{_model()}", "machine": platform.machine(), **kept}


def _model() -> str:
    """Return family and model of the processor (its name may cover several), and its BLAS settings."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").split("\n\n")[0].splitlines()
    except OSError:
        lines = []
    values = {name.strip(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    said = [f"{name} {values[name]}" for name in ("cpu family", "model") if name in values]
    asked = ("MKL_CBWR", "MKL_ENABLE_INSTRUCTIONS", "NPY_DISABLE_CPU_FEATURES")
    said += [f"{name}={os.environ[name]}" for name in asked if os.environ.get(name)]
    return "".join(f", {each}" for each in said)


def oracles(groups: Iterable[LawGroup]) -> Iterator[tuple[LawGroup, int, Oracle]]:
    """Yield each group's oracles with their indices, as in a run."""
    for group in groups:
        net, law = group.net.build(), group.law
        for place, subject in enumerate(group.subjects):
            yield group, place, Oracle(net, law[place], subject.key, group.settings.sampling)


def ci_oracles() -> list[tuple[LawGroup, int, Oracle]]:
    """Return the oracles of the CI cells (`sdp_bench.bench.experiments.iris.ci`), not drawn yet."""
    return list(oracles(ci.groups(("sdp",))))  # one rule is enough: oracles do not depend on the rules


def record(group: LawGroup, place: int, oracle: Oracle) -> Manifest:
    """Return the manifest of an oracle, whose input has index `place`; a RunFailedError if a check fails."""
    settings, subject, key = group.settings, group.subjects[place], oracle.key
    headline = HeadlineTotalVariation.of({}, settings.metric_options)
    cells = Cells.of(headline.partition(oracle))
    pilot = oracle.pilot(headline.pilot_samples)
    statistics = Statistics.of(oracle.samples, oracle.moments, pilot, cells.tree)
    architecture = group.net.architecture
    manifest = Manifest(
        oracle=key,
        net=f"{architecture.label} {architecture.activation} seed {group.net.seed}",
        row=subject.row,
        sigma=group.sigma,
        method=METHODS[key.sampler],
        seed=key.seed("oracle"),
        pilot=Pilot(pilot_key(oracle).seed("pilot"), len(pilot), headline.cells),
        statistics=statistics,
        cells=cells,
        checks=tuple(checks_of(oracle, statistics, cells.tree)),
        versions=versions(),
    )
    if failed := [check for check in manifest.checks if not check.passed]:
        said = "; ".join(f"{check.name}: {check.detail}" for check in failed)
        raise RunFailedError(f"oracle {manifest.title} is refused: {said}")
    return manifest


def pilot_key(oracle: Oracle) -> OracleKey:
    """Return the key of the pilot's seed; see `sdp_bench.bench.metrics.oracle.Oracle.pilot`."""
    sampling = oracle.sampling
    return replace(oracle.key, sampler="mc", samples=min(sampling.pilot_samples, sampling.samples))


def save(manifests: Iterable[Manifest], path: Path = MANIFESTS) -> None:
    """Write manifests atomically, with one line per list of numbers for readable diffs."""
    plain = {"schema": SCHEMA, "oracles": [manifest.as_dict() for manifest in manifests]}
    files.write(path, f"{as_text(plain, lists_apart=True)}\n")


def load(path: Path = MANIFESTS) -> list[tuple[Manifest, str]]:
    """Read the manifests of a file in order, each with its recorded hash."""
    try:
        plain = files.read_json(path)
    except OSError as error:
        raise UserError(
            f"cannot read {path}: {error.strerror}; `sdp-bench oracles record` makes it"
        ) from error
    except ValueError as error:
        raise UserError(f"{path} is not a file of manifests: {error}") from error
    if not isinstance(plain, dict) or plain.get("schema") != SCHEMA or "oracles" not in plain:
        raise UserError(f"{path} is not a file of manifests of schema {SCHEMA}")
    if not isinstance(plain["oracles"], list) or not plain["oracles"]:
        raise UserError(f"{path} has no manifests; `sdp-bench oracles record` makes them")
    try:
        found = [Manifest.from_dict(each) for each in plain["oracles"]]
    except UserError as error:
        raise UserError(f"{path} is damaged: {error}") from error
    seen: set[str] = set()
    for manifest, _ in found:
        if manifest.key in seen:
            raise UserError(f"{path} has the oracle {manifest.title} twice")
        seen.add(manifest.key)
    return found
