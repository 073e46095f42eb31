"""Stacks of nets for prediction intervals: trained with checkpoints, and cached."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import torch

from sdp_bench.bench.errors import RunFailedError
from sdp_bench.bench.identity import keys
from sdp_bench.bench.methods.uci.stacked import Nets, Objective, Problem, Setting, Trainer
from sdp_bench.bench.nets import storage

VERSION = 1
"""Raise it with every change that changes what is trained: nets are trained again, and scored again."""

Report = Callable[[int, int], None]
"""Callback (epochs done, epochs in total)."""


def get_nets(
    name: str,
    problem: Problem,
    objective: Objective,
    settings: Sequence[Setting],
    epochs: int,
    report: Report | None = None,
) -> Nets:
    """Return the nets of an objective for all seeds and settings, from the cache, or trained and cached.

    A training that was interrupted goes on from its last checkpoint, to the same weights.

    Parameters
    ----------
    name : str
        Of the data set, for the file's name.
    problem, objective, settings
        As :class:`sdp_bench.bench.methods.uci.stacked.Trainer` takes them.
    epochs : int
    report : callable, optional

    Returns
    -------
    Nets
        Seed by seed, each with all settings.

    Raises
    ------
    RunFailedError
        If the training of every net diverged, or the cache cannot be written.
    """

    def steps(trainer: Trainer) -> Iterator[int]:
        for done in trainer.run(epochs):
            if report is not None:
                report(done, epochs)
            yield done
        # Nets that diverged have no coverage, so they are never selected.
        finite = [tensor.isfinite().flatten(1).all(1) for tensor in trainer.nets.tensors.values()]
        if not bool(torch.stack(finite).all(0).any()):
            raise RunFailedError(f"training on {name} diverged ({objective.name})")

    path = _path(name, problem, objective, settings, epochs)
    return storage.trained(path, lambda: Trainer(problem, objective, settings), steps).nets


def _path(
    name: str, problem: Problem, objective: Objective, settings: Sequence[Setting], epochs: int
) -> Path:
    grid = [(setting.learning_rate, setting.weight_decay) for setting in settings]
    identity = keys.digest(
        *(problem.features, problem.targets, list(problem.seeds), objective.name, grid, epochs),
        *(problem.member, VERSION),
    )
    return storage.cache_folder() / f"intervals-{name}-{objective.name}-{identity[:12]}.safetensors"
