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
    Nets,
    Problem,
    Setting,
    get_nets,
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
    each = torch.where(missed == math.inf, math.inf, (2 * math.pi * variance).log() / 2 + missed)
    total = each.sum(-1)
    return torch.where((each == math.inf).any(-1), math.inf, total) / each.shape[-1]


TEST_SHARE, VALIDATION_SHARE = 0.1, 0.2
"""Share of test rows among all rows, and of validation rows among the rest."""
WINDOW = (0.925, 0.975)
"""Validation coverage, exclusive, that a setting needs to qualify."""
GRID = tuple(Setting(rate, decay) for rate in (1e-2, 1e-3, 1e-4) for decay in (0.0, 1e-3, 1e-2, 1e-1, 1.0))
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
        rows = {part: torch.from_numpy(each) for part, each in rows_of(len(y), seed).items()}
        train = rows["train"]
        shift, scale = x[train].mean(0), x[train].std(0, correction=0)
        scale = torch.where(scale > 0, scale, 1.0)
        y_shift, y_scale = y[train].mean(), y[train].std(correction=0)
        y_scale = y_scale if y_scale > 0 else torch.ones_like(y_scale)
        for part, each in rows.items():
            features[part].append(((x[each] - shift) / scale).to(dtype))
            targets[part].append(((y[each] - y_shift) / y_scale).to(dtype))
        ranges.append((y.max() - y.min()) / y_scale)
    return Splits(
        {part: torch.stack(rows).to(device) for part, rows in features.items()},
        {part: torch.stack(rows).to(device) for part, rows in targets.items()},
        torch.stack(ranges).to(device),
    )


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
    fits = qualified(scores[0])
    best = torch.where(fits, scores[1], math.inf).argmin(1)
    found = fits.gather(1, best.unsqueeze(1)).squeeze(1).tolist()
    return [place if fit else None for place, fit in zip(best.tolist(), found, strict=True)]


def best_variance(scores: Tensor) -> Tensor:
    """Return the index of the best of V input variances; `scores` have shape (3, ..., V).

    The best is the narrowest that qualifies; if none does, the one with coverage nearest to 95 %.
    """
    coverage, width, _ = scores
    fits = qualified(coverage)
    nearest = (coverage - sum(WINDOW) / 2).abs().argmin(-1)
    narrowest = torch.where(fits, width, math.inf).argmin(-1)
    return torch.where(fits.any(-1), narrowest, nearest)


PNN_FLOOR = 1e-6
"""Added to a PNN's predicted variance."""

_COLUMNS = 256  # noisy inputs at a time: the hidden units of a seed's nets (1 MB) fit in a core's cache


Predict = Callable[[str, Tensor], Intervals]
"""Returns intervals (S, settings, rows) for a part of the data at input variances (S, settings)."""


def evaluate(
    method: str,
    stacks: Sequence[Nets],
    splits: Splits,
    settings: Sequence[Setting],
    seeds: Sequence[int],
) -> dict[str | None, list[dict[str, float]]]:
    """Select on the validation rows and score on the test rows, for each seed.

    `method` is one of `sdp_bench.bench.studies.uci.METHODS`. `stacks` are the nets trained by its objective,
    seed by seed, one stack for each member of an ensemble. The result has numbers by metric, in order of
    seeds, by reading of the scan of input variances (`sdp_bench.bench.studies.uci.READINGS`; None for a
    method without one). They are the number of settings with a qualified candidate and, if there is one,
    those of the selected candidate.
    """
    how = METHODS[method]
    predict = _predictor(how, stacks, splits, len(settings), seeds)
    everywhere = splits.ranges.new_ones(len(seeds), len(settings))

    def scored(part: str, variances: Tensor) -> Tensor:
        """Return scores, shape (3, S, settings, V), at input variances of shape (S, settings, V)."""
        y, ranges = splits.targets[part].unsqueeze(1), splits.ranges.unsqueeze(1)
        scores = []
        for variance in variances.unbind(-1):
            low, high, mean, own = predict(part, variance)
            width = mpiw(low, high) / ranges
            scores.append(torch.stack([picp(y, low, high), width, gaussian_nll(y, mean, own)]))
        return torch.stack(scores, -1)

    def selected(variances: Tensor, validation: Tensor) -> list[dict[str, float]]:
        """Return the numbers of each seed's best combination of a setting and an input variance."""
        count = variances.shape[-1]
        places = select(validation.flatten(2))
        qualifying = qualified(validation[0]).any(-1).sum(1).tolist()
        # The selected variance for all settings of a seed, from which one is then chosen.
        chosen = [
            math.nan if place is None else float(variances[seed].flatten()[place])
            for seed, place in enumerate(places)
        ]
        test = scored("test", (everywhere.new_tensor(chosen).unsqueeze(1) * everywhere).unsqueeze(2))
        found = [{"qualified": float(able)} for able in qualifying]
        for seed, (place, numbers) in enumerate(zip(places, found, strict=True)):
            if place is not None:
                setting, variance = divmod(place, count)
                numbers |= zip(SCORES, test[:, seed, setting, 0].tolist(), strict=True)
                coverage, width, _ = validation[:, seed, setting, variance].tolist()
                numbers |= {"validation_picp": coverage, "validation_mpiw": width}
                numbers |= settings[setting]._asdict()
                if how.propagates:
                    numbers["input_variance"] = chosen[seed]
        return found

    if not how.propagates:
        variances = everywhere.unsqueeze(2)
        return {None: selected(variances, scored("validation", variances))}
    decades = everywhere.new_tensor(DECADES) * everywhere.unsqueeze(2)
    first = scored("validation", decades)
    factors = everywhere.new_tensor(REFINEMENT)
    # The first scan includes a factor of 1.
    refined = decades.take_along_dim(best_variance(first).unsqueeze(2), 2) * factors[factors != 1]
    validation = torch.cat([first, scored("validation", refined)], -1)
    found: dict[str | None, list[dict[str, float]]]
    found = {None: selected(torch.cat([decades, refined], 2), validation)}
    # The best of a set is that of the first seed over all settings.
    best = int(best_variance(first[:, 0].flatten(1))) % len(DECADES)
    shared = DECADES[best] * factors * everywhere.unsqueeze(2)
    validation = scored("validation", shared)
    found["set_scan"] = selected(shared, validation)
    best = int(best_variance(validation[:, 0].flatten(1))) % len(factors)
    found["set_variance"] = selected(shared[..., [best]], validation[..., [best]])
    return found


def _predictor(
    how: Method, stacks: Sequence[Nets], splits: Splits, settings: int, seeds: Sequence[int]
) -> Predict:
    if how.samples:
        return partial(_sampled, stacks[0], splits, settings, seeds, how.samples)
    inputs = {
        part: x.mT.repeat_interleave(settings, 0) for part, x in splits.features.items() if part != "train"
    }

    def by_seed(of_nets: Tensor) -> Tensor:
        return of_nets.unflatten(0, (len(seeds), settings))

    if OBJECTIVES[how.objective].levels:

        def quantiles(part: str, _: Tensor) -> Intervals:
            x = inputs[part]
            columns = (torch.full_like(x[:, :1], 12 * (level - 0.5)) for level in LEVELS)
            outputs = (stacks[0](torch.cat([x, column], 1))[:, 0].double() for column in columns)
            low, high = map(by_seed, outputs)
            # Gaussians with these central intervals give quantile regression a likelihood. The paper prints
            # one without stating its definition.
            return Intervals(low, high, (low + high) / 2, ((high - low) / (2 * NORMAL_95)).square())

        return quantiles
    known = {part: [by_seed(each) for each in _moments(how, stacks, x)] for part, x in inputs.items()}

    def gaussians(part: str, variance: Tensor) -> Intervals:
        mean, gain, own = known[part]
        return Intervals.of_gaussians(mean, own + variance.unsqueeze(2) * gain if how.propagates else own)

    return gaussians


def _moments(how: Method, stacks: Sequence[Nets], x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Outputs, squared norm of the Jacobian, and predicted variance: each (N, rows), float64.

    For an ensemble, mean and variance are those of the mixture of its members' laws (Lakshminarayanan et al.,
    "Simple and scalable predictive uncertainty estimation using deep ensembles", NeurIPS 2017).
    """
    both = [nets.with_gain(x) for nets in stacks]
    outputs, gains = (torch.stack(part).double() for part in zip(*both, strict=True))
    means = outputs[:, :, 0]
    own = F.softplus(outputs[:, :, 1]) + PNN_FLOOR if how.own_variance else torch.zeros_like(means)
    return means.mean(0), gains.mean(0), own.mean(0) + means.var(0, correction=0)


def _sampled(
    nets: Nets,
    splits: Splits,
    settings: int,
    seeds: Sequence[int],
    samples: int,
    part: str,
    variance: Tensor,
) -> Intervals:
    """Return Gaussians with the moments (divisor k - 1) of outputs at k noisy copies of each input."""
    means, variances = [], []
    for place, seed in enumerate(seeds):
        x, own = splits.features[part][place], nets[place * settings : (place + 1) * settings]
        generator = np.random.default_rng([seed, *part.encode()])
        noise = torch.from_numpy(generator.standard_normal((samples, *x.shape))).to(x).transpose(0, 1)
        deviation = variance[place].sqrt().to(x).view(-1, 1, 1, 1)
        out = [
            own((rows.unsqueeze(1) + deviation * drawn).flatten(1, 2).mT)[:, 0].unflatten(1, (-1, samples))
            for rows, drawn in zip(*(t.split(max(1, _COLUMNS // samples)) for t in (x, noise)), strict=True)
        ]
        joined = torch.cat(out, 1).double()  # shape (settings, rows, k)
        means.append(joined.mean(2))
        variances.append(joined.var(2))
    return Intervals.of_gaussians(torch.stack(means), torch.stack(variances))


_STEP = 2.5e-5  # s per net and step on one thread, about equal for all objectives
_SAMPLE = 4e-7  # s per net, row of the data set and Monte Carlo sample, for all input variances


def members_of(methods: Sequence[str]) -> int:
    """Return the number of nets for each seed and setting that some methods need."""
    return max(METHODS[name].members for name in methods)


def score(epochs: int, group: ReplicateGroup, methods: Sequence[str]) -> Iterator[tuple[int, list[Number]]]:
    """Train all seeds and settings of a data set together, and score each method."""
    parts = splits(dataset(group.dataset, TabularRegression).load(), group.seeds, device=group.device)
    problems = (
        Problem(parts.features["train"], parts.targets["train"], group.seeds, member)
        for member in range(members_of(methods))
    )
    stacks = [
        get_nets(group.dataset, problem, OBJECTIVES[group.objective], GRID, epochs) for problem in problems
    ]
    for method in methods:
        with torch.no_grad():
            found = evaluate(method, stacks[: METHODS[method].members], parts, GRID, group.seeds)
        for reading, selected in found.items():
            for seed, numbers in zip(group.seeds, selected, strict=True):
                yield seed, [(method, metric, value, reading) for metric, value in numbers.items()]


def groups(experiment: ReplicateExperiment, settings: Settings) -> Iterator[ReplicateGroup]:
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
