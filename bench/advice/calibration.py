"""Measures the calibration of the advice: indices and true errors of linearisation on many nets.

``python -m sdp_bench.bench.advice.calibration`` writes the table and prints the error rates on held-out nets.
It needs MNIST and the UCI sets in the folder SDP_BENCH_DATA.
"""

from __future__ import annotations

import argparse
import copy
import math
import sys
from collections.abc import Iterator, Sequence

import pandas as pd
import torch

from sdp_ref.laws import DiagonalGaussian

from ..files import write
from .advice import errors_of, paired_outputs
from .estimates import Array, class_error, deviations_error, distribution_error
from .subjects import Subject, subjects
from .thresholds import CLASS, DEVIATIONS, DISTRIBUTION, NEAR, TABLE, WIDER, calibration, rates, thresholds

_CELLS = 512


def errors(outputs: Array, linear: Array) -> dict[str, float]:
    """True errors of linearisation by use, from an oracle's samples, in as many cells as the headline."""
    errors = {
        DEVIATIONS: deviations_error(outputs, linear).value,
        DISTRIBUTION: distribution_error(outputs, linear, len(outputs) // 4, [_CELLS]).value,
    }
    if outputs.shape[1] > 1:
        errors[CLASS] = class_error(outputs, linear).value
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
            oracle = (net, law) if images else (exact, double)
            true = errors(*paired_outputs(*oracle, subject.samples, seed=1000))
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
