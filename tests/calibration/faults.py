"""SDP with faults, and the first check of the kit and the first probe of the gate that detect them.

``python -m tests.calibration.faults`` prints docs/detected_faults.csv.
"""

import copy
from dataclasses import dataclass, replace
from functools import cached_property

import pandas as pd
import torch
from torch import nn

import sdp_ref as sr
from sdp_bench.bench.environment import threads
from sdp_bench.bench.experiments import ci
from sdp_bench.bench.gate import accuracy
from sdp_bench.bench.gate.baseline import Baseline, RuleBaseline
from sdp_bench.bench.gate.cases import GateScope, probes
from sdp_bench.bench.gate.predictions import predict
from sdp_bench.bench.gate.verdict import ALL_CASES
from sdp_ref.laws.gaussian import AnyGaussian

CELLS = "cells"


@dataclass(frozen=True)
class Call:
    """A call of a rule with its correct result; `number` counts earlier calls."""

    net: object
    x: sr.Law
    law: sr.Law
    prepared: bool
    number: int

    @property
    def modules(self):
        return list(self.net.modules()) if isinstance(self.net, nn.Module) else []

    @property
    def widths(self):
        return [module.out_features for module in self.modules if isinstance(module, nn.Linear)]

    @property
    def deviations(self):
        """Standard deviations of the inputs; NaN without moments."""
        x = self.x
        return x.variance.sqrt() if isinstance(x, AnyGaussian) else torch.full_like(x.location, torch.nan)

    @property
    def is_singular(self):
        """Whether the covariance of the inputs is singular although each input has noise."""
        if not isinstance(self.x, sr.Gaussian) or bool((self.x.variance == 0).any()):
            return False
        values = torch.linalg.eigvalsh(self.x.covariance.detach().double())
        return bool((values[:, 0] < 1e-9 * values[:, -1]).any())


@dataclass(frozen=True)
class Fault:
    """A change of the results of calls; `kit` and `gate` detect it, and are empty if they do not."""

    name: str
    spoil: object
    kit: str = ""
    gate: str = ""


class Faulty:
    """SDP with some faults."""

    name = "faulty"
    differentiable = True

    def __init__(self, *faults):
        self._faults, self._right, self._calls = faults, sr.rule("sdp", create_graph=True), 0

    def propagate(self, net, x):
        return self._spoiled(net, x, self._right.propagate(net, x), prepared=False)

    def prepare(self, net):
        right = self._right.prepare(net)
        return lambda x: self._spoiled(net, x, right(x), prepared=True)

    def _spoiled(self, net, x, law, *, prepared):
        call = Call(net, x, law, prepared, self._calls)
        self._calls += 1
        for fault in self._faults:
            call = replace(call, law=fault.spoil(call))
        return call.law


class _SeenError(Exception):
    """A check has failed, and the rest of the kit need not run."""


def seen_by_kit(*faults):
    """First check of the conformance kit that a rule with these faults fails; empty if it passes all."""

    def stop(result):
        if result.status == "failed":
            raise _SeenError(result.name)

    with threads(1):
        try:
            sr.check_rule(Faulty(*faults), progress=stop)
        except _SeenError as seen:
            return str(seen)
    return ""


class Gate:
    """The gate with a baseline of SDP, with cells at one noise level and small oracles."""

    @cached_property
    def scope(self):
        groups = ci.groups(["sdp"], sigmas=(1.0,), samples=2**12, pilot_samples=2**11, cells=16)
        return GateScope((), tuple(groups), probes())

    @cached_property
    def baseline(self):
        with threads(1):
            right = predict(Faulty(), self.scope)
        return Baseline({}, {}, {Faulty.name: RuleBaseline(right)})

    def sees(self, *faults):
        """First probe that detects a rule with these faults, or "cells"; empty if none does."""
        rule = Faulty(*faults)
        with threads(1):
            predicted = {rule.name: predict(rule, self.scope)}
            verdict = accuracy.judge(self.baseline, predicted, self.scope, draw=0)
        stopped = [f.cell for f in verdict.findings if f.stops and f.cell != ALL_CASES]
        in_probes = {probe.name for probe in self.scope.probes}
        return next((cell if cell in in_probes else CELLS for cell in stopped), "")


def _wider(law, factor):
    if isinstance(law, sr.Gaussian):
        return replace(law, covariance=factor * law.covariance)
    if isinstance(law, sr.DiagonalGaussian):
        return replace(law, variance=factor * law.variance)
    return replace(law, scale=factor * law.scale)


def _when(applies, factor=1.05):
    """Covariances multiplied by a factor where `applies` is true."""
    return lambda call: _wider(call.law, factor) if applies(call) else call.law


def _gaussian(change):
    """A change of predictions with a covariance."""
    return lambda call: change(call.law) if isinstance(call.law, sr.Gaussian) else call.law


def _of_another_net(change):
    """Prediction for the net with modules replaced by the results of `change` that are not None."""

    def spoil(call):
        if not call.modules or all(change(module) is None for module in call.modules):
            return call.law
        net = copy.deepcopy(call.net)
        for name, module in list(net.named_modules()):
            if (changed := change(module)) is not None:
                net.set_submodule(name, changed)
        return sr.propagate(net, call.x, sr.rule("sdp", create_graph=True))

    return spoil


def _usual_slope(module):
    return nn.LeakyReLU() if isinstance(module, nn.LeakyReLU) and module.negative_slope != 0.01 else None


def _no_norm(module):
    return nn.Identity() if isinstance(module, nn.BatchNorm1d) else None


def _shifted(law):
    return replace(law, mean=law.mean + 0.01 * law.variance.sqrt())


def _uncorrelated(law):
    return replace(law, covariance=torch.diag_embed(law.variance))


def _later_rows(law):
    factor = torch.where(torch.arange(law.batch) > 2, 1.05, 1.0).to(law.covariance)
    return replace(law, covariance=factor[:, None, None] * law.covariance)


def _detached(law):
    return sr.Gaussian(law.mean.detach(), law.covariance.detach())


def _steeper(law):
    return replace(law, mean=law.mean.detach() + 1.05 * (law.mean - law.mean.detach()))


def _unscented(call):
    return sr.propagate(call.net, call.x, "unscented") if isinstance(call.law, sr.Gaussian) else call.law


def _is_small(call):
    return bool((call.deviations.amax() < 0.05) & (call.deviations.amin() > 0))


def _is_large(call):
    return bool(call.deviations.amax() > 100)


def _has_constant_input(call):
    return bool((call.deviations == 0).any())


def _is_float32(call):
    return call.x.location.dtype == torch.float32


def _wider_than(units):
    return lambda call: max(call.widths, default=0) > units


def _more_outputs_than(number):
    return lambda call: call.law.dimension > number


def _has(kind, **usual):
    """Whether the net has a layer of this kind; with options, one for which some option is unusual."""

    def applies(call):
        layers = [module for module in call.modules if isinstance(module, kind)]
        return any(not usual or any(getattr(layer, key) != usual[key] for key in usual) for layer in layers)

    return applies


_WIDER = (
    ("at a singular input covariance", lambda call: call.is_singular, "affine", "relu chain, singular input"),
    ("if an input has no noise", _has_constant_input, "affine", "relu chain, one input without noise"),
    ("after a strided convolution", _has(nn.Conv2d, stride=(1, 1)), "affine", "convolution with stride"),
    ("after a grouped convolution", _has(nn.Conv2d, groups=1), "affine", "convolution in groups"),
    ("after a dilated convolution", _has(nn.Conv2d, dilation=(1, 1)), "affine", "convolution with dilation"),
    ("after a transposed convolution", _has(nn.ConvTranspose2d), "affine", "convolution transposed"),
    ("after a one-dimensional convolution", _has(nn.Conv1d), "affine", "convolution of a row"),
    ("for more than 5 layers", lambda call: len(call.widths) > 5, "affine", "relu chain, 12 layers"),
    ("for more than 100 units in a layer", _wider_than(100), "affine", "relu chain, 200 units"),
    ("for more than 4 inputs", lambda call: call.x.dimension > 4, "affine", "convolutions and pools, image"),
    ("for more than 3 outputs", _more_outputs_than(3), "affine", "relu chain, 12 inputs, 5 outputs"),
    ("at standard deviations below 0.05", _is_small, "small-noise", "relu chain, sigma 0.01"),
    ("at standard deviations above 100", _is_large, "scale", "relu chain, sigma 1000"),
    ("on 2 threads", lambda _: torch.get_num_threads() == 2, "threads", "relu chain, on 2 threads"),
    ("after 100 calls", lambda call: call.number >= 100, "small-noise", "relu chain, after 120 calls"),
    ("for more than 20 layers", lambda call: len(call.widths) > 20),
    ("for more than 500 units in a layer", _wider_than(500)),
    ("for more than 16 outputs", _more_outputs_than(16)),
    ("for batches larger than 64", lambda call: call.law.batch > 64),
    ("on 4 threads", lambda _: torch.get_num_threads() == 4),
    ("after 100 000 calls", lambda call: call.number >= 100_000),
)
"""Settings in which covariances are 5 % too large."""

FAULTS = (
    Fault("covariances 2 % too large", _when(lambda _: True, 1.02), "affine", CELLS),
    Fault("means 1 % of a standard deviation too large", _gaussian(_shifted), "affine", CELLS),
    Fault("correlations lost", _gaussian(_uncorrelated), "affine", CELLS),
    Fault("covariances 5 % too large in float32", _when(_is_float32), "precision", "relu chain, float32"),
    Fault(
        "LeakyReLU(0.1) treated as LeakyReLU(0.01)",
        _of_another_net(_usual_slope),
        "small-noise",
        "leaky_relu 0.1 chain",
    ),
    Fault("BatchNorm1d omitted", _of_another_net(_no_norm), "affine", "batch normalisation of a vector"),
    Fault(
        "covariances 2 % too large in `propagate` only",
        _when(lambda call: not call.prepared, 1.02),
        "affine",
        "relu chain, by propagate",
    ),
    Fault(
        "covariances 2 % too large in `prepare` only",
        _when(lambda call: call.prepared, 1.02),
        "prepare",
        CELLS,
    ),
    *(Fault(f"… {name}", _when(applies), *seen) for name, applies, *seen in _WIDER),
    Fault(
        "… for rows after the third in a batch",
        _gaussian(_later_rows),
        "batch",
        "relu chain, in a batch of 21",
    ),
    Fault("no gradients, although the rule declares them", _gaussian(_detached), "gradients"),
    Fault("gradients of the mean 5 % too large", _gaussian(_steeper), "gradients"),
    Fault("predictions of the unscented transform instead of those of `sdp`", _unscented, "", CELLS),
)


def table():
    """The content of docs/detected_faults.csv."""
    columns = [(fault.name.replace("`", ""), fault.kit, fault.gate) for fault in FAULTS]
    return pd.DataFrame(columns, columns=["fault", "kit", "gate"]).to_csv(index=False)


if __name__ == "__main__":
    print(table(), end="")
