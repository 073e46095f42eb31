"""Advice on linearisation without an oracle: how accurate it is for a net, from 65 forward passes.

At ``x + z`` and ``x - z``, with noise ``z``, linearisation predicts the odd part of the output by the
Jacobian times ``z``, and no even part. The pairs show the true odd part and the even part. Prediction and
truth are for the same ``z``, so that a few pairs suffice. The indices are compared with thresholds that were
chosen on other nets; :mod:`sdp_bench.bench.advice.calibration` measures how often the advice is wrong.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import pandas as pd
import torch
from torch import Tensor, nn

from sdp_ref import propagate
from sdp_ref.jacobian.jacobian import jacobian_of
from sdp_ref.laws import DiagonalGaussian, Gaussian

from ..errors import MeasuredCodeError, UserError, measured_code
from ..executors.local import in_separate_process
from ..nets.own.net import OwnNet
from ..noise import GAUSSIAN, Noise
from .thresholds import DEVIATIONS, LIMITS, PAIRS, outcome_of

_DRAWS = 2000
_BATCH = 256  # rows of a forward pass
_CELLS = 512  # of the headline partition, of equal mass
_TINY = 1e-300
_ROUNDING = 1e-12  # smallest variance of an axis, relative to the largest
_CONSTANT = 1e-9  # spread of an output that counts as constant, relative to its size


@dataclass(frozen=True, eq=False)
class Probe:
    """Outputs of a net around one input, float64.

    `centre` has shape (m,), the others (pairs, m): `linear` is the Jacobian times each draw ``z`` of the
    noise, `odd` half the difference of the outputs at ``x + z`` and ``x - z``, and `even` their mean minus
    the centre. `predicted` is the law of linearisation, the rule `sdp`.
    """

    centre: Tensor
    linear: Tensor
    odd: Tensor
    even: Tensor
    predicted: Gaussian

    @property
    def residual(self) -> Tensor:
        """Output minus its linearisation, shape (2 pairs, m)."""
        odd = self.odd - self.linear
        return torch.cat([self.even + odd, self.even - odd])

    @cached_property
    def indices(self) -> dict[str, float]:
        """Estimated errors of linearisation by use, in the terms of :data:`LIMITS`.

        That of the whole distribution is larger than the total variation if residuals are independent of the
        noise, because they then smear the law less than they shift it.
        """
        linear = (self.linear**2).mean(0)
        # The pairs are symmetric, so that the variance is that of the odd part plus that of the even part.
        variance = (self.odd**2).mean(0) + self.even.var(0)
        varies = torch.maximum(linear, variance).sqrt() > _CONSTANT * self.centre.abs()
        ratios = ((variance + _TINY) / (linear + _TINY))[varies].log().abs()
        indices = {
            DEVIATIONS: float(0.5 * ratios.mean()) if len(ratios) else 0.0,
            "whole distribution": self._shift(),
        }
        if len(self.centre) > 1:
            before, after = self.classes
            indices["class"] = float((before - after).abs().sum() / 2)
        return indices

    def _shift(self) -> float:
        """Mean total variation between the predicted law and the law shifted by each residual.

        ``2 Phi(d / 2) - 1`` at the Mahalanobis distance d. It is bounded, so that a rare kink, or a residual
        outside the range of a singular covariance, counts by its probability.
        """
        variances, axes = torch.linalg.eigh(self.predicted.covariance[0])
        scales = variances.clamp(min=float(variances.max()) * _ROUNDING + _TINY).sqrt()
        distances = (self.residual @ axes / scales).norm(dim=1)
        return float(torch.erf(distances / math.sqrt(8)).mean())

    @cached_property
    def classes(self) -> tuple[Tensor, Tensor]:
        """Probabilities of the classes of linear draws, and of the same draws with residuals added."""
        draws = self.predicted.sample(_DRAWS, torch.Generator().manual_seed(1))[:, 0]
        classes = len(self.centre)
        before = torch.bincount(draws.argmax(1), minlength=classes)
        after = sum(torch.bincount((draws + r).argmax(1), minlength=classes) for r in self.residual)
        return before / _DRAWS, torch.as_tensor(after) / (_DRAWS * len(self.residual))


def probe(net: nn.Module, law: Gaussian | DiagonalGaussian, seed: int = 0) -> Probe:
    """Evaluate a net, in float64 and evaluation mode, around the mean of a law with one row."""
    x = law.mean
    z = law.sample(PAIRS, torch.Generator().manual_seed(seed))[:, 0] - x
    predicted = propagate(net, law, rule="sdp")
    assert isinstance(predicted, Gaussian)  # noqa: S101  what sdp returns for Gaussian input
    jacobian = jacobian_of(net, x)[1][0].flatten(1)
    with torch.no_grad():
        outputs = torch.cat([net(part).double() for part in torch.cat([x, x + z, x - z]).split(_BATCH)])
    centre, (plus, minus) = outputs[0], outputs[1:].split(PAIRS)
    return Probe(
        centre, z.flatten(1) @ jacobian.mT, (plus - minus) / 2, (plus + minus) / 2 - centre, predicted
    )


def advise(net: nn.Module, law: Gaussian | DiagonalGaussian, seed: int = 0) -> pd.DataFrame:
    """Advise on linearisation for each input of a net and each use, without an oracle.

    `law` has a row for each input, shape (B, *event); `net` maps (B, *event) to (B, m). The result has the
    columns `input`, `use`, `index` (the estimated error, see :attr:`Probe.indices`), `outcome` and `samples`,
    the number of Monte Carlo samples with the limit as expected error. Between the two thresholds of the
    index the outcome is "undecided".
    """
    net = copy.deepcopy(net).double().eval()
    law, rows = law.to(dtype=torch.float64), []
    for number in range(law.batch):
        probed = probe(net, law[number], seed + number)
        for use in LIMITS:
            if use not in probed.indices:
                continue
            index = probed.indices[use]
            rows.append((number, use, index, outcome_of(use, index), samples_for(use, probed)))
    return pd.DataFrame(rows, columns=["input", "use", "index", "outcome", "samples"])


def advise_on(net: OwnNet, noise: Noise | None = None, sigmas: Sequence[float] | None = None) -> pd.DataFrame:
    """Advise on a user's net at all its inputs, in a separate process: :func:`advise` at each noise level.

    The result also has the column `sigma`; ``attrs["net"]`` is the name of the net, and ``attrs["notes"]``
    are lines on how it was loaded. `noise` is Gaussian
    by default. `sigmas` are required, unless the noise has scales or a covariance. Raises UserError for noise
    that is not Gaussian, and for a net that is not differentiable or does not run in float64.
    """
    noise = noise or GAUSSIAN
    if sigmas is None and noise.values is None:
        raise UserError("sigma is required (--sigma 0.1,1)")
    name = net.architecture.name
    table = pd.DataFrame(in_separate_process(_rows, net, noise, sigmas or (1.0,), address=name))
    table.attrs["net"], table.attrs["notes"] = name, list(net.notes)
    return table


def _rows(net: OwnNet, noise: Noise, sigmas: Sequence[float]) -> list[dict[str, Any]]:
    noise.check(tuple(net.inputs.shape[1:]), tuple(sigmas), "mc", len(net.inputs))
    frames = []
    for sigma in sigmas:
        if not sigma > 0:
            raise UserError(f"a noise level must be positive, got {sigma:g}")
        law = noise.law(net.inputs, sigma, range(len(net.inputs)))
        if not isinstance(law, Gaussian | DiagonalGaussian):
            raise UserError(
                f"advice is calibrated for Gaussian noise, not for {noise.text}; use `sdp-bench validate`"
            )
        try:
            with measured_code():
                frames.append(advise(net.build(), law).assign(sigma=sigma))
        except MeasuredCodeError as error:
            raise UserError(
                f"no advice for {net.architecture.name}, which must be differentiable and run in float64: "
                f"{error}; `sdp-bench validate --net` measures it"
            ) from error
    return [{str(name): value for name, value in row.items()} for row in pd.concat(frames).to_dict("records")]


def samples_for(use: str, probed: Probe) -> int:
    """Return the number of Monte Carlo samples with the limit of a use as expected error.

    The mean total variation of k samples, over cells of probability p, is ``sum(sqrt(p (1 - p))) / sqrt(2 pi
    k)``. The mean absolute logarithm of the ratio of standard deviations is ``1 / sqrt(pi k)`` for nearly
    Gaussian outputs.
    """
    if use == DEVIATIONS:
        needed = 1 / (math.pi * LIMITS[use] ** 2)
    else:
        spread = math.sqrt(_CELLS - 1)
        if use == "class":
            p = probed.classes[1]
            spread = float((p * (1 - p)).sqrt().sum())
        needed = spread**2 / (2 * math.pi * LIMITS[use] ** 2)
    digits = 10 ** max(0, math.floor(math.log10(max(needed, 1))))
    return max(1, math.ceil(needed / digits) * digits)
