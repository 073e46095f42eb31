"""Advice on linearisation without an oracle: how accurate it is for a net, from 10 000 forward passes.

The outputs at ``x + z``, with noise ``z``, are paired with their linearisation at the same ``z``. Each error
has an interval for the sampling noise. While an interval contains the limit of a use, the number of passes is
doubled, up to 40 000. If it still contains the limit, the advice is undecided.
:mod:`sdp_bench.bench.advice.calibration` measures how often the advice is wrong.
"""

from __future__ import annotations

import copy
import functools
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from torch import nn

from sdp_ref.jacobian.jacobian import jacobian_of
from sdp_ref.laws import DiagonalGaussian, Gaussian

from ..errors import MeasuredCodeError, UserError, measured_code
from ..executors.local import Limits, in_separate_process, send
from ..nets.own.inputs import row_seed
from ..nets.own.net import OwnNet
from ..noise import GAUSSIAN, Noise
from ..progress import Progress
from .estimates import Interval, class_error, deviations_error, distribution_error
from .outcomes import CLASS, DEVIATIONS, DISTRIBUTION, LIMITS, MAX_SAMPLES, SAMPLES, outcome_of

Array = NDArray[np.float64]

_BATCH_VALUES = 2**18  # input values of a forward pass
_OUTPUT_VALUES = 10**7  # at most, in float64, unless the first samples have more
_CELLS = 512  # of the headline partition, of equal mass
_NO_LIMITS = Limits()
_VALIDATE = "; `sdp-bench validate --net` measures it"


def paired_outputs(
    net: nn.Module, law: Gaussian | DiagonalGaussian, samples: int = SAMPLES, seed: int = 0
) -> tuple[Array, Array]:
    """Outputs of a net at samples of a law with one row, and its linearisation at the same samples.

    Both have shape (samples, m). The linearisation is around the mean, as in the rule `sdp`.
    """
    return next(_growing_outputs(net, law, samples, seed))


def _growing_outputs(
    net: nn.Module, law: Gaussian | DiagonalGaussian, samples: int, seed: int
) -> Iterator[tuple[Array, Array]]:
    """Yield outputs and linearisation at a number of samples, then at twice as many, and so on."""
    x, generator = law.mean, torch.Generator().manual_seed(seed)
    value, jacobian = jacobian_of(net, x, spread=law.spread)
    rows = jacobian[0].flatten(1).mT
    batch = max(1, _BATCH_VALUES // x.numel())
    outputs, linear, drawn = [], [], 0
    while True:
        with torch.no_grad():
            while drawn < samples:
                inputs = law.sample(min(batch, samples - drawn), generator)[:, 0]
                outputs.append(net(inputs))
                linear.append(value + (inputs - x).flatten(1) @ rows)
                drawn += len(inputs)
        yield torch.cat(outputs).numpy(), torch.cat(linear).numpy()
        samples *= 2


def errors_of(outputs: Array, linear: Array, has_class: bool = True) -> dict[str, Interval]:
    """Estimated errors of linearisation by use, in the terms of :data:`LIMITS`, from paired outputs.

    They are NaN, and undecided, if an output or its derivative is not finite. The class is that of the
    largest output, if there are several, and left out without `has_class`.
    """
    uses = list(LIMITS) if has_class and outputs.shape[1] > 1 else [DEVIATIONS, DISTRIBUTION]
    if not (np.isfinite(outputs).all() and np.isfinite(linear).all()):
        return dict.fromkeys(uses, Interval(math.nan, math.nan, math.nan))
    estimate = {CLASS: class_error, DEVIATIONS: deviations_error, DISTRIBUTION: distribution_error}
    return {use: estimate[use](outputs, linear) for use in uses}


def estimated(
    net: nn.Module,
    law: Gaussian | DiagonalGaussian,
    seed: int = 0,
    samples: int = SAMPLES,
    most: int = MAX_SAMPLES,
    errors_from: Callable[[Array, Array], dict[str, Interval]] = errors_of,
) -> tuple[Array, dict[str, Interval]]:
    """Return outputs at samples of a law with one row, and the errors of linearisation by use.

    The number of samples is doubled, up to `most`, while an interval contains the limit of its use.
    """
    for outputs, linear in _growing_outputs(net, law, samples, seed):
        errors = errors_from(outputs, linear)
        unclear = any(error.low <= LIMITS[use] < error.high for use, error in errors.items())
        is_last = 2 * len(outputs) > most or 2 * outputs.size > _OUTPUT_VALUES
        if is_last or not unclear:
            break
    return outputs, errors


def advise(
    net: nn.Module,
    law: Gaussian | DiagonalGaussian,
    seed: int = 0,
    *,
    has_class: bool = True,
    on_row: Callable[[int, int], None] | None = None,
) -> pd.DataFrame:
    """Advise on linearisation for each input of a net and each use, without an oracle.

    `law` has a row for each input, shape (B, *event); `net` maps (B, *event) to (B, m). Rows that equal an
    earlier one are skipped. `has_class` is whether the largest output is a decision. `on_row` is called after
    each row with the number of finished rows and that of all rows. The result has the columns `input` (the
    number of the row), `use`, `index` (the estimated error), `low` and `high` (its 95 % interval), `outcome`
    and `samples`, the number of Monte Carlo samples with the limit as expected error.
    """
    net = copy.deepcopy(net).double().eval()
    law, rows = law.to(dtype=torch.float64), []
    errors_from = functools.partial(errors_of, has_class=has_class)
    numbers = _distinct_rows(law)
    for finished, number in enumerate(numbers, 1):
        outputs, errors = estimated(net, law[number], seed=seed + number, errors_from=errors_from)
        for use, error in errors.items():
            outcome, samples = outcome_of(use, error.low, error.high), samples_for(use, outputs)
            rows.append((number, use, error.value, error.low, error.high, outcome, samples))
        if on_row is not None:
            on_row(finished, len(numbers))
    return pd.DataFrame(rows, columns=["input", "use", "index", "low", "high", "outcome", "samples"])


def _distinct_rows(law: Gaussian | DiagonalGaussian) -> list[int]:
    noise = law.covariance if isinstance(law, Gaussian) else law.variance
    contents = [
        (mean.numpy().tobytes(), row.numpy().tobytes()) for mean, row in zip(law.mean, noise, strict=True)
    ]
    return [number for number, content in enumerate(contents) if contents.index(content) == number]


def advise_on(
    net: OwnNet,
    noise: Noise | None,
    sigmas: Sequence[float] | None,
    progress: Progress,
    *,
    seed: int = 0,
    hint: str = _VALIDATE,
    limits: Limits = _NO_LIMITS,
) -> pd.DataFrame:
    """Advise on a user's net at all its inputs, in a separate process: :func:`advise` at each noise level.

    The result also has the column `sigma`; ``attrs["net"]`` is the name of the net, and ``attrs["notes"]``
    are lines on how it was loaded and on the noise. `noise` is Gaussian by default. `sigmas` are required,
    unless the noise has scales or a covariance. Raises UserError for noise that is not Gaussian, and for a
    net that is not differentiable or does not run in float64; the messages end with `hint`, which names an
    alternative.
    """
    noise = noise or GAUSSIAN
    if sigmas is None and noise.values is None:
        raise UserError("sigma is required (--sigma 0.1,1)")
    name = net.architecture.name
    with progress.meter("inputs") as meter:
        rows = in_separate_process(
            _rows,
            net,
            noise,
            sigmas or (1.0,),
            seed,
            hint,
            address=name,
            limits=limits,
            on_message=lambda step: meter.done(step[0], step[1], ""),
        )
    table = pd.DataFrame(rows)
    table.attrs["net"], table.attrs["notes"] = name, [*net.notes, *noise.scale_notes]
    return table


def _rows(net: OwnNet, noise: Noise, sigmas: Sequence[float], seed: int, hint: str) -> list[dict[str, Any]]:
    noise.check(tuple(net.inputs.shape[1:]), tuple(sigmas), "mc", len(net.inputs))
    frames = []
    for position, sigma in enumerate(sigmas):
        if not sigma > 0:
            raise UserError(f"a noise level must be positive, got {sigma:g}")
        law = noise.law(net.inputs, sigma, range(len(net.inputs)))
        if not isinstance(law, Gaussian | DiagonalGaussian):
            raise UserError(f"advice is calibrated for Gaussian noise, not for {noise.text}{hint}")
        on_row = functools.partial(_send_step, position, len(sigmas))
        try:
            with measured_code():
                frame = advise(net.build(), law, row_seed(seed, 0), has_class=net.has_class, on_row=on_row)
                frames.append(frame.assign(sigma=sigma))
        except MeasuredCodeError as error:
            raise UserError(
                f"{net.architecture.name} must be differentiable and run in float64: {error}{hint}"
            ) from error
    return [{str(name): value for name, value in row.items()} for row in pd.concat(frames).to_dict("records")]


def _send_step(position: int, sigmas: int, finished: int, rows: int) -> None:
    send((position * rows + finished, sigmas * rows))


def samples_for(use: str, outputs: Array) -> int:
    """Return the number of Monte Carlo samples with the limit of a use as expected error.

    The mean total variation of k samples, over cells of probability p, is ``sum(sqrt(p (1 - p))) / sqrt(2 pi
    k)``. The mean absolute logarithm of the ratio of standard deviations is ``sqrt((kurtosis - 1) / (2 pi
    k))`` for many samples. The kurtosis is infinite for some heavy tails; the number then grows with the
    number of outputs.
    """
    if use == DEVIATIONS:
        kurtosis = _kurtosis_bounds(outputs)
        spread = float(np.sqrt(kurtosis - 1).mean()) if len(kurtosis) else 0.0
    elif use == CLASS:
        p = np.bincount(outputs.argmax(1)) / len(outputs)
        spread = float(np.sqrt(p * (1 - p)).sum())
    else:
        spread = math.sqrt(_CELLS - 1)
    needed = spread**2 / (2 * math.pi * LIMITS[use] ** 2)
    digits = 10 ** max(0, math.floor(math.log10(max(needed, 1))))
    return max(2, math.ceil(needed / digits) * digits)


def _kurtosis_bounds(outputs: Array) -> Array:
    """Kurtosis of each output that is finite and not constant, plus two standard errors.

    Few samples underestimate the kurtosis of heavy tails, but their standard error is then large, too.
    """
    with np.errstate(invalid="ignore", over="ignore"):
        centred = outputs - outputs.mean(0)
        variance = (centred**2).mean(0)
    varies = variance > 0
    standard = centred[:, varies] / np.sqrt(variance[varies])
    squares = standard**2
    skewness, kurtosis = (standard * squares).mean(0), (squares**2).mean(0)
    # Linear terms of the kurtosis in the fourth power, in the square and in the mean.
    terms = squares**2 - 2 * kurtosis * squares - 4 * skewness * standard
    return np.asarray(kurtosis + 2 * terms.std(0) / math.sqrt(len(outputs)))
