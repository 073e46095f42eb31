"""Measures the calibration of the advice: indices and true errors of linearisation on many nets.

``python -m sdp_bench.bench.advice.calibration`` writes the table and prints the error rates on held-out nets.
It needs MNIST and the UCI sets in the folder SDP_BENCH_DATA, and the packages of the published nets. Names of
families as arguments replace the rows of these families only.
"""

from __future__ import annotations

import copy
import math
import sys
from collections.abc import Iterator
from functools import partial

import pandas as pd
import torch

from sdp_ref.laws import DiagonalGaussian

from ..files import write
from ..identity import digest
from ..noise import noise_of
from .advice import errors_of, estimated
from .estimates import Array, Interval, class_error, deviations_error, distribution_error
from .outcomes import CLASS, DEVIATIONS, DISTRIBUTION, NEAR, TABLE, WIDER, calibration, rates
from .subjects import Subject, subjects

_CELLS = 512
_ORACLE_SAMPLES = (2**15, 2**17)  # at first, and at most near the limits


def true_errors(outputs: Array, linear: Array, has_class: bool = True) -> dict[str, Interval]:
    """Errors of linearisation by use, from an oracle's samples, in as many cells as the headline."""
    errors = {
        DEVIATIONS: deviations_error(outputs, linear),
        DISTRIBUTION: distribution_error(outputs, linear, len(outputs) // 4, [_CELLS]),
    }
    if has_class and outputs.shape[1] > 1:
        errors[CLASS] = class_error(outputs, linear)
    return errors


def measured(subject: Subject) -> Iterator[dict[str, object]]:
    """Indices and errors of a net at all its inputs and noise levels."""
    net, inputs = subject.prepare()
    net.eval()
    exact = copy.deepcopy(net).double()
    noise = noise_of(subject.noise)
    estimated_errors = partial(errors_of, has_class=subject.has_class)
    oracle_errors = partial(true_errors, has_class=subject.has_class)
    is_image = inputs[0].numel() > 100
    for number, x in enumerate(inputs):
        for sigma in subject.sigmas:
            scale = sigma * subject.scale
            law = DiagonalGaussian(x[None], noise.law(x[None], scale).variance)
            double = law.to(dtype=torch.float64)
            # With the same samples in all settings, their errors would not be independent.
            seed = int(digest(subject.name, number, scale)[:12], 16)
            _, indices = estimated(exact, double, seed, errors_from=estimated_errors)
            # The spread of the outputs of a deep random net can be below the rounding of float32.
            oracle = (net, law) if is_image else (exact, double)
            _, true = estimated(*oracle, seed + 1, *_ORACLE_SAMPLES, oracle_errors)
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
                    "error": float(f"{true[use].value:.4g}"),
                    "held_out": subject.held_out,
                }


def main() -> None:
    """Measure the calibration, write its table and print the error rates of the advice."""
    torch.set_num_threads(1)
    families = sys.argv[1:] or list(dict.fromkeys(subject.family for subject in subjects()))
    known = pd.read_csv(TABLE)
    parts = [known[~known["family"].isin(families)]]
    for subject in subjects():
        if subject.family in families:
            parts.append(pd.DataFrame(measured(subject)))
            print(f"{subject.name}: {len(parts[-1])} rows", file=sys.stderr)
    write(TABLE, pd.concat(parts).to_csv(index=False))
    calibration.cache_clear()
    for factor in (math.inf, WIDER, NEAR):
        print(f"errors within a factor of {factor:g} of the limit")
        print(rates(within=factor).round(3).to_string(index=False))
    print(rates("family").round(3).to_string(index=False))


if __name__ == "__main__":
    main()
