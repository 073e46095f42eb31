"""Stacks of nets for prediction intervals: trained with checkpoints, and cached."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load, save

from sdp_bench.bench.errors import RunFailedError
from sdp_bench.bench.experiments.uci.stacked import OBJECTIVES, Nets, Objective, Problem, Setting, Trainer
from sdp_bench.bench.identity import keys
from sdp_bench.bench.identity.fingerprint import reached
from sdp_bench.bench.nets.fully_connected import cache_folder, write_atomically

SAVE_SECONDS = 120.0
"""Longest time between two checkpoints."""

TRAINING = (Trainer, Trainer.run, *OBJECTIVES.values())
"""Code that decides what is trained."""

Report = Callable[[int, int], None]
"""Told how many epochs are done, and of how many."""


def get_nets(
    name: str,
    problem: Problem,
    objective: Objective,
    settings: Sequence[Setting],
    epochs: int,
    report: Report | None = None,
) -> Nets:
    """Nets of an objective for all seeds and settings, from the cache or else trained and put there.

    A training that was interrupted goes on from its last checkpoint, to the same weights.

    Parameters
    ----------
    name : str
        Of the data set, for the file's name.
    problem, objective, settings
        As :class:`sdp_bench.bench.experiments.uci.stacked.Trainer` takes them.
    epochs : int
    report : callable, optional

    Raises
    ------
    RunFailedError
        If the training of every net diverged, or the cache cannot be written.
    """
    trainer = Trainer(problem, objective, settings)
    path = _path(name, problem, objective, settings, epochs)
    if _restored(trainer, path):
        return trainer.nets
    checkpoint = path.with_suffix(".checkpoint")
    _restored(trainer, checkpoint)
    saved = time.monotonic()
    for done in trainer.run(epochs):
        if report is not None:
            report(done, epochs)
        if time.monotonic() - saved > SAVE_SECONDS:
            _save(trainer, checkpoint)
            saved = time.monotonic()
    # One that diverged covers nothing, and so is never selected.
    finite = [tensor.isfinite().flatten(1).all(1) for tensor in trainer.nets.tensors.values()]
    if not bool(torch.stack(finite).all(0).any()):
        raise RunFailedError(f"training on {name} diverged ({objective.name})")
    _save(trainer, path)
    checkpoint.unlink(missing_ok=True)
    return trainer.nets


def _path(
    name: str, problem: Problem, objective: Objective, settings: Sequence[Setting], epochs: int
) -> Path:
    grid = [(setting.learning_rate, setting.weight_decay) for setting in settings]
    identity = keys.digest(
        *(problem.features, problem.targets, list(problem.seeds), objective.name, grid, epochs),
        reached(*TRAINING),
    )
    return cache_folder() / f"intervals-{name}-{objective.name}-{identity[:12]}.safetensors"


def _restored(trainer: Trainer, path: Path) -> bool:
    """Take up the state in a file; a missing or damaged one counts as none."""
    try:
        state = load(path.read_bytes())  # copied to the stack's device
        trainer.restore(state)
    except (OSError, ValueError, KeyError, SafetensorError):
        return False
    return True


def _save(trainer: Trainer, path: Path) -> None:
    state = {key: value.cpu().contiguous() for key, value in trainer.state().items()}
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, save(state))
    except OSError as error:
        raise RunFailedError(f"cannot write {path}: {error.strerror}") from error
