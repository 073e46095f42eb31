"""Accuracy of `moment_matching` for norms over few components, by the size of the groups and the noise."""

import itertools

import torch
from torch import nn

import sdp_ref as sr

SAMPLES = 400_000
INPUTS = 6
SIGMAS = (0.01, 0.1, 0.3, 1.0, 3.0, 10.0)
SIZES = {nn.LayerNorm: (3, 4, 8, 32), nn.RMSNorm: (2, 3, 4, 8, 32)}


def covariance(correlation: float, n: int) -> torch.Tensor:
    return (1 - correlation) * torch.eye(n).double() + correlation


def errors(net: nn.Module, n: int, correlation: float, sigma: float, seed: int) -> tuple[float, float, float]:
    """Largest error of a mean in standard deviations; least and largest ratio of standard deviations."""
    generator = torch.Generator().manual_seed(seed)
    mean = torch.randn(1, n, generator=generator).double()
    noise = sigma**2 * covariance(correlation, n)
    normals = torch.randn(SAMPLES, n, generator=generator).double()
    samples = net(mean + normals @ torch.linalg.cholesky(noise).mT)
    deviation = samples.std(0)
    y = sr.propagate(net, sr.Gaussian(mean, noise.unsqueeze(0)), "moment_matching")
    ratio = y.variance[0].sqrt() / deviation
    return (
        float(((y.mean[0] - samples.mean(0)) / deviation).abs().max()),
        float(ratio.min()),
        float(ratio.max()),
    )


@torch.no_grad()
def main() -> None:
    print("| norm, components | correlation |", " | ".join(f"σ = {sigma:g}" for sigma in SIGMAS), "|")
    print("| --- |" + " --- |" * (1 + len(SIGMAS)))
    for (kind, sizes), correlation in itertools.product(SIZES.items(), (0.0, 0.9)):
        for n in sizes:
            cells = []
            for sigma in SIGMAS:
                net = kind(n).double()
                parts = [errors(net, n, correlation, sigma, seed) for seed in range(INPUTS)]
                means, lows, highs = zip(*parts, strict=True)
                cells.append(f"{max(means):.2f}, {min(lows):.2f} to {max(highs):.2f}")
            print(f"| {kind.__name__}, {n} | {correlation:g} |", " | ".join(cells), "|", flush=True)


if __name__ == "__main__":
    torch.set_num_threads(1)
    main()
