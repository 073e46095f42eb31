"""Prediction intervals: scores, selection, methods, and groups of work."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F  # noqa: N812

from ...datasets import dataset
from ...datasets.base import RegressionTable, TabularRegression
from ...errors import UserError
from ...experiments.replicates import Number, ReplicateExperiment, ReplicateGroup
from ...experiments.versions import of_method
from ...identity import digest
from ...settings import Settings
from . import EPOCHS, LEVELS, METHODS, Method
from .stacked import (
    BATCH,
    OBJECTIVES,
    VERSION,
    Hyperparameters,
    NetStack,
    Problem,
    get_nets,
    level_input,
)

NORMAL_95 = 1.96
"""Half the width of the central 95 % of a normal law in standard deviations, rounded as in the paper.
"""


def picp(y: Tensor, low: Tensor, high: Tensor) -> Tensor:
    """Prediction interval coverage probability: share of the targets strictly inside their intervals.

    `y`, `low` and `high`, shape (..., rows), are broadcast; the result has shape (...).
    """
    return ((low < y) & (y < high)).double().mean(-1)


def mpiw(low: Tensor, high: Tensor) -> Tensor:
    """Mean prediction interval width, shape (...), of intervals of shape (..., rows).

    Crossed quantiles count with their absolute distance, as in the published evaluation.
    """
    return (high - low).abs().double().mean(-1)


def gaussian_nll(y: Tensor, mean: Tensor, variance: Tensor) -> Tensor:
    """Mean negative log-likelihood (nats) of targets under Gaussians: log(2 pi v) / 2 + (y - mean)^2 / (2 v).

    Arguments have shape (..., rows), and the result has shape (...). A variance of 0 gives infinity if a
    target is missed, and minus infinity if all such targets are met.
    """
    y, mean, variance = y.double(), mean.double(), variance.double()
    residual = y - mean
    # At variance 0 the quotient of a target that is met would be 0 / 0.
    missed = torch.where(residual == 0, 0.0, residual.square() / (2 * variance))
    losses = torch.where(missed == math.inf, math.inf, (2 * math.pi * variance).log() / 2 + missed)
    total = losses.sum(-1)
    # A missed target decides: infinity minus infinity would be NaN.
    return torch.where((losses == math.inf).any(-1), math.inf, total) / losses.shape[-1]


TEST_SHARE, VALIDATION_SHARE = 0.1, 0.2
"""Share of test rows among all rows, and of validation rows among the rest."""
WINDOW = (0.925, 0.975)
"""Validation coverage, exclusive, that a setting needs to qualify (Tagasovska and Lopez-Paz 2019)."""
GRID = tuple(
    Hyperparameters(rate, decay) for rate in (1e-2, 1e-3, 1e-4) for decay in (0.0, 1e-3, 1e-2, 1e-1, 1.0)
)
DECADES = tuple(10.0**power for power in range(-8, 1))
"""Input variances of the first scan, in units of standardised features."""
REFINEMENT = tuple(10 ** (step / 10) for step in range(-5, 6))
"""Factors on the best of these, in the second scan."""

_LEAST_ROWS = 10


@dataclass(frozen=True)
class Splits:
    """Rows of a set for several seeds: training, validation and test, in standardised units."""

    features: dict[str, Tensor]  # shape (S, rows, n); by "train", "validation" and "test"
    targets: dict[str, Tensor]  # shape (S, rows)
    ranges: Tensor  # shape (S,); range of the targets of the whole set, in each seed's units


def rows_of(count: int, seed: int) -> dict[str, np.ndarray]:
    """Return the row numbers of the parts ``train``, ``validation`` and ``test`` for a seed."""
    if count < _LEAST_ROWS:
        raise UserError(f"a set of {count} rows is too small to split; at least {_LEAST_ROWS} are needed")
    # RandomState rather than a Generator: these are the published splits.
    order = np.random.RandomState(seed).permutation(count)
    test, rest = np.split(order, [math.ceil(TEST_SHARE * count)])
    rest = rest[np.random.RandomState(seed).permutation(len(rest))]
    validation, train = np.split(rest, [math.ceil(VALIDATION_SHARE * len(rest))])
    return {"train": train, "validation": validation, "test": test}


def splits(
    data: RegressionTable, seeds: Sequence[int], dtype: torch.dtype = torch.float32, device: str = "cpu"
) -> Splits:
    """Split and standardise a set for each seed, by the mean and population sd of its training rows.

    A feature without variance keeps its scale. A UserError is raised if the set has too few rows, values that
    are not finite, or constant targets.
    """
    x, y = data.features.double(), data.targets.double()
    if not bool(x.isfinite().all() and y.isfinite().all()):
        raise UserError(f"{data.title} has numbers that are not finite")
    if not bool((y != y[0]).any()):
        raise UserError(f"the targets of {data.title} are all the same; there is nothing to predict")
    features, targets = defaultdict[str, list[Tensor]](list), defaultdict[str, list[Tensor]](list)
    ranges = []
    for seed in seeds:
        rows_by_part = {part: torch.from_numpy(rows) for part, rows in rows_of(len(y), seed).items()}
        train = rows_by_part["train"]
        x_mean, x_scale = x[train].mean(0), _positive(x[train].std(0, correction=0))
        y_mean, y_scale = y[train].mean(), _positive(y[train].std(correction=0))
        for part, rows in rows_by_part.items():
            features[part].append(((x[rows] - x_mean) / x_scale).to(dtype))
            targets[part].append(((y[rows] - y_mean) / y_scale).to(dtype))
        ranges.append((y.max() - y.min()) / y_scale)
    return Splits(
        {part: torch.stack(by_seed).to(device) for part, by_seed in features.items()},
        {part: torch.stack(by_seed).to(device) for part, by_seed in targets.items()},
        torch.stack(ranges).to(device),
    )


def _positive(scale: Tensor) -> Tensor:
    """Replace scales of zero by 1."""
    return torch.where(scale > 0, scale, 1.0)


class Intervals(NamedTuple):
    """Predicted intervals, and the corresponding Gaussians, by seed, setting and row."""

    low: Tensor
    high: Tensor
    mean: Tensor
    variance: Tensor

    @classmethod
    def of_gaussians(cls, mean: Tensor, variance: Tensor) -> Intervals:
        """Return central 95 % intervals: mean +- 1.96 standard deviations."""
        half = NORMAL_95 * variance.sqrt()
        return cls(mean - half, mean + half, mean, variance)


SCORES = ("picp", "mpiw", "nll")
"""Coverage, width and likelihood (nats) of intervals: the first dimension of all scores below."""


def qualified(coverage: Tensor) -> Tensor:
    """Return whether a validation coverage lies in the window."""
    return (coverage > WINDOW[0]) & (coverage < WINDOW[1])


def select(scores: Tensor) -> list[int | None]:
    """Return, for each seed, the qualified candidate of smallest width, or None.

    `scores` are those of the validation rows, shape (3, S, candidates).
    """
    coverage, width, _ = scores
    qualifies = qualified(coverage)
    narrowest = torch.where(qualifies, width, math.inf).argmin(1)
    any_qualifies = qualifies.any(1)
    return [
        candidate if exists else None
        for candidate, exists in zip(narrowest.tolist(), any_qualifies.tolist(), strict=True)
    ]


def best_variance(scores: Tensor) -> Tensor:
    """Return the index of the best of V input variances; `scores` have shape (3, ..., V).

    The best is the narrowest that qualifies; if none does, the one with coverage nearest to 95 %.
    """
    coverage, width, _ = scores
    qualifies = qualified(coverage)
    nearest = (coverage - sum(WINDOW) / 2).abs().argmin(-1)
    narrowest = torch.where(qualifies, width, math.inf).argmin(-1)
    return torch.where(qualifies.any(-1), narrowest, nearest)


PNN_FLOOR = 1e-6
"""Added to a PNN's predicted variance."""

_COLUMNS = 256  # noisy inputs at a time: the hidden units of a seed's nets (1 MB) fit in a core's cache


Predict = Callable[[str, Tensor], Intervals]
"""Returns intervals (S, settings, rows) for a part of the data at input variances (S, settings)."""


def evaluate(
    method: str,
    stacks: Sequence[NetStack],
    splits: Splits,
    settings: Sequence[Hyperparameters],
    seeds: Sequence[int],
) -> dict[str | None, list[dict[str, float]]]:
    """Select on the validation rows and score on the test rows, for each seed.

    `method` is one of `sdp_bench.bench.studies.uci.METHODS`. `stacks` are the nets trained by its objective,
    seed by seed, one stack for each member of an ensemble. The result has numbers by metric, in order of
    seeds, by reading of the scan of input variances (`sdp_bench.bench.studies.uci.READINGS`; None for a
    method without one). They are the number of settings with a qualified candidate and, if there is one,
    those of the selected candidate.
    """
    definition = METHODS[method]
    predict = _predictor(definition, stacks, splits, len(settings), seeds)
    scores = partial(_scores, predict, splits)
    numbers = partial(_numbers_of_best, scores, settings, definition.propagates)

    def for_all(variances: Tensor) -> Tensor:
        """Return the same input variances, shape (V,), for all seeds and settings: (S, settings, V)."""
        return variances.expand(len(seeds), len(settings), -1)

    if not definition.propagates:
        unused = for_all(splits.ranges.new_ones(1))
        return {None: numbers(unused, scores("validation", unused))}

    decades = for_all(splits.ranges.new_tensor(DECADES))
    factors = splits.ranges.new_tensor(REFINEMENT)
    decade_scores = scores("validation", decades)

    # A scan for each seed and setting: all decades, and the refinement of the best one. The decades include
    # the factor of 1.
    best_decades = decades.take_along_dim(best_variance(decade_scores).unsqueeze(2), 2)
    refined = best_decades * factors[factors != 1]
    full_scan = torch.cat([decades, refined], 2)
    full_scores = torch.cat([decade_scores, scores("validation", refined)], -1)

    # One scan for the set: around the best decade of the first seed over all its settings.
    best_decade = _best_of_first_seed(decade_scores)
    set_scan = for_all(DECADES[best_decade] * factors)
    set_scores = scores("validation", set_scan)

    # One variance for the set: the best of this scan, again of the first seed.
    best_factor = _best_of_first_seed(set_scores)
    return {
        None: numbers(full_scan, full_scores),
        "set_scan": numbers(set_scan, set_scores),
        "set_variance": numbers(set_scan[..., [best_factor]], set_scores[..., [best_factor]]),
    }


def _scores(predict: Predict, splits: Splits, part: str, variances: Tensor) -> Tensor:
    """Return scores, shape (3, S, settings, V), at input variances of shape (S, settings, V)."""
    y, ranges = splits.targets[part].unsqueeze(1), splits.ranges.unsqueeze(1)
    by_variance = []
    for input_variance in variances.unbind(-1):
        low, high, mean, variance = predict(part, input_variance)
        coverage = picp(y, low, high)
        width = mpiw(low, high) / ranges
        by_variance.append(torch.stack([coverage, width, gaussian_nll(y, mean, variance)]))
    return torch.stack(by_variance, -1)


def _best_of_first_seed(scores: Tensor) -> int:
    """Return the index of the input variance that is best over all settings of the first seed."""
    count = scores.shape[-1]
    return int(best_variance(scores[:, 0].flatten(1))) % count


def _numbers_of_best(
    scores: Callable[[str, Tensor], Tensor],
    settings: Sequence[Hyperparameters],
    is_scan: bool,
    variances: Tensor,
    validation: Tensor,
) -> list[dict[str, float]]:
    """Return the numbers of each seed's best candidate.

    A candidate is a setting with an input variance; `variances` have the shape (S, settings, V), and their
    scores on the validation rows the shape (3, S, settings, V). `is_scan`: whether a variance is selected.
    """
    seeds, _, count = variances.shape
    best = select(validation.flatten(2))
    input_variances = [
        math.nan if candidate is None else float(variances[seed].flatten()[candidate])
        for seed, candidate in enumerate(best)
    ]
    # All settings of a seed are evaluated at its best variance; the best setting is then chosen from them.
    test_variances = variances.new_tensor(input_variances).reshape(seeds, 1, 1)
    test = scores("test", test_variances.expand(-1, len(settings), 1))

    qualifying = qualified(validation[0]).any(-1).sum(1).tolist()
    numbers = []
    for seed, candidate in enumerate(best):
        of_seed: dict[str, float] = {"qualified": float(qualifying[seed])}
        if candidate is not None:
            setting, variance = divmod(candidate, count)
            of_seed |= zip(SCORES, test[:, seed, setting, 0].tolist(), strict=True)
            coverage, width, _ = validation[:, seed, setting, variance].tolist()
            of_seed |= {"validation_picp": coverage, "validation_mpiw": width}
            of_seed |= settings[setting]._asdict()
            if is_scan:
                of_seed["input_variance"] = input_variances[seed]
        numbers.append(of_seed)
    return numbers


def _predictor(
    method: Method, stacks: Sequence[NetStack], splits: Splits, settings: int, seeds: Sequence[int]
) -> Predict:
    if method.samples:
        return partial(_sampled, stacks[0], splits, settings, seeds, method.samples)
    # Inputs of all nets, shape (S * settings, n, rows), which are ordered by seed, then by setting.
    inputs = {
        part: splits.features[part].mT.repeat_interleave(settings, 0) for part in ("validation", "test")
    }

    def by_seed(values: Tensor) -> Tensor:
        """Reshape values of all nets, shape (S * settings, rows), to (S, settings, rows)."""
        return values.unflatten(0, (len(seeds), settings))

    if OBJECTIVES[method.objective].levels:

        def quantiles(part: str, _: Tensor) -> Intervals:
            low = by_seed(_quantile(stacks[0], inputs[part], LEVELS[0]))
            high = by_seed(_quantile(stacks[0], inputs[part], LEVELS[1]))
            # Gaussians with these central intervals give quantile regression a likelihood. The paper prints
            # one without stating its definition.
            deviation = (high - low) / (2 * NORMAL_95)
            return Intervals(low, high, (low + high) / 2, deviation.square())

        return quantiles
    # They do not depend on the input variance, so they are computed once for all.
    moments = {part: _moments(method, stacks, x) for part, x in inputs.items()}

    def gaussians(part: str, input_variance: Tensor) -> Intervals:
        mean, gain, variance = map(by_seed, moments[part])
        if method.propagates:
            variance = variance + input_variance.unsqueeze(2) * gain
        return Intervals.of_gaussians(mean, variance)

    return gaussians


def _quantile(nets: NetStack, x: Tensor, level: float) -> Tensor:
    """Return quantiles, shape (N, rows), float64, of nets with the level as an additional input."""
    column = torch.full_like(x[:, :1], level_input(level))
    return nets(torch.cat([x, column], 1))[:, 0].double()


def _moments(method: Method, stacks: Sequence[NetStack], x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Outputs, squared norm of the Jacobian, and predicted variance: each (N, rows), float64.

    For an ensemble, mean and variance are those of the mixture of its members' laws (Lakshminarayanan et al.,
    "Simple and scalable predictive uncertainty estimation using deep ensembles", NeurIPS 2017).
    """
    outputs_of_members, gains_of_members = [], []
    for nets in stacks:
        member_outputs, member_gain = nets.with_gain(x)
        outputs_of_members.append(member_outputs)
        gains_of_members.append(member_gain)
    outputs = torch.stack(outputs_of_members).double()
    gains = torch.stack(gains_of_members).double()
    means = outputs[:, :, 0]
    variances = torch.zeros_like(means)
    if method.own_variance:
        variances = F.softplus(outputs[:, :, 1]) + PNN_FLOOR
    return means.mean(0), gains.mean(0), variances.mean(0) + means.var(0, correction=0)


def _sampled(
    nets: NetStack,
    splits: Splits,
    settings: int,
    seeds: Sequence[int],
    samples: int,
    part: str,
    input_variance: Tensor,
) -> Intervals:
    """Return Gaussians with the moments (divisor k - 1) of outputs at k noisy copies of each input."""
    rows_at_once = max(1, _COLUMNS // samples)
    means, variances = [], []
    for index, seed in enumerate(seeds):
        x = splits.features[part][index]
        nets_of_seed = nets[index * settings : (index + 1) * settings]
        generator = np.random.default_rng([seed, *part.encode()])
        noise = torch.from_numpy(generator.standard_normal((samples, *x.shape))).to(x).transpose(0, 1)
        deviation = input_variance[index].sqrt().to(x).view(-1, 1, 1, 1)
        parts = []
        for rows, row_noise in zip(x.split(rows_at_once), noise.split(rows_at_once), strict=True):
            noisy = rows.unsqueeze(1) + deviation * row_noise  # shape (settings, rows, k, n)
            outputs = nets_of_seed(noisy.flatten(1, 2).mT)[:, 0]
            parts.append(outputs.unflatten(1, (-1, samples)))
        outputs = torch.cat(parts, 1).double()  # shape (settings, rows, k)
        means.append(outputs.mean(2))
        variances.append(outputs.var(2))
    return Intervals.of_gaussians(torch.stack(means), torch.stack(variances))


_STEP = 2.5e-5  # s per net and step on one thread, about equal for all objectives
_SAMPLE = 4e-7  # s per net, row of the data set and Monte Carlo sample, for all input variances


def members_of(methods: Sequence[str]) -> int:
    """Return the number of nets for each seed and setting that some methods need."""
    return max(METHODS[name].members for name in methods)


def score(epochs: int, group: ReplicateGroup, methods: Sequence[str]) -> Iterator[tuple[int, list[Number]]]:
    """Train all seeds and settings of a data set together, and score each method."""
    parts = splits(dataset(group.dataset, TabularRegression).load(), group.seeds, device=group.device)
    objective = OBJECTIVES[group.objective]
    stacks = []
    for member in range(members_of(methods)):
        problem = Problem(parts.features["train"], parts.targets["train"], group.seeds, member)
        stacks.append(get_nets(group.dataset, problem, objective, GRID, epochs))
    for method in methods:
        with torch.no_grad():
            numbers_by_reading = evaluate(method, stacks[: METHODS[method].members], parts, GRID, group.seeds)
        for reading, numbers_by_seed in numbers_by_reading.items():
            for seed, numbers in zip(group.seeds, numbers_by_seed, strict=True):
                yield seed, [(method, metric, value, reading) for metric, value in numbers.items()]


def groups(experiment: ReplicateExperiment, settings: Settings) -> Iterator[ReplicateGroup]:
    """Yield a group for each data set and training objective, with all its seeds.

    A UserError is raised for a set that `splits` rejects, before any net is trained.
    """
    size = experiment.size(settings)
    seeds, epochs = tuple(range(size.nets or 0)), size.epochs or EPOCHS
    for name in size.datasets or ():
        data = dataset(name, TabularRegression).load()
        rows, features = data.features.shape
        splits(data, seeds[:1])  # raises for an unusable set before training
        identity = digest(data.features, data.targets, epochs, [setting._asdict() for setting in GRID])[:16]
        for objective in dict.fromkeys(METHODS[rule].objective for rule in experiment.rules):
            methods = tuple(rule for rule in experiment.rules if METHODS[rule].objective == objective)
            steps = members_of(methods) * epochs * rows / BATCH
            samples = sum(METHODS[name].samples for name in methods)
            yield experiment.group(
                settings,
                partial(score, epochs),
                seeds,
                versions=of_method(experiment.version, VERSION),
                label=f"{name} {features}-64",
                design=f"{data.description}; {len(GRID)} settings, {epochs} epochs",
                identity=identity,
                methods=methods,
                dataset=name,
                objective=objective,
                is_shared=True,
                cost=1.0 + len(seeds) * len(GRID) * (steps * _STEP + rows * samples * _SAMPLE),
            )
