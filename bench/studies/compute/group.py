"""One net at one input: errors of rules and samplers for five uses, their operations and processor times."""

from __future__ import annotations

import copy
import functools
import itertools
import math
import statistics
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from time import process_time
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812
from torch.quasirandom import SobolEngine

import sdp_ref as sr
from sdp_ref.jacobian.jacobian import jacobian_of
from sdp_ref.laws import Edgeworth

from ...datasets import dataset
from ...datasets.base import SplitClassification
from ...errors import UserError
from ...experiments.predict import prepared
from ...experiments.replicates import Number, ReplicateExperiment, ReplicateGroup
from ...experiments.versions import of_method
from ...identity import digest
from ...nets.architectures import Architecture
from ...nets.training import numerics
from ...operations import operations
from ...settings import Settings
from . import ACTIVATIONS, BATCH, BRIER, KINK_DISTANCES, RULES, SAMPLERS, SIZES, TRAININGS, WIDTHS

TASK = "MNIST, means of 4 x 4 pixels"
CLASSES, FEATURES = 10, 49
STEPS, MINIBATCH, LEARNING_RATE = 600, 128, 1e-3
"""Training with Adam at a rate that falls to 0 as a cosine."""
WIDE, SAMPLES, FEWER = 256, 2**17, 2**15
"""Wider nets have an oracle of fewer samples."""
REPEATS = {16: 64, 256: 32, 4096: 8}
"""Repeats of a sampler by its size, a quarter on wider nets; its error is the root of their mean square."""
EVENT = 0.01
"""Probability of the events of the use `tail`, an output beyond a quantile on either side."""
LEAST = 1e-6
"""A smaller predicted standard deviation, relative to the true one, counts as this."""
_QUANTILES = 2048
_DRAWS = 2**16
_POINTS = 2**13  # Sobol points of the class probabilities of a sampler's Gaussian
_ROWS = 4096  # of a forward pass
_FLOPS = 5e10  # per second, of one thread

CONTROLLED, WHITENED = "control_variate", "whitened"
"""Samplers that predict a Gaussian with the mean and covariance of their samples, as rules do."""
WHITENED_SOBOL = "whitened_sobol"
"""Whitened antithetic pairs of Sobol points; the law is that of the samples."""
ROUNDS, ENOUGH, LONG = 16, 0.25, 1.0
"""A method is timed in this many rounds, or until its times (s) add up; no batch if an input takes longer."""
ROUNDING = 1e-3
"""Standard deviation of an output, relative to its size, above which float32 is precise enough."""


def left_out(activation: str, depth: int, width: int, seed: int) -> set[str]:
    """Return the rules that have no formula for a net or take too long on it.

    DVIA has no formula for GELU, and ReLU has no second derivative at its kink. The activation is "relu" or
    "gelu".
    """
    rules = {"dvia"} if activation == "gelu" else {"second_order"}
    if width > WIDE or (width == WIDE and (depth > 8 or seed > 0)):
        rules |= {"third_cumulants", "edgeworth"}  # 6 n^4 operations for each layer
    return rules


@functools.cache
def images(split: str) -> tuple[Tensor, Tensor]:
    """Return features (N, 49) between 0 and 1, and classes (N,), of the images of a split of MNIST."""
    read = dataset("mnist", SplitClassification).load(split)
    parts = [F.avg_pool2d(read.batch(slice(k, k + 5000)), 4) for k in range(0, len(read), 5000)]
    return torch.cat(parts).flatten(1), read.labels


def network(activation: str, depth: int, width: int, seed: int) -> nn.Sequential:
    """Return a fully connected net that preserves the size of its values (He et al. 2015)."""
    generator = torch.Generator().manual_seed(seed)
    net = Architecture(depth, activation, width, FEATURES, CLASSES).build()
    for linear in (module for module in net if isinstance(module, nn.Linear)):
        nn.init.normal_(linear.weight, std=math.sqrt(2 / linear.in_features), generator=generator)
        nn.init.zeros_(linear.bias)
    return net


def train(net: nn.Sequential, seed: int) -> None:
    """Train a net in place with cross-entropy on the training images."""
    (features, labels), generator = images("train"), torch.Generator().manual_seed(seed)
    optimizer = torch.optim.Adam(net.parameters(), LEARNING_RATE)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, STEPS)
    with numerics():
        for _ in range(STEPS):
            rows = torch.randint(len(features), (MINIBATCH,), generator=generator)
            optimizer.zero_grad()
            F.cross_entropy(net(features[rows]), labels[rows]).backward()
            nn.utils.clip_grad_norm_(net.parameters(), 1.0)
            optimizer.step()
            schedule.step()


def kinks(net: nn.Sequential, x: Tensor) -> Tensor:
    """Return the distance from x, shape (1, n), to where each hidden unit of the linearised net changes sign.

    Shape (units,); infinite for units without a gradient.
    """
    distances, tangents = [], torch.eye(x.shape[1], dtype=x.dtype)
    with torch.no_grad():
        for linear, activation in zip(list(net)[:-1:2], list(net)[1::2], strict=True):
            assert isinstance(linear, nn.Linear)  # noqa: S101
            x, tangents = linear(x), tangents @ linear.weight.mT
            distances.append(x[0].abs() / tangents.norm(dim=0))
            x, change = torch.func.jvp(activation, (x,), (torch.ones_like(x),))  # type: ignore[misc]
            tangents = tangents * change
    return torch.cat(distances).nan_to_num(nan=torch.inf, posinf=torch.inf)


Summary = dict[str, Tensor]
"""What a law, or a sample, says of the outputs, by use; some uses may be missing.

Means and standard deviations have shape (..., m), quantiles of the whole distribution (..., 2048, m),
probabilities of the classes (..., m), and those of the tails (..., 2, m).
"""


@dataclass(frozen=True, eq=False)
class Truth:
    """A large sample of the outputs, shape (N, m), float64."""

    outputs: Tensor

    @functools.cached_property
    def thresholds(self) -> Tensor:
        """Quantiles of each output, shape (2, m), that it exceeds on either side with probability EVENT."""
        ordered, beyond = self.outputs.sort(0).values, int(EVENT * len(self.outputs))
        return torch.stack([ordered[beyond], ordered[-1 - beyond]])

    def of_samples(self, outputs: Tensor) -> Summary:
        """Summarise samples, shape (..., k, m)."""
        places = ((torch.arange(_QUANTILES) + 0.5) / _QUANTILES * outputs.shape[-2]).long()
        low, high = self.thresholds
        tails = torch.stack([(outputs < low).double().mean(-2), (outputs > high).double().mean(-2)], -2)
        return {
            "mean": outputs.mean(-2),
            "standard_deviation": outputs.std(-2),
            "whole_distribution": outputs.sort(-2).values[..., places, :],
            "class": F.one_hot(outputs.argmax(-1), outputs.shape[-1]).double().mean(-2),
            "tail": tails,
        }

    def of_law(self, law: sr.Gaussian | sr.DiagonalGaussian) -> Summary:
        """Summarise a predicted law of one row."""
        draws = law.sample(_DRAWS, torch.Generator().manual_seed(0))[:, 0]
        summary = self.of_gaussian(law.mean[0], law.variance[0].sqrt(), draws)
        if isinstance(law, Edgeworth):
            summary["class"] = law.class_probabilities()[0][0]
        return summary

    def of_gaussian(self, mean: Tensor, deviation: Tensor, draws: Tensor) -> Summary:
        """Summarise Gaussians by their moments, shape (..., m), and draws from them, shape (..., k, m)."""
        levels = (torch.arange(_QUANTILES, dtype=torch.float64) + 0.5) / _QUANTILES
        quantiles = torch.special.ndtri(levels)[:, None]
        low, high = ((threshold - mean) / deviation for threshold in self.thresholds)
        return {
            "mean": mean,
            "standard_deviation": deviation,
            "whole_distribution": mean[..., None, :] + deviation[..., None, :] * quantiles,
            "class": F.one_hot(draws.argmax(-1), mean.shape[-1]).double().mean(-2),
            "tail": torch.special.ndtr(torch.stack([low, -high], -2)),
        }

    @functools.cached_property
    def own(self) -> Summary:
        return self.of_samples(self.outputs)

    def errors(self, given: Summary) -> dict[str, float]:
        """Return the error for each use, the root of a mean square over outputs and leading dimensions.

        Of the mean, in standard deviations; of standard deviations, of their logarithm; of the whole
        distribution, the Wasserstein-1 distance of an output in its standard deviations; of the class, the
        total variation of its probabilities; of tails, relative to the true probability. The Brier score is
        not a root, and has no bias: the noise of the true frequencies is subtracted (a U-statistic).
        """
        deviation = self.own["standard_deviation"]
        errors: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
            "mean": lambda p, q: (p - q) / deviation,
            "standard_deviation": lambda p, q: (p / q).clamp(min=LEAST).log(),
            "whole_distribution": lambda p, q: (p - q).abs().mean(-2) / deviation,
            "class": lambda p, q: (p - q).abs().sum(-1) / 2,
            "tail": lambda p, q: p / q - 1,
        }
        found = {
            use: float((errors[use](said, self.own[use]) ** 2).mean().sqrt()) for use, said in given.items()
        }
        if "class" in given:
            squares = (given["class"] - self.own["class"]).square().sum(-1)
            found[BRIER] = float(squares.mean()) - self._noise_of_classes
        return found

    def floors(self) -> dict[str, float]:
        """Return the errors of the truth itself: half of those between two halves of the sample.

        The Brier score is the mean one of a sample of this size, (1 - |p|^2) / N.
        """
        first, second = (Truth(half) for half in self.outputs.chunk(2))
        halves = first.errors(first.of_samples(second.outputs))
        floors = {use: error / 2 for use, error in halves.items() if use != BRIER}
        return {**floors, BRIER: self._noise_of_classes}

    @property
    def _noise_of_classes(self) -> float:
        """Unbiased estimate of E|p' - p|^2 for the frequencies p' of the sample."""
        frequencies = self.own["class"]
        return float((1 - frequencies.square().sum()) / (len(self.outputs) - 1))


def normals(sampler: str, repeats: int, size: int, seed: int) -> Tensor:
    """Return standard normal samples of a sampler, shape (repeats, size, 49), float64."""
    generator = torch.Generator().manual_seed(seed)
    if sampler == WHITENED_SOBOL:
        return whitened_pairs(normals("sobol", repeats, size // 2, seed))
    if sampler == "sobol":
        drawn = [
            SobolEngine(FEATURES, scramble=True, seed=seed + k).draw(size, dtype=torch.float64)
            for k in range(repeats)
        ]
        half_a_cell = 2.0**-31  # the points are multiples of 2^-30, and 0 would be mapped to -infinity
        return torch.special.ndtri(torch.stack(drawn) + half_a_cell)
    if sampler == "antithetic":
        z = torch.randn(repeats, size // 2, FEATURES, generator=generator, dtype=torch.float64)
        return torch.cat([z, -z], 1)
    if sampler == WHITENED:
        return whitened_pairs(
            torch.randn(repeats, size // 2, FEATURES, generator=generator, dtype=torch.float64)
        )
    return torch.randn(repeats, size, FEATURES, generator=generator, dtype=torch.float64)


def whitened_pairs(z: Tensor) -> Tensor:
    """Return antithetic pairs along orthogonal directions; the covariance of enough pairs is the identity."""
    left, _, right = torch.linalg.svd(z, full_matrices=False)
    pairs = math.sqrt(max(z.shape[1], FEATURES)) * left @ right
    return torch.cat([pairs, -pairs], 1)


@dataclass(frozen=True, eq=False)
class Propagated:
    """A net at x, shape (1, 49), under Gaussian noise of one scale.

    `exact` is the net in float64. For a wide net samples are evaluated in float32 where outputs vary enough.
    """

    net: nn.Sequential
    exact: nn.Sequential
    x: Tensor
    sigma: float
    root: int
    is_wide: bool

    @functools.cached_property
    def linear(self) -> tuple[Tensor, Tensor]:
        """Value and Jacobian times sigma, shapes (m,) and (m, 49)."""
        value, jacobian = jacobian_of(self.exact, self.x)
        return value[0].detach(), self.sigma * jacobian[0].detach()

    def outputs(self, z: Tensor) -> Tensor:
        """Return the outputs, float64, for standard normal noise, shape (..., 49)."""
        value, jacobian = self.linear
        varies = float((jacobian.norm(dim=1) / value.abs()).min()) > ROUNDING
        net = self.net if self.is_wide and varies else self.exact
        rows = (self.x + self.sigma * z.flatten(0, -2)).to(next(net.parameters()).dtype)
        with torch.no_grad():
            outputs = torch.cat([net(part) for part in rows.split(_ROWS)])
        return outputs.double().unflatten(0, z.shape[:-1])

    def law(self, propagate: Callable[[sr.Law], sr.Law]) -> tuple[Any, float]:
        """Return the Gaussian that a prepared rule predicts, and its operations."""
        x = sr.DiagonalGaussian(mean=self.x, variance=torch.full_like(self.x, self.sigma**2))
        predicted: list[sr.Law] = []
        with torch.no_grad():
            counted = operations(lambda: predicted.append(propagate(x)))
        return predicted[0], counted

    def samples(self, truth: Truth, sampler: str, size: int) -> Summary:
        """Summarise the repeats of a sampler.

        The control variate is the linearised net, with known moments.
        """
        repeats = REPEATS[size] // (4 if self.is_wide else 1)
        z = normals(sampler, repeats, size, zlib.crc32(f"{self.root} {sampler} {size}".encode()))
        outputs = self.outputs(z)
        if sampler == WHITENED:  # the covariance of its points is that of the noise, without a correction
            mean, covariance = outputs.mean(-2), covariances(outputs, correction=0)
            deviation = covariance.diagonal(dim1=-2, dim2=-1).sqrt()
        elif sampler == CONTROLLED:
            value, jacobian = self.linear
            mean, covariance = controlled(outputs, z, value, jacobian)
            control = value + z @ jacobian.mT
            variance = jacobian.norm(dim=1) ** 2 + outputs.var(-2) - control.var(-2)
            deviation = variance.clamp(min=0.01 * outputs.var(-2)).sqrt()
        else:
            return truth.of_samples(outputs)
        return truth.of_gaussian(mean, deviation, mean[:, None] + scattered(covariance, deviation))


def covariances(samples: Tensor, correction: int = 1) -> Tensor:
    """Return the covariances of samples, shape (..., k, m), over k."""
    centred = samples - samples.mean(-2, keepdim=True)
    return centred.mT @ centred / (samples.shape[-2] - correction)


def controlled(outputs: Tensor, z: Tensor, value: Tensor, jacobian: Tensor) -> tuple[Tensor, Tensor]:
    """Return mean and covariance of outputs, shape (..., k, m), with the linearised net as control variate.

    `z`: standard normal noise, shape (..., k, n). `value`, `jacobian`: of the net at noise 0, for z.
    """
    control = value[..., None, :] + z @ jacobian.mT
    mean = value + (outputs - control).mean(-2)
    return mean, jacobian @ jacobian.mT + covariances(outputs) - covariances(control)


def scattered(covariance: Tensor, deviation: Tensor) -> Tensor:
    """Return points of centred Gaussians, shape (..., k, m).

    `covariance` may have negative eigenvalues, which count as 0; the points have the standard deviations.
    """
    values, vectors = torch.linalg.eigh(covariance)
    root = vectors * values.clamp(min=0).sqrt()[..., None, :]
    root = root * (deviation / root.norm(dim=-1).clamp(min=1e-300))[..., None]
    uniform = SobolEngine(deviation.shape[-1], scramble=True, seed=0).draw(_POINTS, dtype=torch.float64)
    return torch.special.ndtri(uniform + 2.0**-31) @ root.mT


def seconds_of(depth: int, width: int, samples: int, methods: Sequence[str], *, is_trained: bool) -> float:
    """Estimate the time (s) of a group."""
    macs = (FEATURES + CLASSES) * width + (depth - 1) * width**2
    passes = samples + 3 * sum(REPEATS[n] * n for n in SIZES) / (4 if width > WIDE else 1)
    of_rules = 1.5 + depth * (0.25 + 3 * (width / 1024) ** 2)
    if "third_cumulants" in methods:
        of_rules += depth * 5.0 * (width / 256) ** 4
    training = 6 * macs * STEPS * MINIBATCH * is_trained / _FLOPS
    return training + len(KINK_DISTANCES) * (passes * 2 * macs / _FLOPS + of_rules)


def score(
    width: int, samples: int, is_trained: bool, group: ReplicateGroup, seed: int, methods: Sequence[str]
) -> Iterator[Number]:
    """Measure methods on one net at all noise levels, which are the components of the numbers."""
    net = network(group.activation, group.depth, width, seed)
    if is_trained:
        train(net, seed)
    features, labels = images("test")
    root = zlib.crc32(f"{group.objective} {seed}".encode())
    x = features[root % len(features)][None].double()
    exact = copy.deepcopy(net).double()
    regular = operations(lambda: exact(x))
    if "regular" in methods:
        with torch.no_grad():
            yield "regular", "accuracy", float((net(features).argmax(1) == labels).double().mean()), None
        yield "regular", "operations", regular, None
    distances = kinks(exact, x)
    distances = distances[distances.isfinite()]  # dead units have none
    rules = {rule: prepared(sr.rule(rule), exact, []) for rule in methods if rule in RULES}
    passes: dict[str, float] = {}
    for level in KINK_DISTANCES:
        sigma, label = level * float(distances.median()), f"{level:g}"
        if "regular" in methods:
            yield "regular", "noise", sigma, label
            yield "regular", "kinks", float(torch.special.ndtr(-distances / sigma).mean()), label
        propagated = Propagated(net, exact, x, sigma, root, is_wide=width > WIDE)
        truth = Truth(propagated.outputs(normals("plain", 1, samples, root))[0])
        if not bool((truth.own["standard_deviation"] > 1e-9 * truth.own["mean"].abs()).all()):
            continue  # an output is constant up to rounding
        for method in methods:
            if method == "regular":
                continue
            if method == "oracle":
                found, passes[method] = truth.floors(), float(samples)
            elif method in rules:
                law, counted = propagated.law(rules[method])
                found, passes[method] = truth.errors(truth.of_law(law)), counted / regular
            else:
                sampler, _, size = method.partition(":samples=")
                found = truth.errors(propagated.samples(truth, sampler, int(size)))
                passes[method] = float(size)
                if sampler == CONTROLLED:
                    products = 2 * int(size) * propagated.linear[1].numel()
                    passes[method] += (operations(lambda: jacobian_of(exact, x)) + products) / regular
            for use, error in found.items():
                yield method, use, error, label
    # Those of the last call: first calls also prepare what later ones reuse.
    for method, count in passes.items():
        yield method, "operations", count, None


def times(width: int, group: ReplicateGroup, seed: int, methods: Sequence[str]) -> Iterator[Number]:
    """Measure processor times per input, for one input and for a batch, which are the components.

    Neither what a rule prepares for a net nor the drawing of points is timed: both are done once for many
    inputs. Samplers without a control variate therefore take equally long.
    """
    exact = network(group.activation, group.depth, width, seed).double()
    inputs = images("test")[0][:BATCH].double()
    distances = kinks(exact, inputs[:1])
    sigma = float(distances[distances.isfinite()].median())
    calls: dict[str, Callable[[Tensor], object]] = {}
    for rule in (method for method in methods if method in RULES):
        propagate = prepared(sr.rule(rule), exact, [])
        calls[rule] = partial(_predict, propagate, sigma)
    for size in SIZES:
        z = normals("plain", 1, size, seed)[0]
        calls[f"plain:samples={size}"] = partial(_sample, exact, sigma, z)
        calls[f"{CONTROLLED}:samples={size}"] = partial(_sample_with_control, exact, sigma, z)
    with torch.no_grad():
        seconds = {"1": processor_times({name: partial(call, inputs[:1]) for name, call in calls.items()})}
        batches = {name: partial(call, inputs) for name, call in calls.items() if seconds["1"][name] < LONG}
        of_batches = processor_times(batches)
    seconds[str(BATCH)] = {name: time / BATCH for name, time in of_batches.items()}
    for count, by_name in seconds.items():
        for method, time in by_name.items():
            sampler, _, samples = method.partition(":")
            alike = [name for name in SAMPLERS if name != CONTROLLED] if sampler == "plain" else [sampler]
            for name in alike:
                yield f"{name}:{samples}" if samples else name, "seconds", time, count


def _predict(propagate: Callable[[sr.Law], sr.Law], sigma: float, x: Tensor) -> object:
    return propagate(sr.DiagonalGaussian(mean=x, variance=torch.full_like(x, sigma**2)))


def _sample(net: nn.Module, sigma: float, z: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
    outputs = _outputs(net, sigma, z, x)
    return outputs.mean(-2), covariances(outputs)


def _sample_with_control(net: nn.Module, sigma: float, z: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
    value, jacobian = jacobian_of(net, x)
    return controlled(_outputs(net, sigma, z, x), z, value, sigma * jacobian)


def _outputs(net: nn.Module, sigma: float, z: Tensor, x: Tensor) -> Tensor:
    outputs: Tensor = net((x[:, None] + sigma * z).flatten(0, 1))
    return outputs.unflatten(0, (len(x), len(z)))


def processor_times(calls: Mapping[str, Callable[[], object]]) -> dict[str, float]:
    """Return the median processor time (s) of each call; calls take turns, so that disturbances affect all.

    The first round warms up, and counts only for calls that take too long to be repeated.
    """
    seconds: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(ROUNDS):
        for name, call in calls.items():
            if sum(seconds[name][1:]) < ENOUGH and max(seconds[name], default=0) < 10 * LONG:
                start = process_time()
                call()
                seconds[name].append(process_time() - start)
    return {name: statistics.median(times[1:] or times) for name, times in seconds.items()}


def groups(experiment: ReplicateExperiment, settings: Settings) -> Iterator[ReplicateGroup]:
    """Yield a group for each net, by increasing size, and one for the times of each architecture.

    A DataMissingError is raised without MNIST, a UserError for another activation.
    """
    design, size = settings.design, experiment.size(settings)
    widths = (design.width,) if design.width else WIDTHS
    kinds = [design.activation] if design.activation else ACTIVATIONS
    if unknown := set(kinds) - set(ACTIVATIONS):
        raise UserError(f"{experiment.name} has nets with {' and '.join(ACTIVATIONS)}, not {unknown.pop()}")
    for split in ("train", "test"):
        images(split)
    depths = design.depths or size.depths or ()
    architectures = itertools.product(kinds, depths, widths)
    for activation, depth, width in sorted(architectures, key=lambda kind: kind[1] * kind[2] ** 2):
        hidden = f"{'-'.join([str(width)] * min(depth, 3))}{'...' if depth > 3 else ''}"
        layers = f"{TASK}; 49-{hidden}-10, {depth} hidden layers of {activation}; "
        samples = min(size.samples or SAMPLES, SAMPLES if width <= WIDE else FEWER)
        group = partial(
            experiment.by_seed,
            settings,
            versions=of_method(experiment.version),
            device="cpu",
            dataset="mnist 7x7",
            activation=activation,
            depth=depth,
        )
        for seed, training in itertools.product(range(size.nets or 1), TRAININGS):
            excluded = left_out(activation, depth, width, seed)
            methods = tuple(method for method in experiment.rules if method not in excluded)
            is_trained = training == "trained"
            yield from group(
                partial(score, width, samples, is_trained),
                [seed],
                label=f"{depth}x{width} {training}",
                design=f"{layers}oracle of {samples} samples",
                identity=digest(activation, training, depth, width, samples, STEPS)[:16],
                methods=methods,
                metrics=tuple(metric for metric in experiment.metrics if metric != "seconds"),
                objective=f"{activation} {depth}x{width} {training}",
                cost=seconds_of(depth, width, samples, methods, is_trained=is_trained),
            )
        excluded = left_out(activation, depth, width, seed=1) | {"regular", "oracle"}
        yield from group(
            partial(times, width),
            [0],
            label=f"{depth}x{width}",
            design=f"{layers}processor times",
            identity=digest(activation, depth, width)[:16],
            methods=tuple(method for method in experiment.rules if method not in excluded),
            metrics=("seconds",),
            objective=f"{activation} {depth}x{width}",
            cost=10 + depth * (width / 256) ** 3,
        )
