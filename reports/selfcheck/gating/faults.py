"""Faults of rules, and the checks of conformance kit and gate that detect them.

Each fault is simulated: :class:`Faulty` is SDP with that fault. `FAULTS` is the table in docs/ci.md (``python
-m sdp_bench.reports.selfcheck.gating.faults`` prints it), and both its tests and the report of error rates
check it.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property, partial

import torch
from torch import Tensor, nn

import sdp_ref as sr
from sdp_bench.bench.environment import threads
from sdp_bench.bench.experiments.iris import ci
from sdp_bench.bench.gate import accuracy
from sdp_bench.bench.gate.baseline import Baseline, RuleBaseline
from sdp_bench.bench.gate.cells import Scope
from sdp_bench.bench.gate.predictions import predict
from sdp_bench.bench.gate.probes import probes
from sdp_bench.bench.gate.verdict import ALL_CASES
from sdp_ref.conformance import CHECKS, CheckResult
from sdp_ref.graph.trace import Net
from sdp_ref.laws import Law
from sdp_ref.laws.gaussian import AnyGaussian


@dataclass(frozen=True)
class Call:
    """A call of a rule, and the correct result.

    `x` and `law` are the distributions of input and output. `prepared` says whether `prepare` was called
    instead of `propagate`, `number` counts earlier calls, and `threads` are torch's.
    """

    net: Net
    x: Law
    law: Law
    prepared: bool
    number: int
    threads: int

    def has(self, kind: type[nn.Module], **options: object) -> bool:
        """Whether the net has a layer of this kind; with options, a layer with a different value of one."""
        layers = [module for module in _modules(self.net) if isinstance(module, kind)]
        if not options:
            return bool(layers)
        return any(getattr(layer, name) != usual for layer in layers for name, usual in options.items())

    @property
    def widths(self) -> list[int]:
        return [module.out_features for module in _modules(self.net) if isinstance(module, nn.Linear)]

    @property
    def deviations(self) -> Tensor:
        """Standard deviations of the inputs; NaN if they do not exist."""
        x = self.x
        return x.variance.sqrt() if isinstance(x, AnyGaussian) else torch.full_like(x.location, torch.nan)

    @property
    def is_singular(self) -> bool:
        """Whether the covariance of the inputs is singular although each input has noise."""
        if not isinstance(self.x, sr.Gaussian) or bool((self.x.variance == 0).any()):
            return False
        values = torch.linalg.eigvalsh(self.x.covariance.detach().double())
        return bool((values[:, 0] < 1e-9 * values[:, -1]).any())


def _modules(net: Net) -> Iterator[nn.Module]:
    return net.modules() if isinstance(net, nn.Module) else iter(())


Spoil = Callable[[Call], Law]


@dataclass(frozen=True)
class Fault:
    """A fault and the checks that detect it.

    `spoil` turns a call into the prediction of the faulty rule. `kit` is the first check of the conformance
    kit that fails, and `gate` the first probe that differs from a baseline of the correct rule, or
    :data:`CELLS` if cells differ. Both are empty if nothing detects the fault.
    """

    name: str
    spoil: Spoil
    kit: str = ""
    gate: str = ""


CELLS = "cells"


class Faulty:
    """SDP with some faults."""

    name = "faulty"
    differentiable = True

    def __init__(self, *faults: Fault) -> None:
        self._faults, self._right, self._calls = faults, sr.rule("sdp", create_graph=True), 0

    def propagate(self, net: Net, x: Law) -> Law:
        return self._spoiled(net, x, self._right.propagate(net, x), prepared=False)

    def prepare(self, net: Net) -> Callable[[Law], Law]:
        right = self._right.prepare(net)
        return lambda x: self._spoiled(net, x, right(x), prepared=True)

    def _spoiled(self, net: Net, x: Law, law: Law, *, prepared: bool) -> Law:
        call = Call(net, x, law, prepared, self._calls, torch.get_num_threads())
        self._calls += 1
        for fault in self._faults:
            call = replace(call, law=fault.spoil(call))
        return call.law


def seen_by_kit(*faults: Fault) -> str:
    """First check of the conformance kit that a rule with these faults fails; empty if it passes all."""
    with threads(1):
        try:
            sr.check_rule(Faulty(*faults), progress=_stop_at_failure)
        except _Seen as seen:
            return str(seen)
    return ""


class _Seen(Exception):  # noqa: N818  no error: the rest of the kit need not run
    """A check has failed."""


def _stop_at_failure(result: CheckResult) -> None:
    if result.status == "failed":
        raise _Seen(result.name)


class Gate:
    """The gate with a baseline of the correct rule, with cells at one noise level and small oracles."""

    @cached_property
    def scope(self) -> Scope:
        groups = ci.groups(["sdp"], sigmas=(1.0,), samples=2**12, pilot_samples=2**11, cells=16)
        return Scope((), tuple(groups), probes())

    @cached_property
    def baseline(self) -> Baseline:
        with threads(1):
            right = predict(Faulty(), self.scope)
        rules = {Faulty.name: RuleBaseline(right.answers)}
        return Baseline({}, {}, rules)

    def sees(self, *faults: Fault) -> str:
        """First probe that detects a rule with these faults, or "cells"; empty if none does."""
        rule = Faulty(*faults)
        with threads(1):
            predicted = {rule.name: predict(rule, self.scope, self.baseline.rules[rule.name].answers)}
            verdict = accuracy.judge(self.baseline, {rule.name: rule}, predicted, self.scope, draw=0)
        stopped = [f.cell for f in verdict.findings if f.stops and f.cell != ALL_CASES]
        in_probes = {probe.name for probe in self.scope.probes}
        return next((cell if cell in in_probes else CELLS for cell in stopped), "")


def _wider(law: Law, factor: float = 1.05) -> Law:
    if isinstance(law, sr.Gaussian):
        return replace(law, covariance=factor * law.covariance)
    if isinstance(law, sr.DiagonalGaussian):
        return replace(law, variance=factor * law.variance)
    if isinstance(law, sr.Cauchy | sr.SymmetricStable):
        return replace(law, scale=factor * law.scale)
    raise TypeError(f"no width to change of a {type(law).__name__}")


def _when(applies: Callable[[Call], bool], factor: float = 1.05) -> Spoil:
    """Covariances multiplied by a factor where `applies` is true."""
    return lambda call: _wider(call.law, factor) if applies(call) else call.law


def _of_another_net(change: Callable[[nn.Module], nn.Module | None]) -> Spoil:
    """Prediction for the net with modules replaced by the results of `change` that are not None."""

    def spoil(call: Call) -> Law:
        found = {n: change(m) for n, m in call.net.named_modules()} if isinstance(call.net, nn.Module) else {}
        changed = {name: module for name, module in found.items() if module is not None}
        if not changed or not isinstance(call.net, nn.Module):
            return call.law
        net = copy.deepcopy(call.net)
        for name, module in changed.items():
            net.set_submodule(name, module)
        return sr.propagate(net, call.x, sr.rule("sdp", create_graph=True))

    return spoil


def _usual_slope(module: nn.Module) -> nn.Module | None:
    return nn.LeakyReLU() if isinstance(module, nn.LeakyReLU) and module.negative_slope != 0.01 else None


def _no_normalisation(module: nn.Module) -> nn.Module | None:
    return nn.Identity() if isinstance(module, nn.BatchNorm1d) else None


def _gaussian(change: Callable[[sr.Gaussian], Law]) -> Spoil:
    """A change of predictions with a covariance."""
    return lambda call: change(call.law) if isinstance(call.law, sr.Gaussian) else call.law


def _later_rows(law: sr.Gaussian) -> Law:
    factor = torch.where(torch.arange(law.batch) > 2, 1.05, 1.0).to(law.covariance)
    return replace(law, covariance=factor[:, None, None] * law.covariance)


def _shifted(law: sr.Gaussian, deviations: float) -> Law:
    return replace(law, mean=law.mean + deviations * law.variance.sqrt())


def _in_float32(law: sr.Gaussian) -> Law:
    return _shifted(law, 0.02) if law.mean.dtype == torch.float32 else law


def _unscented(call: Call) -> Law:
    return sr.propagate(call.net, call.x, "unscented") if isinstance(call.law, sr.Gaussian) else call.law


def _steeper(law: sr.Gaussian) -> Law:
    return replace(law, mean=law.mean.detach() + 1.05 * (law.mean - law.mean.detach()))


def _detached(law: sr.Gaussian) -> Law:
    return sr.Gaussian(law.mean.detach(), law.covariance.detach())


def _uncorrelated(law: sr.Gaussian) -> Law:
    return replace(law, covariance=torch.diag_embed(law.variance))


FAULTS: tuple[Fault, ...] = (
    Fault("covariances 2 % too large", _when(lambda _: True, 1.02), "affine", CELLS),
    Fault(
        "means 1 % of a standard deviation too large",
        _gaussian(partial(_shifted, deviations=0.01)),
        "affine",
        CELLS,
    ),
    Fault(
        "correlations lost",
        _gaussian(_uncorrelated),
        "affine",
        CELLS,
    ),
    Fault(
        "covariances 5 % too large in float32",
        _when(lambda call: call.x.location.dtype == torch.float32),
        "precision",
        "relu chain, float32",
    ),
    Fault(
        "means 2 % of a standard deviation too large in float32",
        _gaussian(_in_float32),
        "precision",
        "relu chain, float32",
    ),
    Fault(
        "… at a singular input covariance",
        _when(lambda call: call.is_singular),
        "affine",
        "relu chain, singular input",
    ),
    Fault(
        "… where an input has no noise",
        _when(lambda call: bool((call.deviations == 0).any())),
        "affine",
        "relu chain, one input without noise",
    ),
    Fault(
        "… after a convolution with stride",
        _when(lambda call: call.has(nn.Conv2d, stride=(1, 1))),
        "affine",
        "convolution with stride",
    ),
    Fault(
        "… after a convolution in groups",
        _when(lambda call: call.has(nn.Conv2d, groups=1)),
        "affine",
        "convolution in groups",
    ),
    Fault(
        "… after a convolution with dilation",
        _when(lambda call: call.has(nn.Conv2d, dilation=(1, 1))),
        "affine",
        "convolution with dilation",
    ),
    Fault(
        "… after a transposed convolution",
        _when(lambda call: call.has(nn.ConvTranspose2d)),
        "affine",
        "convolution transposed",
    ),
    Fault(
        "… after a convolution of a row (1-d)",
        _when(lambda call: call.has(nn.Conv1d)),
        "affine",
        "convolution of a row",
    ),
    Fault(
        "LeakyReLU(0.1) taken for LeakyReLU(0.01)",
        _of_another_net(_usual_slope),
        "small-noise",
        "leaky_relu 0.1 chain",
    ),
    Fault(
        "BatchNorm1d left out",
        _of_another_net(_no_normalisation),
        "affine",
        "batch normalisation of a vector",
    ),
    Fault(
        "… of nets of more than 5 layers",
        _when(lambda call: len(call.widths) > 5),
        "affine",
        "relu chain, 12 layers",
    ),
    Fault(
        "… of nets with more than 100 units in a layer",
        _when(lambda call: max(call.widths, default=0) > 100),
        "affine",
        "relu chain, 200 units",
    ),
    Fault(
        "… of more than 4 inputs",
        _when(lambda call: call.x.dimension > 4),
        "affine",
        "convolutions and pools, image",
    ),
    Fault(
        "… of more than 3 outputs",
        _when(lambda call: call.law.dimension > 3),
        "affine",
        "relu chain, 12 inputs, 5 outputs",
    ),
    Fault(
        "… at standard deviations below 0.05",
        _when(lambda call: bool((call.deviations.amax() < 0.05) & (call.deviations.amin() > 0))),
        "small-noise",
        "relu chain, sigma 0.01",
    ),
    Fault(
        "… at standard deviations above 100",
        _when(lambda call: bool(call.deviations.amax() > 100)),
        "scale",
        "relu chain, sigma 1000",
    ),
    Fault(
        "… of rows of a batch after the third",
        _gaussian(_later_rows),
        "batch",
        "relu chain, in a batch of 21",
    ),
    Fault(
        "covariances 2 % too large from `propagate` alone",
        _when(lambda call: not call.prepared, 1.02),
        "affine",
        "relu chain, by propagate",
    ),
    Fault(
        "covariances 2 % too large from `prepare` alone",
        _when(lambda call: call.prepared, 1.02),
        "prepare",
        CELLS,
    ),
    Fault(
        "… on 2 threads",
        _when(lambda call: call.threads == 2),
        "threads",
        "relu chain, on 2 threads",
    ),
    Fault(
        "… from the 100th call on",
        _when(lambda call: call.number >= 100),
        "small-noise",
        "relu chain, after 120 calls",
    ),
    Fault(
        "no gradients, though the rule declares them",
        _gaussian(_detached),
        "gradients",
    ),
    Fault("gradients of the mean 5 % too large", _gaussian(_steeper), "gradients"),
    Fault("the unscented transform's answers for SDP's", _unscented, "", CELLS),
    Fault("… of nets of more than 20 layers", _when(lambda call: len(call.widths) > 20)),
    Fault(
        "… of nets with more than 500 units in a layer",
        _when(lambda call: max(call.widths, default=0) > 500),
    ),
    Fault("… of more than 16 outputs", _when(lambda call: call.law.dimension > 16)),
    Fault("… of batches larger than 64", _when(lambda call: call.law.batch > 64)),
    Fault("… on 4 threads", _when(lambda call: call.threads == 4)),
    Fault("… from the 100 000th call on", _when(lambda call: call.number >= 100_000)),
)


def table() -> str:
    """The Markdown table in docs/ci.md of the checks that detect each fault."""
    rows = [f"| {each.name} | {_seen(each.kit)} | {_seen(each.gate)} |" for each in FAULTS]
    return "\n".join(["| fault | kit | gate |", "| --- | --- | --- |", *rows])


def _seen(by: str) -> str:
    return f"`{by}`" if by in {check.name for check in CHECKS} else by or "**not seen**"


if __name__ == "__main__":
    print(table())
