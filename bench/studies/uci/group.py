"""Prediction intervals: scores, selection, methods, and groups of work."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F  # noqa: N812

from sdp_bench.bench.datasets import dataset
from sdp_bench.bench.datasets.base import RegressionTable, TabularRegression
from sdp_bench.bench.errors import UserError, outside
from sdp_bench.bench.experiments.replicates import ReplicateGroup
from sdp_bench.bench.results.record import Record, Unit
from sdp_bench.bench.studies.uci import LEVELS, METHODS, Method
from sdp_bench.bench.studies.uci.stacked import BATCH, OBJECTIVES, Nets, Problem, Setting, get_nets

NORMAL_95 = 1.96
"""Half the width of the central 95 % of a normal law in standard deviations, rounded as in the paper.
"""


def picp(y: Tensor, low: Tensor, high: Tensor) -> Tensor:
    """Prediction interval coverage probability: share of the targets strictly inside their intervals.

    `y`, `low` and `high`, shape (..., rows), are broadcast; the result has shape (...). A target that is not
    finite raises a ValueError.
    """
    _check_finite(y)
    return ((low < y) & (y < high)).double().mean(-1)


def mpiw(low: Tensor, high: Tensor, y_range: float) -> Tensor:
    """Mean prediction interval width, shape (...), as a share of the range of all targets.

    `low` and `high` have shape (..., rows). Crossed quantiles count with their absolute distance, as in the
    published evaluation. `y_range` is the range of the targets of the whole set, in the same units; a
    ValueError is raised if it is not positive.
    """
    if not (y_range > 0 and math.isfinite(y_range)):
        raise ValueError(f"the range of the targets must be positive and finite, got {y_range}")
    return (high - low).abs().double().mean(-1) / y_range


def gaussian_nll(y: Tensor, mean: Tensor, variance: Tensor) -> Tensor:
    """Mean negative log-likelihood (nats) of targets under Gaussians: log(2 pi v) / 2 + (y - mean)^2 / (2 v).

    Arguments have shape (..., rows), and the result has shape (...). A variance of 0 gives infinity if a
    target is missed, and minus infinity if all such targets are met. A target that is not finite, or a
    negative variance, raises a ValueError.
    """
    _check_finite(y)
    if bool((variance < 0).any()):
        raise ValueError("a variance is negative")
    y, mean, variance = y.double(), mean.double(), variance.double()
    residual = y - mean
    # At variance 0 the quotient of a target that is met would be 0 / 0.
    missed = torch.where(residual == 0, 0.0, residual.square() / (2 * variance))
    each = torch.where(missed == math.inf, math.inf, (2 * math.pi * variance).log() / 2 + missed)
    total = each.sum(-1)
    return torch.where((each == math.inf).any(-1), math.inf, total) / each.shape[-1]


def _check_finite(y: Tensor) -> None:
    if not bool(y.isfinite().all()):
        raise ValueError("a target is not finite")


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


def splits(data: RegressionTable, seeds: Sequence[int], dtype: torch.dtype = torch.float32) -> Splits:
    """Split and standardise a set for each seed, by the mean and population sd of its training rows.

    A feature without variance keeps its scale. A UserError is raised if the set has too few rows, values that
    are not finite, or constant targets.
    """
    x, y = data.features.double(), data.targets.double()
    if not bool(x.isfinite().all() and y.isfinite().all()):
        raise UserError(f"{data.title} has numbers that are not finite")
    if not bool((y != y[0]).any()):
        raise UserError(f"the targets of {data.title} are all the same; there is nothing to predict")
    features: dict[str, list[Tensor]] = {"train": [], "validation": [], "test": []}
    targets: dict[str, list[Tensor]] = {"train": [], "validation": [], "test": []}
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
        {part: torch.stack(each) for part, each in features.items()},
        {part: torch.stack(each) for part, each in targets.items()},
        torch.stack(ranges),
    )


@dataclass(frozen=True)
class Intervals:
    """Predicted intervals, and the corresponding Gaussians."""

    # shape (S, C, rows); for each seed, the candidates for selection
    low: Tensor
    high: Tensor
    mean: Tensor  # same shape
    variance: Tensor  # same shape

    @classmethod
    def of_gaussians(cls, mean: Tensor, variance: Tensor) -> Intervals:
        """Return central 95 % intervals: mean +- 1.96 standard deviations."""
        half = NORMAL_95 * variance.sqrt()
        return cls(mean - half, mean + half, mean, variance)

    @classmethod
    def of_quantiles(cls, low: Tensor, high: Tensor) -> Intervals:
        """Return intervals between predicted quantiles, with the Gaussians that have them as central 95 %.

        These Gaussians give quantile regression a likelihood. The paper prints one without stating its
        definition.
        """
        return cls(low, high, (low + high) / 2, ((high - low) / (2 * NORMAL_95)).square())


@dataclass(frozen=True)
class Scores:
    """Scores of intervals, for each seed and candidate, shape (S, C); `nll` in nats."""

    picp: Tensor
    mpiw: Tensor
    nll: Tensor

    @property
    def all(self) -> tuple[Tensor, Tensor, Tensor]:
        return self.picp, self.mpiw, self.nll


def scores(intervals: Intervals, targets: Tensor, ranges: Tensor) -> Scores:
    """Return coverage, width and likelihood of intervals for targets of shape (S, rows)."""
    y = targets.unsqueeze(1)
    width = mpiw(intervals.low, intervals.high, 1.0) / ranges.unsqueeze(1)
    likelihood = gaussian_nll(y, intervals.mean, intervals.variance)
    return Scores(picp(y, intervals.low, intervals.high), width, likelihood)


def qualified(coverage: Tensor) -> Tensor:
    """Return whether a validation coverage lies in the window."""
    return (coverage > WINDOW[0]) & (coverage < WINDOW[1])


def select(validation: Scores) -> list[int | None]:
    """Return, for each seed, the qualified candidate of smallest validation width, or None."""
    fits = qualified(validation.picp)
    width = torch.where(fits, validation.mpiw, math.inf)
    best = width.argmin(1).tolist()
    return [place if bool(fits[seed, place]) else None for seed, place in enumerate(best)]


def best_variance(validation: Scores, shape: tuple[int, int]) -> Tensor:
    """Return the index of the best of V input variances per seed and setting, shape (S, settings).

    The best is the narrowest that qualifies; if none does, the one with coverage nearest to 95 %. Candidates
    are settings times variances, with their numbers in `shape`.
    """
    coverage, width = (t.unflatten(1, shape) for t in (validation.picp, validation.mpiw))
    fits = qualified(coverage)
    nearest = (coverage - sum(WINDOW) / 2).abs().argmin(-1)
    narrowest = torch.where(fits, width, math.inf).argmin(-1)
    return torch.where(fits.any(-1), narrowest, nearest)


def best_of_first(validation: Scores, variances: int) -> int:
    """Return the index of the best of V input variances for the first seed, over all settings.

    The criterion is that of `best_variance`. Candidates are settings times variances.
    """
    first = Scores(*(each[:1] for each in validation.all))
    return int(best_variance(first, (1, first.picp.shape[1]))) % variances


PNN_FLOOR = 1e-6
"""Added to a PNN's predicted variance."""

_COLUMNS = 256  # noisy inputs at a time: the hidden units of a seed's nets (1 MB) fit in a core's cache


@dataclass(frozen=True)
class Selected:
    """The candidate selected for one seed, its scores, and how many settings were candidates."""

    setting: Setting | None  # None if no setting qualified; then there are no scores
    input_variance: float  # in units of standardised features; NaN for methods without one
    # `picp`, `mpiw` and `nll`
    test: dict[str, float]
    validation: dict[str, float]
    qualified: int  # settings with a qualified candidate


Predict = Callable[[str, Tensor | None], Intervals]
"""Returns intervals (S, settings, rows) for a part of the data at input variances (S, settings)."""


def evaluate(
    method: str,
    stacks: Sequence[Nets],
    splits: Splits,
    settings: Sequence[Setting],
    seeds: Sequence[int],
) -> dict[str | None, list[Selected]]:
    """Select on the validation rows and score on the test rows, for each seed.

    `method` is one of `sdp_bench.bench.studies.uci.METHODS`. `stacks` are the nets trained by its objective,
    seed by seed, one stack for each member of an ensemble. The result has the selected candidates, in order
    of seeds, by reading of the scan of input variances (`sdp_bench.bench.studies.uci.READINGS`; None for a
    method without one).
    """
    how = METHODS[method]
    predict = _predictor(how, stacks, splits, len(settings), seeds)
    if not how.propagates:
        validation = _scored(predict, "validation", [None], splits)
        return {None: _selected(predict, [None], validation, splits, settings)}
    shape = (len(seeds), len(settings))

    def everywhere(variance: float) -> Tensor:
        return torch.full(shape, variance, dtype=torch.float64, device=splits.ranges.device)

    decades: list[Tensor | None] = [everywhere(variance) for variance in DECADES]
    first = _scored(predict, "validation", decades, splits)
    best = best_variance(first, (len(settings), len(DECADES)))
    centre = torch.tensor(DECADES, dtype=torch.float64, device=splits.ranges.device)[best]
    # the first scan includes a factor of 1
    refined: list[Tensor | None] = [centre * factor for factor in REFINEMENT if factor != 1]
    validation = _beside(first, _scored(predict, "validation", refined, splits), len(settings))
    found: dict[str | None, list[Selected]] = {}
    found[None] = _selected(predict, [*decades, *refined], validation, splits, settings)
    decade = DECADES[best_of_first(first, len(DECADES))]
    shared: list[Tensor | None] = [everywhere(decade * factor) for factor in REFINEMENT]
    validation = _scored(predict, "validation", shared, splits)
    found["set_scan"] = _selected(predict, shared, validation, splits, settings)
    place = best_of_first(validation, len(shared))
    at_one = _part(validation, place, len(shared))
    found["set_variance"] = _selected(predict, [shared[place]], at_one, splits, settings)
    return found


def _selected(
    predict: Predict,
    candidates: Sequence[Tensor | None],
    validation: Scores,
    splits: Splits,
    settings: Sequence[Setting],
) -> list[Selected]:
    """Return, for each seed, the best of settings times candidates (input variances, shape (S, settings))."""
    count = len(settings)
    places = select(validation)
    qualifying = qualified(validation.picp).unflatten(1, (count, -1)).any(-1).sum(1).tolist()
    chosen = [None if place is None else divmod(place, len(candidates)) for place in places]
    variances = None
    if candidates[0] is not None:
        # The selected variance for all settings of a seed, from which one is then chosen.
        scanned = torch.stack([v for v in candidates if v is not None]).cpu()
        picked = [math.nan if c is None else float(scanned[c[1], k, c[0]]) for k, c in enumerate(chosen)]
        variances = candidates[0].new_tensor(picked).unsqueeze(1).expand(-1, count)
    test = _scored(predict, "test", [variances], splits)
    found = []
    for seed, (place, choice, able) in enumerate(zip(places, chosen, qualifying, strict=True)):
        if place is None or choice is None:
            found.append(Selected(None, math.nan, {}, {}, able))
            continue
        variance = math.nan if variances is None else float(variances[seed, 0])
        tested, validated = _numbers(test, seed, choice[0]), _numbers(validation, seed, place)
        found.append(Selected(settings[choice[0]], variance, tested, validated, able))
    return found


def _beside(first: Scores, second: Scores, settings: int) -> Scores:
    """Return the scores of both sets of candidates, joined for each setting."""
    pairs = zip(first.all, second.all, strict=True)
    return Scores(
        *(torch.cat([t.unflatten(1, (settings, -1)) for t in pair], 2).flatten(1) for pair in pairs)
    )


def _part(scores: Scores, place: int, candidates: int) -> Scores:
    """Return the scores of one candidate, for each setting."""
    return Scores(*(each.unflatten(1, (-1, candidates))[:, :, place] for each in scores.all))


def _numbers(scores: Scores, seed: int, place: int) -> dict[str, float]:
    named = {"picp": scores.picp, "mpiw": scores.mpiw, "nll": scores.nll}
    return {name: float(each[seed, place]) for name, each in named.items()}


def _scored(predict: Predict, part: str, candidates: Sequence[Tensor | None], splits: Splits) -> Scores:
    """Return scores of all candidates, shape (S, settings x candidates)."""
    each = [scores(predict(part, v), splits.targets[part], splits.ranges) for v in candidates]
    parts = zip(*(scores.all for scores in each), strict=True)
    return Scores(*(torch.stack(one, -1).flatten(1) for one in parts))


def _predictor(
    how: Method, stacks: Sequence[Nets], splits: Splits, settings: int, seeds: Sequence[int]
) -> Predict:
    if how.samples:
        return _Sampled(stacks[0], splits, settings, seeds, how.samples)
    inputs = {
        part: x.mT.repeat_interleave(settings, 0) for part, x in splits.features.items() if part != "train"
    }
    if OBJECTIVES[how.objective].levels:
        return lambda part, _: _quantiles(stacks[0], inputs[part], len(seeds))
    known = {part: _moments(how, stacks, x, len(seeds)) for part, x in inputs.items()}

    def predict(part: str, variance: Tensor | None) -> Intervals:
        mean, gain, own = known[part]
        return Intervals.of_gaussians(mean, own if variance is None else own + variance.unsqueeze(2) * gain)

    return predict


def _moments(how: Method, stacks: Sequence[Nets], x: Tensor, seeds: int) -> tuple[Tensor, Tensor, Tensor]:
    """Outputs, squared norm of the Jacobian, and predicted variance: each (S, settings, rows), float64.

    For an ensemble, mean and variance are those of the mixture of its members' laws (Lakshminarayanan et al.,
    "Simple and scalable predictive uncertainty estimation using deep ensembles", NeurIPS 2017).
    """
    means, gains, owns = [], [], []
    for nets in stacks:
        out, gain = nets.with_gain(x)
        means.append(out[:, 0].double())
        gains.append(gain.double())
        own = F.softplus(out[:, 1].double()) + PNN_FLOOR if how.own_variance else torch.zeros_like(means[-1])
        owns.append(own)
    mean, gain, own = (torch.stack(each).mean(0) for each in (means, gains, owns))
    if len(stacks) > 1:
        own = own + torch.stack(means).var(0, correction=0)
    mean, gain, own = (each.unflatten(0, (seeds, -1)) for each in (mean, gain, own))
    return mean, gain, own


def _quantiles(nets: Nets, x: Tensor, seeds: int) -> Intervals:
    ends = []
    for level in LEVELS:
        column = torch.full_like(x[:, :1], 12 * (level - 0.5))
        out = nets(torch.cat([x, column], 1))[:, 0].double()
        ends.append(out.unflatten(0, (seeds, -1)))
    return Intervals.of_quantiles(*ends)


class _Sampled:
    """Gaussians with the moments (divisor k - 1) of outputs at k copies of each input with common noise."""

    def __init__(self, nets: Nets, splits: Splits, settings: int, seeds: Sequence[int], samples: int) -> None:
        self._nets, self._splits, self._settings, self._samples = nets, splits, settings, samples
        self._seeds = seeds

    def __call__(self, part: str, variance: Tensor | None) -> Intervals:
        if variance is None:
            raise ValueError("samples need an input variance")
        means, variances = [], []
        for place, seed in enumerate(self._seeds):
            x = self._splits.features[part][place]
            out = self._outputs(x, self._noise(part, seed, x), place, variance[place].sqrt())
            means.append(out.mean(2))
            variances.append(out.var(2))
        return Intervals.of_gaussians(torch.stack(means), torch.stack(variances))

    def _outputs(self, x: Tensor, noise: Tensor, place: int, deviation: Tensor) -> Tensor:
        """Return outputs of one seed's nets at x + deviation noise, shape (settings, rows, k), float64."""
        nets = self._nets[place * self._settings : (place + 1) * self._settings]
        centre = (nets.weight @ x.mT + nets.bias).flatten(0, 1)
        scaled = (deviation.to(x).view(-1, 1, 1) * nets.weight).flatten(0, 1)
        columns = noise.permute(2, 1, 0).contiguous()  # (n, rows, k)
        out = x.new_empty(self._settings, len(x), self._samples)
        wide = min(self._samples, _COLUMNS)
        high = max(1, _COLUMNS // wide)
        for row, sample in itertools.product(range(0, len(x), high), range(0, self._samples, wide)):
            block = (slice(row, row + high), slice(sample, sample + wide))
            drawn = columns[:, *block]
            hidden = (scaled @ drawn.flatten(1)).unflatten(1, drawn.shape[1:])
            hidden = hidden.add_(centre[:, block[0]].unsqueeze(2)).relu_().flatten(1)
            shaped = torch.baddbmm(nets.offset, nets.second, hidden.unflatten(0, (self._settings, -1)))
            out[:, *block] = shaped[:, 0].unflatten(1, drawn.shape[1:])
        return out.double()

    def _noise(self, part: str, seed: int, x: Tensor) -> Tensor:
        generator = np.random.default_rng([seed, *part.encode()])
        return torch.from_numpy(generator.standard_normal((self._samples, *x.shape))).to(x)


_STEP = 2e-5  # s per net and step, one thread
_PROPAGATED = 2.0  # time factor of the likelihood of the propagated law
_BOTH_ENDS = 1.7  # time factor of two quantile levels per row
_SAMPLE = 4e-9  # s per net, row, input variance and sample


@dataclass(frozen=True, eq=False)
class UciGroup(ReplicateGroup):
    """All seeds and settings of one data set under one objective, which are trained together."""

    dataset: str
    objective: str
    epochs: int
    # size of the data set
    rows: int
    features: int
    grid: tuple[Setting, ...]

    def unit(self, seed: int) -> Unit:
        replicated = self.replicated
        return Unit(replicated.key(seed), dataset=self.dataset, seed=seed, design=replicated.text)

    @property
    def title(self) -> str:
        return f"UCI {self.dataset} {self.objective}"

    @property
    def seconds(self) -> float:
        nets = len(self.seeds) * len(self.grid)
        train, validation = 0.72 * self.rows, 0.18 * self.rows
        steps = self._members(self.methods) * self.epochs * -(-train // BATCH)
        objective = OBJECTIVES[self.objective]
        factor = _PROPAGATED if objective.propagated else _BOTH_ENDS if objective.fixed else 1.0
        samples = sum(METHODS[name].samples for name in self.methods)
        scanned = len(DECADES) + 2 * len(REFINEMENT) - 1
        return 1.0 + nets * (factor * steps * _STEP + validation * scanned * samples * _SAMPLE)

    @staticmethod
    def _members(methods: Sequence[str]) -> int:
        """Return the number of nets for each seed and setting that some methods need."""
        return max(METHODS[name].members for name in methods)

    def records(self, methods: Sequence[str]) -> Iterator[Record]:
        with outside():
            parts = splits(dataset(self.dataset, TabularRegression).load(), self.seeds)
            features = {part: x.to(self.device) for part, x in parts.features.items()}
            targets = {part: y.to(self.device) for part, y in parts.targets.items()}
            parts = replace(parts, features=features, targets=targets, ranges=parts.ranges.to(self.device))
            asked = OBJECTIVES[self.objective], self.grid, self.epochs
            problems = (
                Problem(features["train"], targets["train"], self.seeds, member)
                for member in range(self._members(methods))
            )
            stacks = [get_nets(self.dataset, problem, *asked) for problem in problems]
        for method in methods:
            with outside(), torch.no_grad():
                own = stacks[: METHODS[method].members]
                found = evaluate(method, own, parts, self.grid, self.seeds)
            for reading, selected in found.items():
                for seed, chosen in zip(self.seeds, selected, strict=True):
                    for metric, value in numbers_of(chosen).items():
                        yield self.record(seed, method, metric, value, reading)


def numbers_of(chosen: Selected) -> dict[str, float]:
    """Return one seed's numbers: how many settings qualified, and the scores of the selected one, if any."""
    numbers = {"qualified": float(chosen.qualified)}
    if chosen.setting is None:
        return numbers
    numbers |= chosen.test
    numbers |= {f"validation_{name}": value for name, value in chosen.validation.items() if name != "nll"}
    numbers |= asdict(chosen.setting)
    if chosen.input_variance == chosen.input_variance:
        numbers["input_variance"] = chosen.input_variance
    return numbers
