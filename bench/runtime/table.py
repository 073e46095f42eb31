"""The runtime table: the settings of the paper's Table 6, as ratios to the regular pass."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from functools import partial
from pathlib import Path

import pandas as pd

from .timing import REGULAR, ImageNet, Mlp, TimeRatio, by_turns, clock, sized

TRAINING_IMAGES = 50_000
"""Training images of CIFAR-10 in one epoch."""

PHASES = ("forward", "training_step")


@dataclass(frozen=True)
class Preset:
    """The amount of work to time."""

    batch: int  # images per pass; the paper's is 128
    rounds: int  # rounds, in which methods take turns
    architectures: tuple[str, ...] = ("cnn3", "resnet18")
    phases: tuple[str, ...] = PHASES  # a subset of `PHASES`
    methods: tuple[str, ...] = ()  # methods in addition to the regular pass; empty for all


_SIDES = (1, 3, 10, 30, 100)
BY_OUTPUTS = tuple(Mlp(depth=2, width=256, outputs=count, inputs=784) for count in _SIDES)
"""Nets that differ only in the number of outputs, which is smaller than that of inputs."""
BY_INPUTS = tuple(Mlp(depth=2, width=256, outputs=100, inputs=count) for count in _SIDES)
"""The same for the number of inputs."""
MNIST_CNN = ImageNet("cnn3", 28, 1, 64)
"""The CNN of the paper's experiments on MNIST."""
NARROW_CNNS = tuple(replace(MNIST_CNN, width=width) for width in (4, 8, 12, 16))
"""Variants whose covariances fit in a few GB."""

PRESETS = {
    "smoke": Preset(batch=2, rounds=2, architectures=("cnn3",)),
    "quick": Preset(batch=16, rounds=5),
    "paper": Preset(batch=128, rounds=5),
    "dimensions": Preset(
        batch=16,
        rounds=25,
        architectures=tuple(net.name for net in (*BY_OUTPUTS, *BY_INPUTS)),
        phases=("forward",),
        methods=("marginal_sdp", "sdp", "distprop"),
    ),
    "dvia": Preset(
        batch=1,
        rounds=3,
        architectures=tuple(net.name for net in (*NARROW_CNNS, MNIST_CNN)),
        phases=("forward",),
        methods=("dvia",),
    ),
}


@dataclass(frozen=True)
class Row:
    """The time of one method on one net."""

    architecture: str
    phase: str
    method: str
    batch: int
    # model of the device, and version
    device: str
    torch: str
    threads: int  # torch threads on the CPU
    rounds: int
    seconds: float  # median time of one pass or step
    epoch_seconds: float  # time of `TRAINING_IMAGES` images
    # ratio to the regular pass or step: median and quartiles over rounds
    ratio: float
    ratio_lower: float
    ratio_upper: float


def measure(
    preset: str | Preset = "quick",
    device: str = "cpu",
    *,
    now: Callable[[], float] | None = None,
    on_skip: Callable[[str], object] = str,
    on_row: Callable[[Row], object] = str,
) -> list[Row]:
    """Time every method on every net of a preset, as a forward pass and as a training step.

    The methods of one net and phase take turns. The number of torch threads on a CPU is not changed: with one
    thread, times are CPU times, which other processes hardly affect; with more, wall times. `preset` is a
    name in `PRESETS` or a `Preset`, and `now` replaces the clock. `on_skip` is called with one line for each
    skipped combination, `on_row` with each row.
    """
    import torch

    from .workloads import NotAtThisCommitError, Workload

    if isinstance(preset, str):
        if preset not in PRESETS:
            raise ValueError(f"no runtime preset '{preset}'; choose from {', '.join(PRESETS)}")
        preset = PRESETS[preset]
    if torch.device(device).type == "cuda" and not torch.cuda.is_available():
        raise ValueError("torch finds no CUDA device here; take device='cpu'")
    rows: list[Row] = []
    for architecture in preset.architectures:
        try:
            workload = Workload.of(architecture, preset.batch, device)
        except NotAtThisCommitError as error:
            on_skip(str(error))
            continue
        for phase in preset.phases:
            works: dict[str, Callable[[], object]] = {}
            for method in (REGULAR, *preset.methods) if preset.methods else workload.methods():
                try:
                    works[method] = getattr(workload, phase)(method)
                except NotImplementedError as error:
                    on_skip(f"{architecture}, {phase}: {error}")
            times = by_turns(works, preset.rounds, now=now or partial(clock, device))
            for method, seconds in times.items():
                row = _row(architecture, phase, method, preset, device, seconds, times[REGULAR])
                rows.append(row)
                on_row(row)
    return rows


def _row(
    architecture: str,
    phase: str,
    method: str,
    preset: Preset,
    device: str,
    seconds: list[float],
    regular_seconds: list[float],
) -> Row:
    """Return the row of a method, given its times and those of the regular pass in the same rounds."""
    import torch

    from ..environment import cpu_name

    is_gpu = torch.device(device).type == "cuda"
    median = statistics.median(seconds)
    ratio = TimeRatio.of(seconds, regular_seconds)
    return Row(
        architecture=architecture,
        phase=phase,
        method=method,
        batch=preset.batch,
        device=torch.cuda.get_device_name(device) if is_gpu else cpu_name(),
        torch=torch.__version__,
        threads=torch.get_num_threads(),
        rounds=preset.rounds,
        seconds=median,
        epoch_seconds=median * math.ceil(TRAINING_IMAGES / preset.batch),
        ratio=ratio.median,
        ratio_lower=ratio.lower,
        ratio_upper=ratio.upper,
    )


def save(rows: list[Row], path: str | Path) -> None:
    """Write rows atomically as CSV, one column per field of `Row`."""
    from .. import files

    frame = pd.DataFrame(rows, columns=[field.name for field in fields(Row)])
    files.write(Path(path), frame.to_csv(index=False))


def load(path: str | Path) -> list[Row]:
    """Read a table written by `save`; a ValueError if it is not one, or a net's name or a time is invalid."""
    kinds = {f.name: str(f.type) for f in fields(Row)}
    # names may look like numbers, or like missing values
    frame = pd.read_csv(path, dtype=kinds, keep_default_na=False)
    missing = kinds.keys() - set(frame.columns)
    if missing:
        raise ValueError(f"{path} is not a runtime table: it has no column {', '.join(sorted(missing))}")
    for name, times in frame[list(kinds)].select_dtypes("float").items():
        if len(wrong := times[~times.between(0, math.inf, inclusive="neither")]):
            raise ValueError(
                f"{path} is not a runtime table: {name} is {wrong.iloc[0]:g}, which is not a positive number"
            )
    for name in frame["architecture"].unique():
        sized(str(name))
    return [Row(*record) for record in frame[list(kinds)].itertuples(index=False)]


def beside_paper(rows: Sequence[Row], published: pd.DataFrame) -> list[tuple[Row, float | None]]:
    """Return rows with the paper's ratios, None if a combination is not listed; it has training steps only.

    `published` is the paper's Table 6, which times whole epochs of training, as in ``runtime_cifar10.csv``:
    columns `architecture`, `method`, `metric` and `value` (s per epoch).
    """
    epochs = published[published["metric"] == "time_per_epoch"]
    seconds = epochs.set_index(["architecture", "method"])["value"].astype(float)

    def ratio(row: Row) -> float | None:
        if row.phase != "training_step":
            return None
        method = seconds.get((row.architecture, row.method))
        regular = seconds.get((row.architecture, REGULAR))
        return method / regular if method and regular else None

    return [(row, ratio(row)) for row in rows]
