"""Measures the calibration of the advice: indices and true errors of linearisation on many nets.

``python -m sdp_bench.bench.advice.calibration`` writes the table and prints the error rates on held-out nets.
It needs MNIST, CIFAR-10 and the UCI sets in the folder SDP_BENCH_DATA.
"""

from __future__ import annotations

import argparse
import copy
import math
import sys
from collections.abc import Iterator, Sequence

import numpy as np
import pandas as pd
import torch
from torch import nn

from sdp_ref import propagate
from sdp_ref.laws import DiagonalGaussian

from ... import oracles
from ..files import write
from .advice import errors_of, paired_outputs
from .subjects import Subject, subjects
from .thresholds import CLASS, DEVIATIONS, DISTRIBUTION, NEAR, TABLE, WIDER, calibration, rates, thresholds

_TINY = 1e-150
_PREDICTED = 2**17  # draws of the predicted law, which are cheap


def errors(net: nn.Module, law: DiagonalGaussian, samples: int) -> dict[str, float]:
    """True errors of linearisation by use, in the terms of :data:`LIMITS`, from samples of their own.

    The total variation of the whole distribution is that of the headline: 512 cells, corrected for noise.
    """
    predicted = propagate(net, law, rule="sdp")
    outputs, linear = paired_outputs(net, law, samples, seed=1)
    draws = predicted.sample(max(samples, _PREDICTED), torch.Generator().manual_seed(2))[:, 0]
    pilot, rest = outputs[: samples // 4], outputs[samples // 4 :]
    cells = oracles.PrincipalCells.from_samples(pilot)
    counts = cells.counts(rest), cells.counts(draws)
    floor = oracles.floor_of_largest(counts[0], len(draws), pairs=20)
    deviations = outputs.std(0, dtype=np.float64)
    linear_deviations = predicted.variance[0].double().sqrt().numpy()
    ratios = np.log((linear_deviations + _TINY) / (deviations + _TINY))
    errors = {
        DEVIATIONS: float(np.abs(ratios).mean()),
        DISTRIBUTION: oracles.largest_total_variation(*counts, floor).corrected,
    }
    number = outputs.shape[1]
    if number > 1:
        classes, linear_classes = (
            np.bincount(values.argmax(1), minlength=number) for values in (outputs, linear)
        )
        errors[CLASS] = float(np.abs(classes - linear_classes).sum() / (2 * samples))
    return errors


def measured(subject: Subject) -> Iterator[dict[str, object]]:
    """Indices and errors of a net at all its inputs and noise levels."""
    net, inputs = subject.prepare()
    net.eval()
    exact = copy.deepcopy(net).double()
    images = inputs[0].numel() > 100
    for number, x in enumerate(inputs):
        for sigma in subject.sigmas:
            scale = sigma * subject.scale
            law = DiagonalGaussian(mean=x[None], variance=torch.full_like(x[None], scale**2))
            double = law.to(dtype=torch.float64)
            indices = errors_of(*paired_outputs(exact, double))
            # The spread of the outputs of a deep random net can be below the rounding of float32.
            true = errors(*((net, law) if images else (exact, double)), subject.samples)
            for use, index in indices.items():
                yield {
                    "family": subject.family,
                    "net": subject.name,
                    "input": number,
                    "sigma": scale,
                    "use": use,
                    "index": float(f"{index.value:.4g}"),
                    "low": float(f"{index.low:.4g}"),
                    "high": float(f"{index.high:.4g}"),
                    "error": float(f"{true[use]:.4g}"),
                    "held_out": not subject.fitted,
                }


def _main(only: Sequence[str]) -> None:
    """Measure the calibration, write its table and print the error rates of the advice."""
    torch.set_num_threads(1)
    kept = calibration()
    rows = list[dict[str, object]]()
    for subject in subjects():
        if only and subject.name not in only:
            continue
        rows += list(measured(subject))
        print(f"{subject.name}: {len(rows)} rows", file=sys.stderr)
    others = kept[~kept["net"].isin(only)] if only else kept[:0]
    write(TABLE, pd.concat([others, pd.DataFrame(rows)]).to_csv(index=False))
    calibration.cache_clear()
    thresholds.cache_clear()
    print(thresholds())
    for factor in (math.inf, WIDER, NEAR):
        print(f"errors within a factor of {factor:g} of the limit")
        print(rates(within=factor).round(3).to_string(index=False))
    print(rates("family").round(3).to_string(index=False))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=_main.__doc__)
    only_help = "Measure only this net, and keep the rows of others; may be repeated."
    parser.add_argument("--only", action="append", default=[], metavar="NET", help=only_help)
    _main(parser.parse_args().only)
