"""ResNet-18 at 32 by 32, noise on every pixel, rules against samples: the table of docs/rules.md."""

import resource
import sys
import time

import torch

import sdp_ref as sr
from sdp_bench.bench.nets.resnet import ResNet18

RULES = (
    *("marginal_moment_matching", "sdp"),
    *(f"low_rank:columns={columns}" for columns in (16, 64, 256)),
)
BATCH = 500


def images(count, seed):
    """Smooth random images."""
    coarse = torch.randn(count, 3, 8, 8, generator=torch.Generator().manual_seed(seed))
    return torch.nn.functional.interpolate(coarse, size=32, mode="bicubic")


def random_net(width):
    """Random weights, and batch norms with the statistics of 64 images."""
    torch.manual_seed(0)
    net = ResNet18(width=width)
    for module in net.modules():
        if isinstance(module, torch.nn.BatchNorm2d):
            module.momentum = None
            torch.nn.init.uniform_(module.weight, 0.5, 1.5)
            torch.nn.init.normal_(module.bias, 0, 0.3)
    net.train()(images(64, 1))
    return net.eval()


def sampled(net, x, sigma, samples):
    """Mean and covariance of the outputs under noise; and how far two halves of the draws are apart."""
    generator = torch.Generator().manual_seed(3)
    draws = (
        x + sigma * torch.randn(BATCH, *x.shape[1:], generator=generator) for _ in range(samples // BATCH)
    )
    y = torch.cat([net(draw) for draw in draws]).double()
    mean, covariance = y.mean(0), torch.cov(y.T)
    halves = [torch.cov(half.T) for half in y.chunk(2)]
    return mean, covariance, ((halves[0] - halves[1]).norm() / 2 / covariance.norm()).item()


@torch.no_grad()
def main(width, samples, sigmas):
    """Print the table."""
    net, x = random_net(width), images(1, 7)
    print("| sigma | rule | mean | covariance | variances | seconds |\n| --- | --- | --- | --- | --- | --- |")
    for sigma in sigmas:
        law = sr.DiagonalGaussian(x, torch.full_like(x, sigma**2))
        mean, covariance, floor = sampled(net, x, sigma, samples)
        print(f"| {sigma:g} | two halves of the samples | | {floor:.2g} | | |", flush=True)
        for rule in RULES:
            start = time.process_time()
            found = sr.propagate(net, law, rule)
            seconds = time.process_time() - start
            off = ((found.mean[0] - mean).abs() / covariance.diagonal().sqrt()).max()
            wrong = (found.covariance[0] - covariance).norm() / covariance.norm()
            ratio = found.variance[0] / covariance.diagonal()
            row = f"{off:.2f} | {wrong:.2f} | {ratio.min():.2f} to {ratio.max():.2f} | {seconds:.2g}"
            print(f"| {sigma:g} | `{rule}` | {row} |", flush=True)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    print(f"at most {peak:.1f} GiB of memory")


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), [float(each) for each in sys.argv[3:]] or [0.02, 0.1, 0.3])
