"""Recomputation of recorded oracles, a part of them in each run, to detect changes."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path

from sdp_bench.bench.errors import UserError
from sdp_bench.bench.experiments.law_group import LawGroup
from sdp_bench.bench.gate.oracles import manifest as oracle_manifest
from sdp_bench.bench.gate.oracles.manifest import MANIFESTS, Manifest, pilot_key
from sdp_bench.bench.gate.oracles.statistics import OTHER_PLATFORM, SAME_PLATFORM, Statistics, disagreements
from sdp_bench.bench.gate.verdict import Finding, Status, Verdict
from sdp_bench.bench.metrics.oracle import Oracle

KIND = "oracle"
SUBJECT = "oracles"
"""Subject of the findings, in place of a rule."""

SHARDS = 4
Source = tuple[LawGroup, int, Oracle]


def rotating_shard(parts: int = SHARDS) -> tuple[tuple[int, int], str]:
    """Return the current part (i, n), counted from 1, and what selected it.

    Selected by the run number on GitHub Actions, otherwise by the day of the year (UTC): consecutive runs or
    days cover all parts.
    """
    number = os.environ.get("GITHUB_RUN_NUMBER", "")
    if number.isdigit():
        return (int(number) % parts + 1, parts), f"GITHUB_RUN_NUMBER={number}"
    day = datetime.now(UTC).timetuple().tm_yday
    return (day % parts + 1, parts), f"the day of the year, {day}"


def shard_of(manifests: Sequence[Manifest], shard: tuple[int, int]) -> list[Manifest]:
    """Return every n-th manifest from the i-th on, counted from 1."""
    part, parts = shard
    return list(manifests[part - 1 :: parts])


def verify(
    path: Path = MANIFESTS,
    shard: tuple[int, int] | None = None,
    *,
    sources: Sequence[Source] | None = None,
    report: Callable[[int, int, str], object] = lambda *_: None,
) -> Verdict:
    """Recompute a part of the recorded oracles and compare.

    `shard` is (i, n), counted from 1, by default the current one. `sources` are oracles of the current code,
    by default those of the CI cells. `report` is called after each oracle with number, total and title.

    The verdict is "changed" for a manifest that was edited by hand, is missing, has no cell, or records a
    failed check, and for an oracle that disagrees with its manifest: in any bit on the platform of the
    record, otherwise by more than `sdp_bench.bench.gate.oracles.statistics.OTHER_PLATFORM`. Oracles are not
    classified as better or worse. A UserError is raised if the file cannot be read or the part is empty.
    """
    stored = oracle_manifest.load(path)
    chosen, why = (shard, "request") if shard else rotating_shard()
    today = {each[2].key.hex: each for each in sources or oracle_manifest.ci_oracles()}
    findings = [finding for manifest, written in stored for finding in _inner(manifest, written)]
    manifests = [manifest for manifest, _ in stored]
    part = shard_of(manifests, chosen)
    if not part:
        raise UserError(
            f"part {chosen[0]}/{chosen[1]} by {why} is empty: {path} has {len(manifests)} manifests"
        )
    here = oracle_manifest.versions()
    findings += _not_covered(manifests, today)
    for done, manifest in enumerate(part, 1):
        if manifest.key in today:
            findings += compare(manifest, today[manifest.key][2], bitwise=manifest.made_on(here))
            report(done, len(part), manifest.title)
    note = f"{len(part)} of {len(manifests)} recorded oracles, part {chosen[0]}/{chosen[1]} by {why}"
    return Verdict(KIND, tuple(findings), note)


def compare(manifest: Manifest, oracle: Oracle, *, bitwise: bool) -> list[Finding]:
    """Return the disagreements of an oracle with its manifest, or a single finding that it agrees."""
    found = []
    seeds = (
        ("seed", manifest.seed, oracle.key.seed("oracle")),
        ("pilot seed", manifest.pilot.seed, pilot_key(oracle).seed("pilot")),
    )
    for name, kept, now in seeds:
        if kept != now:
            found.append(_changed(manifest.title, name, f"the key gives {now}, stored is {kept}"))
    try:
        pilot = oracle.pilot(oracle.sampling.pilot_samples)
        again = Statistics.of(oracle.samples, oracle.moments, pilot, manifest.cells.tree)
    except (ValueError, RuntimeError) as error:
        said = str(error).partition("\n")[0]
        return [*found, _changed(manifest.title, "samples", f"cannot be drawn again: {said}")]
    tolerance = SAME_PLATFORM if bitwise else OTHER_PLATFORM
    for name, detail in disagreements(manifest.statistics, again, tolerance, bitwise=bitwise):
        found.append(_changed(manifest.title, name, detail))
    if found:
        return found
    if bitwise:
        return [Finding(SUBJECT, manifest.title, Status.UNCHANGED, "equal to the last bit")]
    return [Finding(SUBJECT, manifest.title, Status.ROUNDING, "equal up to rounding, on another platform")]


def _changed(oracle: str, statistic: str, detail: str) -> Finding:
    return Finding(SUBJECT, oracle, Status.CHANGED, f"{statistic}: {detail}")


def _not_covered(manifests: Sequence[Manifest], today: Mapping[str, Source]) -> Iterator[Finding]:
    """Yield cells without a manifest, and manifests without a cell."""
    known = {manifest.key for manifest in manifests}
    for group, place, oracle in today.values():
        if oracle.key.hex not in known:
            where = f"{oracle.key.hex} ({group.title}, input {group.subjects[place].row})"
            yield _changed(where, "missing", "has no manifest; `sdp-bench oracles record` makes it")
    for manifest in manifests:
        if manifest.key not in today:
            said = "no cell of today's code has this key: its net, input, noise or sampling has changed"
            yield _changed(manifest.title, "unknown", said)


def _inner(manifest: Manifest, written: str) -> list[Finding]:
    found = []
    if manifest.hash != written:
        said = f"the content gives {manifest.hash}, written is {written}: it was changed by hand"
        found.append(_changed(manifest.title, "hash", said))
    failed = [check.name for check in manifest.checks if not check.passed]
    if failed or not manifest.checks:
        said = f"recorded as failed: {', '.join(failed)}" if failed else "none was made"
        found.append(_changed(manifest.title, "checks", said))
    return found
