"""Linear regions of the committed nets and their cost: the table of docs/rules.md."""

import sys
import time

import torch

import sdp_ref as sr
from sdp_bench.bench.datasets.base import stratified_rows
from sdp_bench.bench.experiments import ci
from sdp_bench.bench.nets.net import inputs_of

FLOWERS, SAMPLES = 3, 10**6


def cells(sigmas):
    """Nets of one, two and four hidden layers, and noise about one flower of each class."""
    for found in ci.nets():
        data = inputs_of(found)
        inputs = data.batch(list(stratified_rows(data.labels, FLOWERS))).double()
        for sigma in sigmas:
            yield found.architecture.depth, sigma, found.build().double(), inputs


def measured(net, x, sigma, mass):
    """Regions, seconds of the processor and share of draws where the law is not the net, as text."""
    law = sr.DiagonalGaussian(x[None], torch.full_like(x[None], sigma**2))
    start = time.process_time()
    try:
        found = sr.rule("exact", mass=mass).propagate(net, law)
    except sr.UnsupportedError as error:
        print(error, file=sys.stderr)
        return "refused", f"{time.process_time() - start:.2g}", "-"
    seconds = f"{time.process_time() - start:.2g}"
    noise = torch.randn(SAMPLES, 4, generator=torch.Generator().manual_seed(0))
    apart = (found.push()(noise) - net(x + sigma * noise)).abs().amax(1) > 1e-9
    return str(found.counts[0]), seconds, f"{float(apart.double().mean()):.0e}"


def main(sigmas):
    """Print the table, a row for each net, noise level and mass."""
    torch.set_default_dtype(torch.float64)
    torch.set_grad_enabled(False)
    torch.set_num_threads(1)
    print("| hidden layers | σ | mass | regions | seconds | draws that differ |")
    print("| --- | --- | --- | --- | --- | --- |")
    for depth, sigma, net, inputs in cells(sigmas):
        for mass in (0.999, 0.9999):
            rows = [measured(net, x, sigma, mass) for x in inputs]
            columns = " | ".join(", ".join(column) for column in zip(*rows, strict=True))
            print(f"| {depth} | {sigma:g} | {mass:g} | {columns} |", flush=True)


if __name__ == "__main__":
    main([float(each) for each in sys.argv[1:]] or [0.03, 0.1, 1.0])
