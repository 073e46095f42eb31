"""Third cumulants compared with covariances alone, in random and trained nets: the table of docs/rules.md.

``python docs/examples/third_cumulants.py`` takes some minutes.
"""

import torch
from torch import nn

import sdp_ref as sr
from sdp_bench.bench.nets.architectures import Architecture
from sdp_bench.bench.nets.fully_connected import get_nets
from sdp_bench.bench.nets.recipes import Recipe

SAMPLES, BLOCKS = 100_000, 10
RULES = ("moment_matching", "third_cumulants")


def random_net(depth, width, seed, outputs=8):
    """Return a ReLU net without biases, with weights of variance 2 / width."""
    torch.manual_seed(seed)
    layers = []
    for size in [width] * depth + [outputs]:
        layers += [nn.Linear(width, size, bias=False), nn.ReLU()]
        nn.init.normal_(layers[-2].weight, std=(2 / width) ** 0.5)
    return nn.Sequential(*layers[:-1])


def sampled(net, mean, sigma):
    """Return mean and covariance of antithetic samples, and the variance of an error of the mean."""
    means, squares = [], []
    for _ in range(BLOCKS):
        noise = sigma * torch.randn(SAMPLES // 2, len(mean))
        outputs = net(torch.cat([mean + noise, mean - noise])).double()
        means.append(outputs.mean(0))
        squares.append(torch.cov(outputs.T))
    means = torch.stack(means)
    return means.mean(0), torch.stack(squares).mean(0), means.var(0) / BLOCKS


@torch.no_grad()
def row(name, net, mean, sigma):
    """Print squared errors of means per variance of the output, and relative errors of covariances."""
    centre, covariance, noise = sampled(net.float(), mean, sigma)
    variance = covariance.diagonal()
    cells = [name, f"{sigma:g}", f"{(noise / variance).mean():.1e}"]
    x = sr.DiagonalGaussian(mean[None].double(), torch.full((1, len(mean)), float(sigma) ** 2).double())
    for rule in RULES:
        law = sr.propagate(net.double(), x, rule)
        error = ((law.mean[0] - centre).square() / variance).mean()
        cells.append(f"{error:.1e}, {(law.covariance[0] - covariance).norm() / covariance.norm():.1%}")
    print("|", " | ".join(cells), "|", flush=True)


def main():
    """Print the table."""
    print("| net | σ | sampling error |", " | ".join(f"`{rule}`" for rule in RULES), "|")
    print("|" + " --- |" * (3 + len(RULES)))
    for depth, width in ((2, 32), (2, 128), (4, 32), (4, 128), (8, 32), (8, 128)):
        row(f"random, {depth} layers of {width}", random_net(depth, width, 0), torch.zeros(width), 1)
    flower = torch.tensor([5.0, 3.3, 1.4, 0.2])
    for depth in (2, 4):
        (net,) = get_nets(Architecture(depth), Recipe(), [0])
        for sigma in (0.1, 1, 10):
            row(f"trained, {depth} layers of 100", net.build(), flower, sigma)


if __name__ == "__main__":
    main()
