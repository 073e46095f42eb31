"""The baseline: predictions and times of rules when they were last accepted, as a JSON file.

Floats are written so that reading restores every bit. Each prediction has one line, so that a diff shows
which rule changed in which cell.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from sdp_bench.bench import files
from sdp_bench.bench.errors import UserError
from sdp_bench.bench.gate.answers.draws import FACTOR, OVERALL, Draws, Units
from sdp_bench.bench.gate.answers.moments import Answer, PredictedMoments
from sdp_bench.bench.gate.cells import Scope
from sdp_bench.bench.gate.documents import as_text, structure, unstructure
from sdp_bench.bench.identity.keys import OracleKey
from sdp_bench.oracles.moments.moments import METRICS

FORMAT = "sdp-bench gate baseline"
VERSION = 3

# Larger values cannot be measurements.
_MOST_PASSES = 1e9
_MOST_SEEDS = 10**6
_MOST_DEVIATIONS = 1e6


@dataclass(frozen=True)
class Speed:
    """Time of a rule relative to a regular forward pass, with interleaved timing."""

    # median and quartiles of the ratios of single rounds
    median: float
    lower: float
    upper: float
    least: float  # ratio of the shortest times


@dataclass(frozen=True, eq=False)
class RuleBaseline:
    """Baseline of one rule."""

    predictions: dict[str, PredictedMoments]  # by the key of the cell's oracle
    # for a sampling rule, by the key of the cell, or of a probe with a law
    draws: dict[str, Draws] = field(default_factory=dict)
    # by the key of the probe (`sdp_bench.bench.gate.probes`)
    probes: dict[str, Answer] = field(default_factory=dict)
    cpu: str = ""  # processor on which `speed` was measured
    speed: dict[str, Speed] = field(default_factory=dict)  # by the net's label; may be empty

    @cached_property
    def moments(self) -> dict[str, PredictedMoments]:
        """Moments by the key of the cell, or of a probe with a law."""
        laws = {key: answer.moments for key, answer in self.probes.items() if answer.moments is not None}
        return {**self.predictions, **laws}


@dataclass(frozen=True, eq=False)
class Baseline:
    """The whole file."""

    environment: dict[str, Any]  # environment of its predictions, for information
    nets: dict[str, str]  # label to digest
    # key of a cell's oracle to the components of the key, with a description of the cell
    cells: dict[str, dict[str, Any]]
    probes: dict[str, str]  # key of a probe to its name
    rules: dict[str, RuleBaseline]  # by spec

    def check_scope(self, scope: Scope) -> None:
        """Raise a UserError if nets, cells or probes differ from the scope's."""
        for label, digest in self.nets.items():
            if scope.nets.get(label, digest) != digest:
                raise UserError(
                    f"the baseline was made with another net {label} ({digest}, now {scope.nets[label]}); "
                    "make it anew with --update"
                )
        old = {key: str(cell.get("cell", "")) for key, cell in self.cells.items()} | self.probes
        now = {key: place.name for key, place in scope.places.items()}
        gone, new = old.keys() - now.keys(), now.keys() - old.keys()
        if gone or new:
            first = f", '{old[min(gone)]}' for one" if gone else ""
            newer = f", '{min(now[key] for key in new)}' for one" if new else ""
            raise UserError(
                f"the cells have changed since the baseline was made ({len(gone)} gone{first}, {len(new)} "
                f"new{newer}); make it anew with --update"
            )


def read(path: Path) -> Baseline:
    """Read a baseline; a UserError if it is missing, damaged, of another version, or without rules."""
    try:
        content = files.read_json(path)
    except FileNotFoundError:
        raise UserError(
            f"there is no baseline {path}; make one: sdp-bench check --baseline {path} --update"
        ) from None
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror or error}") from error
    except ValueError as error:
        raise UserError(
            f"{path} is damaged, not JSON ({error}); restore it, or delete it and --update"
        ) from error
    if not isinstance(content, dict) or content.get("format") != FORMAT:
        raise UserError(f"{path} is not a baseline of sdp-bench check")
    if content.get("version") != VERSION:
        raise UserError(
            f"{path} has version {content.get('version')} of the format, this is sdp-bench for version "
            f"{VERSION}; delete it and make it anew with --update"
        )
    try:
        found = structure(content, Baseline)
        _check_cells(found)
        for name, rule in found.rules.items():
            _check_whole(name, rule, found)
    except ValueError as error:
        raise UserError(f"{path} is damaged ({error}); restore it, or delete it and --update") from error
    if not found.rules:
        raise UserError(
            f"{path} has no rules, so nothing can be compared; delete it and make it anew with --update"
        )
    return found


def write(path: Path, baseline: Baseline) -> None:
    text = as_text({"format": FORMAT, "version": VERSION, **unstructure(baseline)})
    files.write(path, f"{text}\n")


def _check_cells(baseline: Baseline) -> None:
    """Raise a ValueError if the keys of cells do not match their components."""
    for key, cell in baseline.cells.items():
        oracle = structure(cell, OracleKey)
        if oracle.hex != key:
            raise ValueError(f"the cell {key} is said to be what has the key {oracle.hex}")
        if oracle.net not in baseline.nets.values():
            raise ValueError(f"the cell {key} is of a net that is not named")


def _check_whole(name: str, rule: RuleBaseline, baseline: Baseline) -> None:
    """Raise a ValueError unless a rule has one prediction per cell and one answer per probe."""
    for kept, wanted, thing in (
        (rule.predictions, baseline.cells, "prediction"),
        (rule.probes, baseline.probes, "answer"),
    ):
        if kept.keys() != wanted.keys():
            raise ValueError(f"{name}: {len(kept)} {thing}s for {len(wanted)} keys, or of other keys")
    if rule.draws and rule.draws.keys() != rule.moments.keys():
        raise ValueError(f"{name}: draws of {len(rule.draws)} laws for {len(rule.moments)}, or of others")
    for key, draws in rule.draws.items():
        if problem := _problem(draws, Units(rule.moments[key]).width, has_oracle=key in rule.predictions):
            raise ValueError(f"{name}: {problem}")
    if not rule.speed.keys() <= baseline.nets.keys():
        raise ValueError(f"{name}: times on nets that are not named")
    for speed in rule.speed.values():
        quartiles = (speed.lower, speed.median, speed.upper)
        if not (min(*quartiles, speed.least) > 0 and max(*quartiles, speed.least) < _MOST_PASSES):
            raise ValueError(f"{name}: a ratio of times that is not positive, or that nobody waited for")
        if list(quartiles) != sorted(quartiles):
            raise ValueError(f"{name}: a median of times that is not between its quartiles")


def _problem(draws: Draws, width: int, *, has_oracle: bool) -> str:
    """Return why these draws are impossible, or ''."""
    if {len(draws.mean), len(draws.sd)} != {width}:
        return "draws of unequal size"
    if not 1 < draws.number <= _MOST_SEEDS:
        return f"draws of {draws.number} seeds"
    # The factor of the mean is unbounded, since the mean may be near 0.
    sizes = [max(abs(mean), sd) for mean, sd in zip(draws.mean, draws.sd, strict=True)]
    del sizes[FACTOR - OVERALL]
    if min((*draws.sd, draws.error_sd)) < 0 or max(sizes) > _MOST_DEVIATIONS:
        return "draws whose standard deviations are negative, or far beyond those of one draw"
    if draws.metric not in (METRICS if has_oracle else ("",)):
        return f"errors by '{draws.metric}', which is no distance to what is known here"
    if math.isfinite(draws.error) != math.isfinite(draws.error_sd):
        return "errors whose mean or standard deviation alone is infinite"
    return ""
