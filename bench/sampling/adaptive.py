"""Sampling until it suffices, after the adaptive procedure of JCGM 101:2008, 7.9.

Blocks of M samples are drawn until the 95 % interval of each requested quantity is at most the tolerance to
either side; for mean and standard deviation it follows from the spread over the blocks. Two choices differ
from JCGM 101. There are at least ten blocks and Student's factor instead of 2, because a spread over two
blocks is often small by chance, and the procedure then stops too early (Wübbeler, Harris, Cox and Elster, "A
two-stage procedure for determining the number of trials in the application of a Monte Carlo method for
uncertainty evaluation", Metrologia 2010). A block has a twentieth of the samples that a Gaussian output
needs, at most the 10^4 of JCGM 101, so that slow nets are not evaluated more often than necessary. Quantiles
and probabilities have exact intervals from all samples instead.
"""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from ... import oracles
from ..errors import MeasuredCodeError, RunFailedError, UserError, measured_code
from ..executors.local import Limits, in_separate_process, send
from ..files import check_writable, read_arrays, replacing
from ..identity import OracleKey, digest
from ..nets.own.net import OwnNet
from ..noise import GAUSSIAN, Noise
from ..progress import Meter, Progress
from ..text import plural
from .quantities import (
    CLASS,
    DEVIATION,
    MEAN,
    PROBABILITIES,
    Block,
    Estimate,
    Quantity,
    block_of,
    estimates,
    levels_of,
    thresholds_of,
)

FEWEST_BLOCKS = 10
MAX_SAMPLES = 10**6
_BLOCK_SAMPLES = (100, 10_000)  # fewest and most samples of a block, unless quantiles need more
_BLOCKS = 20  # blocks that a Gaussian output needs
_GROWTH = 20  # a check follows after one block more for every 20
_SAVED = 2.0  # s between writes of an unfinished unit


@dataclass(frozen=True, kw_only=True)
class SampleRequest:
    """What to estimate, and how precisely.

    `tolerance` is relative to the standard deviation of each output, and absolute for probabilities.
    `max_samples` is the limit for each input at each noise level. `block` is the number of samples of a
    block; by default it follows from quantities and tolerance.
    """

    quantities: tuple[Quantity, ...]
    tolerance: float
    max_samples: int = MAX_SAMPLES
    seed: int = 0
    block: int | None = None

    @property
    def block_samples(self) -> int:
        fewest = max(quantity.fewest for quantity in self.quantities)
        if self.block is not None:
            if self.block < fewest:
                raise UserError(f"blocks need at least {fewest:,} samples, got {self.block:,}")
            return self.block
        variance = max(quantity.gaussian_variance for quantity in self.quantities)
        needed = math.ceil(variance * (2 / self.tolerance) ** 2 / _BLOCKS)
        low, high = _BLOCK_SAMPLES
        return max(fewest, min(max(needed, low), high))

    def check(self, net: OwnNet, noise: Noise, sigmas: Sequence[float]) -> None:
        """Raise a UserError if the net, its noise and the request do not fit together."""
        noise.check(tuple(net.inputs.shape[1:]), tuple(sigmas), "mc", len(net.inputs))
        for sigma in sigmas:
            if not sigma > 0:
                raise UserError(f"a noise level must be positive, got {sigma:g}")
        kinds = {quantity.kind for quantity in self.quantities}
        if CLASS in kinds and net.architecture.outputs == 1:
            raise UserError(f"{net.architecture.name} has one output, so it has no class")
        if not kinds <= set(PROBABILITIES) and not hasattr(noise.example, "variance"):
            raise UserError(
                f"{noise.name} noise has no variance, and tolerances are relative to standard deviations; "
                "the quantities 'class' and 'above' need none"
            )
        if FEWEST_BLOCKS * self.block_samples > self.max_samples:
            raise UserError(
                f"at least {FEWEST_BLOCKS * self.block_samples:,} samples are needed ({FEWEST_BLOCKS} blocks "
                f"of {self.block_samples:,}), but the maximum is {self.max_samples:,}"
            )


@dataclass(frozen=True)
class _Unit:
    """An input at a noise level; `key` identifies its samples."""

    key: OracleKey
    row: int
    sigma: float

    def path(self, folder: Path, request: SampleRequest) -> Path:
        """Return the file of its blocks."""
        thresholds = [f"above:{threshold!r}" for threshold in thresholds_of(request.quantities)]
        parts = [self.key.hex, request.seed, *levels_of(request.quantities), *thresholds]
        return folder / f"{digest(parts)[:16]}.npz"


def sample_until(
    net: OwnNet,
    noise: Noise | None,
    sigmas: Sequence[float] | None,
    request: SampleRequest,
    folder: Path,
    progress: Progress,
) -> pd.DataFrame:
    """Sample a user's net at all its inputs and noise levels, in a separate process, until it suffices.

    The result has a row for each noise level, input, output and quantity, with the columns `sigma`, `input`,
    `output`, `quantity`, `estimate`, `low` and `high` (a 95 % interval), `samples` and `reached`.
    ``attrs["net"]`` is the name of the net, ``attrs["notes"]`` are lines on how it was loaded and on the
    noise, ``attrs["limits"]`` are lines on the limits of the estimates, and ``attrs["shortfall"]`` is a line
    on estimates that are not precise enough, or empty.

    `folder` keeps all finished blocks, so that the same call resumes an interrupted one.
    Each block has its own seed, so the numbers are those of an uninterrupted call. A UserError is raised for
    invalid arguments, and a RunFailedError if the net fails or `folder` cannot be written.
    """
    noise = noise or GAUSSIAN
    if sigmas is None and noise.values is None:
        raise UserError("sigma is required (--sigma 0.1,1)")
    sigmas = tuple(dict.fromkeys(sigmas or (1.0,)))
    request.check(net, noise, sigmas)
    units = _units(net, noise, sigmas, request)
    check_writable(units[0].path(folder, request))
    different = list({unit.key: unit for unit in units}.values())
    rows = 3 + 3 * len(levels_of(request.quantities)) + len(thresholds_of(request.quantities))
    shape = rows, net.architecture.outputs
    stored = [_read(unit.path(folder, request), shape, progress) for unit in different]
    with progress.meter("samples") as meter:
        monitor = _Monitor(different, stored, request, folder, meter)
        try:
            lengths = in_separate_process(
                *(_draw, net, noise, different, stored, request),
                address=net.architecture.name,
                limits=Limits(),
                on_message=monitor.add,
            )
        finally:
            monitor.save()
    final = {
        unit.key: blocks[:length]
        for unit, blocks, length in zip(different, monitor.blocks, lengths, strict=True)
    }
    table = pd.DataFrame(_rows(units, final, request))
    table.attrs["net"] = net.architecture.name
    table.attrs["notes"] = [*net.notes, *noise.scale_notes]
    table.attrs["limits"] = _limits(table)
    table.attrs["shortfall"] = _shortfall(table, request)
    return table.drop(columns=["excess", "heavy", "flat", "constant"])


def _units(net: OwnNet, noise: Noise, sigmas: Sequence[float], request: SampleRequest) -> list[_Unit]:
    units = []
    by_input = noise.values is not None and noise.by_input(tuple(net.inputs.shape[1:]))
    for sigma in sigmas:
        for row, location in enumerate(net.inputs):
            name = digest(location)[:16]
            if by_input and noise.values is not None:  # equal inputs can have other scales
                name = digest([name, noise.values[row].tolist()])[:16]
            key = OracleKey(net.digest, name, noise.label(sigma), "mc", request.block_samples)
            units.append(_Unit(key, row, sigma))
    return units


def _read(path: Path, shape: tuple[int, int], progress: Progress) -> list[Block]:
    """Return the stored blocks; none if the file does not exist or is damaged."""
    if not path.exists():
        return []
    try:
        arrays = read_arrays(path)
        statistics, inside = arrays["statistics"], arrays["inside"]
    except (UserError, KeyError) as error:
        progress.say(f"sampling again: {error}")
        return []
    if statistics.shape[1:] != shape or inside.shape[1:] != (5,):
        progress.say(f"sampling again: {path} has other contents")
        return []
    ends = np.searchsorted(inside[:, 0], np.arange(len(statistics) + 1))
    parts = [inside[start:end, 1:] for start, end in itertools.pairwise(ends)]
    return [Block(*block) for block in zip(statistics, parts, strict=True)]


def _write(path: Path, blocks: Sequence[Block]) -> None:
    tables = [np.insert(block.inside, 0, number, axis=1) for number, block in enumerate(blocks)]
    statistics = np.stack([block.statistics for block in blocks])
    with replacing(path) as file:
        np.savez(file, statistics=statistics, inside=np.concatenate(tables))


class _Monitor:
    """Stores blocks as they arrive, and shows the progress."""

    def __init__(
        self,
        units: Sequence[_Unit],
        stored: Sequence[list[Block]],
        request: SampleRequest,
        folder: Path,
        meter: Meter,
    ) -> None:
        self.blocks = [list(blocks) for blocks in stored]
        self._paths = [unit.path(folder, request) for unit in units]
        self._request, self._meter = request, meter
        self._saved = [len(blocks) for blocks in stored]
        self._drawn, self._last, self._shown = 0, time.monotonic(), (0, 0)
        self._needed = [float(_BLOCKS)] * len(units)

    def add(self, message: Any) -> None:
        """Take (unit, block or None, expected number of blocks) from the process."""
        unit, block, needed = message
        self._needed[unit] = needed
        if block is not None:
            self.blocks[unit].append(block)
            self._drawn += 1
        if not self._drawn:
            return
        if time.monotonic() - self._last > _SAVED:
            self.save()
        # of this call: blocks that are stored cost no time
        left = sum(max(0.0, n - len(b)) for n, b in zip(self._needed, self.blocks, strict=True))
        size, total = self._request.block_samples, math.ceil(self._drawn + left)
        step = size * self._drawn, size * total
        if step != self._shown:
            self._shown = step
            self._meter.done(*step, f"input {unit + 1} of {len(self.blocks)}")

    def save(self) -> None:
        """Write the blocks that are not stored yet, each file as a whole."""
        for unit, blocks in enumerate(self.blocks):
            if len(blocks) > self._saved[unit]:
                _write(self._paths[unit], blocks)
                self._saved[unit] = len(blocks)
        self._last = time.monotonic()


# In the separate process -----------------------------------------------------------------------------


def _draw(
    net: OwnNet,
    noise: Noise,
    units: Sequence[_Unit],
    stored: Sequence[list[Block]],
    request: SampleRequest,
) -> list[int]:
    """Send the missing blocks, and return the number of blocks of each unit."""
    module, lengths = net.build(), []
    for number, (unit, blocks) in enumerate(zip(units, stored, strict=True)):
        law = noise.law(net.inputs, unit.sigma, range(len(net.inputs)))[unit.row]
        seed = unit.key.seed(f"sample {request.seed}")
        try:
            with measured_code():
                drawn = oracles.independent_blocks(
                    module, law, request.block_samples, seed=seed, first=len(blocks)
                )
                lengths.append(_draw_unit(number, blocks, drawn, request))
        except MeasuredCodeError as error:
            raise RunFailedError(f"{net.architecture.name}, input {unit.row}: {error}") from error
    return lengths


def _draw_unit(number: int, blocks: list[Block], drawn: Iterable[Any], request: SampleRequest) -> int:
    """Return the number of blocks that suffice, or that are allowed.

    It depends on the blocks alone, not on the number of stored ones.
    """
    most, source = request.max_samples // request.block_samples, iter(drawn)
    levels, thresholds = levels_of(request.quantities), thresholds_of(request.quantities)
    needed, checked = float(_BLOCKS), FEWEST_BLOCKS
    while True:
        checked = min(checked, most)
        while len(blocks) < checked:
            outputs = next(source).double().cpu().numpy()
            blocks.append(block_of(outputs, levels, blocks[0] if blocks else None, thresholds))
            send((number, blocks[-1], max(needed, checked)))
        results = _estimates(blocks[:checked], request)
        excess = _largest_excess(results)
        if excess <= 1 or checked == most:
            send((number, None, checked))
            return checked
        needed = min(most, checked * excess**2)
        checked += max(1, checked // _GROWTH)


def _largest_excess(results: Sequence[Estimate]) -> float:
    """Return the largest excess; constant outputs count only if all outputs are constant."""
    excess = np.concatenate([estimate.excess for estimate in results])
    is_constant = np.concatenate([estimate.is_constant for estimate in results])
    return float(excess[is_constant.all() | ~is_constant].max())


# Tables ----------------------------------------------------------------------------------------------


def _estimates(blocks: Sequence[Block], request: SampleRequest) -> list[Estimate]:
    return estimates(blocks, request.block_samples, request.quantities, request.tolerance)


def _rows(
    units: Sequence[_Unit], final: dict[OracleKey, list[Block]], request: SampleRequest
) -> list[dict[str, Any]]:
    rows = []
    for unit in units:
        blocks = final[unit.key]
        results = _estimates(blocks, request)
        samples = len(blocks) * request.block_samples
        for output in range(blocks[0].statistics.shape[1]):
            about = {"sigma": unit.sigma, "input": unit.row, "output": output, "samples": samples}
            rows += [about | _row(estimate, output) for estimate in results]
    return rows


def _row(estimate: Estimate, output: int) -> dict[str, Any]:
    return {
        "quantity": str(estimate.quantity),
        "estimate": float(estimate.value[output]),
        "low": float(estimate.low[output]),
        "high": float(estimate.high[output]),
        "reached": bool(estimate.is_reached[output]),
        "excess": float(estimate.excess[output]),
        "heavy": bool(estimate.is_heavy[output]),
        "flat": bool(estimate.is_flat[output]),
        "constant": bool(estimate.is_constant[output]),
    }


def _limits(table: pd.DataFrame) -> list[str]:
    fewest = int(table["samples"].min())
    lines = [f"events rarer than about 1 in {max(1, fewest // 3):,} can be missed"]
    heavy = table[table["heavy"] & ~table["flat"] & table["quantity"].isin([MEAN, DEVIATION])]
    if len(heavy):
        first = heavy.iloc[0]
        lines.append(
            f"{plural(len(heavy), 'interval')} of mean or sd can be too narrow, because a single block "
            f"dominates the spread (heavy tails), first that of {_described(first)}"
        )
    flat = table[table["flat"]]
    if len(flat):
        first = flat.iloc[0]
        verb = "has" if len(flat) == 1 else "have"
        lines.append(
            f"{plural(len(flat), 'estimate')} of mean or sd {verb} no interval, first {_described(first)}: "
            f"(nearly) all {first['samples']:,} samples are equal, which shows only that other values are "
            "rare; --quantity above:THRESHOLD gives their probability with an interval"
        )
    return lines


def _described(row: pd.Series) -> str:
    return f"{row['quantity']} of output {row['output']} at input {row['input']}, σ = {row['sigma']:g}"


def _shortfall(table: pd.DataFrame, request: SampleRequest) -> str:
    """Describe the least precise estimate and how many samples it needs; empty if all are precise enough.

    Constant outputs have no interval at any number of samples, and count only if all are constant.
    """
    counted = table if table["constant"].all() else table[~table["constant"]]
    missing = counted[~counted["reached"]]
    if missing.empty:
        return ""
    worst = missing.sort_values("excess").iloc[-1]
    verb = "is" if len(missing) == 1 else "are"
    begin = (
        f"{len(missing)} of {plural(len(table), 'estimate')} {verb} not within "
        f"{100 * request.tolerance:g} % after {request.max_samples:,} samples, the worst "
        f"({_described(worst)}) "
    )
    if worst["flat"]:
        return f"{begin}without an interval: (nearly) all samples are equal"
    begin += f"within {100 * request.tolerance * worst['excess']:.2g} %; "
    if missing["heavy"].any() or not math.isfinite(worst["excess"]):
        return f"{begin}no number of samples can be predicted: the variance may be infinite (heavy tails)"
    needed = math.ceil(worst["samples"] * worst["excess"] ** 2 * 1.1 / request.block_samples)
    return (
        f"{begin}about {needed * request.block_samples:,} samples may suffice (--max-samples); the same "
        "command resumes"
    )
