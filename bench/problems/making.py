"""How a problem set is made, once: its nets, inputs and noise, and what admits an oracle as the truth.

An oracle is admitted if other seeds, another way of sampling and another precision find the same law, its
floor is small, and, where the moments are known exactly, it has them. The checks that were made stand beside
its statistics.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from safetensors.torch import save
from torch import Tensor

from sdp_bench.bench import files, manifests
from sdp_bench.bench.datasets.base import stratified_rows
from sdp_bench.bench.documents import as_text
from sdp_bench.bench.errors import RunFailedError
from sdp_bench.bench.executors.local import LocalProcesses
from sdp_bench.bench.experiments.law_group import LawGroup
from sdp_bench.bench.manifests import LEVEL, Manifest
from sdp_bench.bench.metrics import metric
from sdp_bench.bench.metrics.oracle import Oracle
from sdp_bench.bench.nets import storage
from sdp_bench.bench.nets.net import Net, inputs_of, net_from_bytes
from sdp_bench.bench.problems.problem_set import (
    INPUTS,
    NAME,
    NETS,
    ORACLES,
    PROBLEMS,
    Floor,
    Place,
    ProblemSet,
    digest_of,
    oracle_of,
)
from sdp_bench.bench.settings import Settings

CELLS = 128
SAMPLES = 2**18
"""Plain draws: of Sobol points the standard errors are so small that rounding in float32 shows beside them,
and two precisions would not agree."""
LARGEST_FLOOR = 0.03
"""Of total variation in the cells of an admitted truth: errors of a few per cent are then seen."""

_OPTIONS = {"cells": CELLS, "pilot_samples": 2**17}
FEW_OUTPUTS = tuple(
    metric(name, _OPTIONS).spec
    for name in ("tv_class", "coverage", "std_ratio", "tv_headline", "crps", "tails")
)
MANY_OUTPUTS = tuple(
    metric(name, {"cells": 64, "pilot_samples": 2**13}).spec
    for name in ("tv_class", "coverage", "std_ratio", "tv_principal", "crps")
)
HEAVY_TAILS = tuple(
    metric(name, _OPTIONS).spec for name in ("tv_class", "coverage", "tv_joint", "quantile_mean", "tails")
)
"""What is asked of three outputs, of ten, and under noise without a variance."""


@dataclass(frozen=True)
class Ask:
    """A net of the package, its noise, and what is asked of it."""

    net: str
    file: str
    noise: str
    scales: tuple[float, ...]
    metrics: tuple[str, ...]
    samples: int = SAMPLES


_IRIS = {
    "iris-relu-1": "iris-relu-1x100",
    "iris-relu-4": "iris-relu-4x100",
    "iris-relu-9": "iris-relu-9x100",
    "iris-gelu-4": "iris-gelu-4x100",
}
ASKED = (
    *(Ask(net, file, "gaussian", (0.1, 1.0, 10.0), FEW_OUTPUTS) for net, file in _IRIS.items()),
    *(Ask(net, _IRIS[net], "laplace", (1.0,), FEW_OUTPUTS) for net in ("iris-relu-4", "iris-gelu-4")),
    *(Ask(net, _IRIS[net], "cauchy", (0.1, 1.0), HEAVY_TAILS) for net in ("iris-relu-4", "iris-gelu-4")),
    Ask("rotations-gru", "rotations-gru", "gaussian", (0.1, 1.0), MANY_OUTPUTS, 2**16),
    Ask("rotations-decoder", "rotations-decoder", "gaussian", (0.1, 1.0), MANY_OUTPUTS, 2**16),
)
"""Depth, activation and size of the noise decide between rules, and so does what is no Gaussian. Noise as
large as a tenth of the distance between classes, as that distance, and far beyond."""

INPUTS_EACH = 3


def _net(file: str) -> Net:
    (path,) = storage.COMMITTED.glob(f"{file}-*.safetensors")
    return net_from_bytes(path.read_bytes(), "committed")


def _inputs(net: Net) -> tuple[tuple[int, ...], Tensor]:
    """Rows of a net's own data, and these."""
    data = inputs_of(net)
    rows = stratified_rows(data.labels, INPUTS_EACH, 0)
    return rows, data.batch(list(rows))


def draft(asked: Sequence[Ask] = ASKED, name: str = NAME, cells: int = CELLS) -> ProblemSet:
    """The set before its oracles are drawn.

    Parameters
    ----------
    asked : sequence of Ask
    name : str
    cells : int
        In which draws are compared, and floors taken.

    Returns
    -------
    ProblemSet
        Without keys, floors, truths and digest.
    """
    nets = {each.net: _net(each.file) for each in asked}
    places, inputs = [], {}
    for each in asked:
        rows, locations = _inputs(nets[each.net])
        for scale in each.scales:
            place = Place(
                name=f"{each.net}/{each.noise}-{scale:g}",
                net=each.net,
                noise=each.noise,
                scale=scale,
                sampler="mc",
                samples=each.samples,
                pilot_samples=min(2**17, each.samples),
                rows=tuple(map(int, rows)),
                metrics=each.metrics,
            )
            places.append(place)
            inputs[place.name] = locations.clone()
    return ProblemSet(name, cells, tuple(places), nets, inputs)


def admitted(group: LawGroup) -> list[tuple[Manifest, Floor]]:
    """Draw the oracles of a place and check them: other seeds, samplers and precisions, and the floor.

    Parameters
    ----------
    group : LawGroup

    Returns
    -------
    list of (Manifest, Floor)
        One an input, in order.

    Raises
    ------
    RunFailedError
        If an oracle is not admitted; its message says which check failed.
    """
    net, found = group.net.build(), []
    for number in range(len(group.subjects)):
        oracle = oracle_of(group, number, net)
        truth = manifests.record(group, number, oracle)
        floor = floor_of(oracle, truth)
        if reasons := list(refusals(truth, floor)):
            raise RunFailedError(f"{truth.title} is not admitted: {'; '.join(reasons)}")
        found.append((truth, floor))
    return found


def floor_of(oracle: Oracle, truth: Manifest) -> Floor:
    """Floor of total variation in the cells that a truth is counted in."""
    (floor,) = oracle.floors(manifests.tree_of(truth.cells))
    return Floor(float(floor.mean), float(floor.upper95))


NEEDED = ("finite", "second draw", "float64")
"""Checks that every truth has; beside them one draw of the other kind, ``mc draw`` or ``sobol draw``."""


def refusals(truth: Manifest, floor: Floor) -> Iterator[str]:
    """Why an oracle is not admitted as a truth: the criteria of docs/benchmark.md.

    Parameters
    ----------
    truth : Manifest
        With the checks that were made.
    floor : Floor
        Of total variation in its cells.

    Yields
    ------
    str
        A reason each; nothing of what is admitted.
    """
    made = {check["name"] for check in truth.checks}
    other = "mc draw" if truth.oracle.sampler == "sobol" else "sobol draw"
    for name in (*NEEDED, other):
        if name not in made:
            yield f"the check '{name}' was not made"
    for check in truth.checks:
        chances = [value for name, value in check["numbers"].items() if name == "p" or name.startswith("p_")]
        if not check["passed"] or any(chance < LEVEL / 2 for chance in chances):
            yield f"the check '{check['name']}' failed: {check['detail']}"
    if not 0 < floor.mean <= floor.p95 <= LARGEST_FLOOR:
        found = f"{floor.mean:.3g} (95 %: {floor.p95:.3g})"
        yield f"the floor of total variation is {found}, not within {LARGEST_FLOOR}"


def write(
    problems: ProblemSet,
    folder: Path,
    jobs: int = 1,
    told: Callable[[int, int, str], object] = lambda *_: None,
) -> str:
    """Make the files of a set.

    Parameters
    ----------
    problems : ProblemSet
        A draft.
    folder : Path
        That is not there yet, or is empty: a set never changes.
    jobs : int
        Workers.
    told : callable
        Is told after each place how many are done, of how many, and its name.

    Returns
    -------
    str
        Digest of the set.

    Raises
    ------
    RunFailedError
        If the folder has something in it, cannot be written, or an oracle is not admitted.
    """
    if folder.exists() and any(folder.iterdir()):
        raise RunFailedError(f"{folder} is there already: a problem set never changes, make the next one")
    for name, net in problems.nets.items():
        files.write(folder / NETS / f"{name}.safetensors", net.to_bytes())
    files.write(folder / INPUTS, save(dict(problems.inputs)))
    places, truths = [], []
    groups = problems.groups(Settings(), ("sdp",))
    executor = LocalProcesses(jobs, 1)
    try:
        made = [executor.submit(admitted, group) for group in groups]
        for number, (place, waited) in enumerate(zip(problems.places, made, strict=True), 1):
            found = waited.result()
            keys = tuple(truth.key for truth, _ in found)
            places.append(replace(place, keys=keys, floors=tuple(floor for _, floor in found)))
            truths += [truth for truth, _ in found]
            told(number, len(problems.places), place.name)
    finally:
        executor.shutdown(wait=False, cancel_futures=True)
    plain = {
        "name": problems.name,
        "cells": problems.cells,
        "places": [json.loads(json.dumps(asdict(place))) for place in places],
    }
    manifests.save(truths, folder / ORACLES)
    files.write(folder / PROBLEMS, as_text(plain, lists_apart=True) + "\n")
    return digest_of(folder)
