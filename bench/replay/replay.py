"""One stored measurement made again, step by step."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from typing import Any

import numpy as np
from torch import Tensor

from sdp_bench.bench.experiments.law_group import measured
from sdp_bench.bench.noise import GAUSSIAN
from sdp_bench.bench.replay.stored import stored_measurement
from sdp_bench.bench.results.record import Record
from sdp_bench.bench.results.store import Store
from sdp_bench.oracles.estimate.tails import heavy_tailed
from sdp_ref.laws import Law


def replay(
    store: Store, key: str, say: Callable[[str], None], *, trusted: bool = False
) -> list[tuple[Record, Record]]:
    """Make one stored measurement again from the net, input and seeds that it is known by.

    Parameters
    ----------
    store : Store
    key : str
        ``unit/rule/metric`` as in the exported table, or the beginning of one.
    say : callable
        Called with lines that tell what is done.
    trusted : bool
        Whether the code of a plug-in rule may be run that is stored in the file.

    Returns
    -------
    list of (Record, Record)
        For each component what was stored and what came out now.

    Raises
    ------
    UserError, RunFailedError
        If it cannot be made again; see :func:`sdp_bench.bench.replay.stored.stored_measurement`.
    """
    made = stored_measurement(store, key, trusted=trusted)
    rows, first, net, subject, location = made.rows, made.first, made.net, made.subject, made.location
    say(f"net     {net.architecture.label} {net.architecture.activation}, seed {net.seed}, {net.digest}")
    accuracy = "" if net.accuracy is None else f", accuracy {net.accuracy:.3f}"
    say(f"        {net.recipe}{accuracy}")
    values = f": {_row(location)}" if location.ndim == 1 else ""
    noise = made.group.noise
    under = "" if noise == GAUSSIAN else f"{noise.name} noise, "
    say(f"input   row {subject.row}{values}, {under}{noise.parameter} {made.group.sigma:g}")
    oracle = made.oracle
    law = subject.key
    say(f"oracle  {law.hex}: {law.samples} samples ({law.sampler}), {oracle.precision}")
    prediction, seconds = made.prediction()
    say(f"        {_described(oracle.samples, oracle.law)}")
    say(f"rule    {first['rule']}: {seconds * 1e3:.2f} ms")
    say(f"        {_described(prediction.outputs, oracle.law, prediction.law)}")
    again = measured(oracle, prediction, first["rule"], first["metric"], seconds)
    stored = {r["component"]: Record(**{f.name: r[f.name] for f in fields(Record)}) for r in rows}
    return [(stored[record.component], record) for record in again if record.component in stored]


def identical(stored: Record, again: Record) -> bool:
    """Whether value, floor and standard error are equal to the last bit."""
    names = ("value", "floor", "floor95", "stderr")
    return all(getattr(stored, name) == getattr(again, name) for name in names)


def _described(samples: Tensor, noise: Law, law: Law | None = None) -> str:
    """Centre and spread of the outputs: by moments where the noise has any, else by quartiles."""
    if law is not None and not heavy_tailed(law):
        return f"mean {_row(law.mean[0])}, sd {_row(law.variance[0].sqrt())}"
    if not heavy_tailed(noise):
        return f"mean {_row(samples.double().mean(0))}, sd {_row(samples.double().std(0))}"
    low, median, high = np.quantile(samples.numpy(), (0.25, 0.5, 0.75), axis=0)
    return f"median {_row(median)}, half the interquartile range {_row((high - low) / 2)}"


def _row(tensor: Any) -> str:
    return "(" + ", ".join(f"{value:.6g}" for value in tensor.tolist()) + ")"
