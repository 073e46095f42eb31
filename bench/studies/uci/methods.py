"""The paper's methods for prediction intervals, each on a stack of trained nets."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F  # noqa: N812

from sdp_bench.bench.studies.uci import METHODS, Method, intervals
from sdp_bench.bench.studies.uci.intervals import DECADES, REFINEMENT, Intervals, Scores, Splits
from sdp_bench.bench.studies.uci.scores import LEVELS
from sdp_bench.bench.studies.uci.stacked import OBJECTIVES, Nets, Setting

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
    best = intervals.best_variance(first, (len(settings), len(DECADES)))
    centre = torch.tensor(DECADES, dtype=torch.float64, device=splits.ranges.device)[best]
    # the first scan includes a factor of 1
    refined: list[Tensor | None] = [centre * factor for factor in REFINEMENT if factor != 1]
    validation = _beside(first, _scored(predict, "validation", refined, splits), len(settings))
    found: dict[str | None, list[Selected]] = {}
    found[None] = _selected(predict, [*decades, *refined], validation, splits, settings)
    decade = DECADES[intervals.best_of_first(first, len(DECADES))]
    shared: list[Tensor | None] = [everywhere(decade * factor) for factor in REFINEMENT]
    validation = _scored(predict, "validation", shared, splits)
    found["set_scan"] = _selected(predict, shared, validation, splits, settings)
    place = intervals.best_of_first(validation, len(shared))
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
    places = intervals.select(validation)
    qualified = intervals.qualified(validation.picp).unflatten(1, (count, -1)).any(-1).sum(1).tolist()
    chosen = [None if place is None else divmod(place, len(candidates)) for place in places]
    variances = None
    if candidates[0] is not None:
        # The selected variance for all settings of a seed, from which one is then chosen.
        scanned = torch.stack([v for v in candidates if v is not None]).cpu()
        picked = [math.nan if c is None else float(scanned[c[1], k, c[0]]) for k, c in enumerate(chosen)]
        variances = candidates[0].new_tensor(picked).unsqueeze(1).expand(-1, count)
    test = _scored(predict, "test", [variances], splits)
    found = []
    for seed, (place, choice, able) in enumerate(zip(places, chosen, qualified, strict=True)):
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
    each = [intervals.scores(predict(part, v), splits.targets[part], splits.ranges) for v in candidates]
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
