"""What is measured of one model, in a process of its own."""

from __future__ import annotations

import math
import re
import time
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from torch import Tensor, nn

import sdp_ref as sr
from benchmarks.models.zoo import Model, opened
from sdp_bench.bench.errors import one_line
from sdp_bench.bench.executors.local import tell
from sdp_ref.errors import UnsupportedError
from sdp_ref.graph import ops
from sdp_ref.graph.trace import trace

SIGMA = 1e-4
TRACE = "trace"
RULES = ("sdp", "monte_carlo", "marginal_sdp", "marginal_moment_matching")
DEAR = "unscented"
FALLBACK, UNKNOWN = "fallback=linearise", "; no formula: "
PART = 128  # rows that a net is given at a time
DEAREST = 60.0  # s of the processor


@dataclass(frozen=True)
class Row:
    """What was found of one part of a model: its trace, or a rule.

    Attributes
    ----------
    package, model : str
    weights : int
    event : str
        Shape of an input.
    part : str
        :data:`TRACE` or a rule.
    seconds : float or None
        Of one thread of the processor; None where there is no result.
    std : float or None
        Root mean square of the outputs' standard deviations.
    shift : float or None
        The same of the difference between the predicted mean and the net's output at the mean.
    note : str
        What was approximated, what has no formula, or why there is no result.
    """

    package: str
    model: str
    weights: int
    event: str
    part: str
    seconds: float | None
    std: float | None = None
    shift: float | None = None
    note: str = ""


def measure(folder: Path, model: Model, parts: Iterable[str]) -> None:
    """Tell a row for each of some parts of a model as it is found."""
    opened(folder)
    net, event = model.made()
    given = (model.package, model.name, model.weights, "x".join(map(str, event)))
    generator = torch.Generator().manual_seed(1)
    x = sr.DiagonalGaussian(torch.randn(1, *event, generator=generator), torch.full((1, *event), SIGMA**2))
    with torch.no_grad():
        at_mean = net(x.mean)
    for part in parts:
        try:
            row = _traced(given, net, x) if part == TRACE else _predicted(given, net, x, part, at_mean)
        except Exception as error:  # noqa: BLE001  said in the table
            row = Row(*given, part, None, note=one_line(error))
        tell(asdict(row))


def _traced(given: tuple[str, str, int, str], net: nn.Module, x: sr.DiagonalGaussian) -> Row:
    start = time.process_time()
    steps = trace(net, x.mean)
    seconds = time.process_time() - start
    unknown = Counter(step.module.text for step in steps if isinstance(step.module, ops.Unknown))
    note = f"{len(steps)} steps"
    return Row(*given, TRACE, seconds, note=f"{note}{UNKNOWN}{_counted(unknown)}" if unknown else note)


def _predicted(
    given: tuple[str, str, int, str], net: nn.Module, x: sr.DiagonalGaussian, rule: str, at_mean: Tensor
) -> Row:
    called = in_parts(net) if rule in {DEAR, "monte_carlo"} else net
    if rule == DEAR:
        passes = 2 * math.prod(x.event_shape) + 1
        seconds = passes * _seconds_a_row(net, x.mean)
        if seconds > DEAREST:
            return Row(*given, rule, None, note=f"{passes} passes, about {seconds:.0f} s")
    note = ""
    with torch.no_grad():
        start = time.process_time()
        try:
            law = sr.propagate(called, x, rule)
        except UnsupportedError:
            if not rule.startswith("marginal"):
                raise
            note, start = FALLBACK, time.process_time()
            law = sr.propagate(called, x, f"{rule}:{FALLBACK}")
        seconds = time.process_time() - start
    if not all(bool(each.isfinite().all()) for each in (law.mean, law.variance)):
        raise FloatingPointError("a prediction that is not finite")
    std, shift = (
        float(each.double().square().mean().sqrt()) for each in (law.variance.sqrt(), law.mean - at_mean)
    )
    approximated = _counted(Counter(re.sub(r" at '.*'$", "", each) for each in law.notes))
    return Row(*given, rule, seconds, std, shift, "; ".join(each for each in (note, approximated) if each))


def in_parts(net: nn.Module) -> Callable[[Tensor], Tensor]:
    """The net, which is given some rows at a time: thousands at once would not fit into memory."""
    return lambda x: torch.cat([net(rows) for rows in x.split(PART)])


def _seconds_a_row(net: nn.Module, x: Tensor) -> float:
    rows = x.expand(PART, *x.shape[1:]).contiguous()
    with torch.no_grad():
        net(rows[:2])
        start = time.process_time()
        net(rows)
    return (time.process_time() - start) / PART


def _counted(found: Counter[str]) -> str:
    return ", ".join(f"{count} {what}" for what, count in found.most_common())
