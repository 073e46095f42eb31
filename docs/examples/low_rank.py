"""Low-rank covariances compared with samples: the tables of docs/rules.md.

``python docs/examples/low_rank.py resnet 16 100000`` is ResNet-18 at 32 by 32 with noise on every pixel, 16
channels wide; ``python docs/examples/low_rank.py even`` a hidden layer of even functions and of others.
Figures have standard errors, by leaving out each twentieth of the samples (jackknife).
"""

import resource
import sys
import time
from dataclasses import dataclass

import torch

import sdp_ref as sr
from sdp_bench.bench.nets.zoo import ResNet

RULES = (
    "marginal_moment_matching",
    "sdp",
    "low_rank:columns=4",
    "low_rank:columns=16",
    "low_rank:columns=64",
    "low_rank:columns=256",
)
BATCH, GROUPS = 500, 20
FUNCTIONS = {
    "abs": torch.abs,
    "square": torch.square,
    "cos": torch.cos,
    "ReLU": torch.relu,
    "GELU": torch.nn.functional.gelu,
    "tanh": torch.tanh,
}


def images(count, seed):
    """Smooth random images."""
    coarse = torch.randn(count, 3, 8, 8, generator=torch.Generator().manual_seed(seed))
    return torch.nn.functional.interpolate(coarse, size=32, mode="bicubic")


def random_net(width):
    """Random weights, and batch norms with the statistics of 64 images."""
    torch.manual_seed(0)
    net = ResNet(width=width)
    for module in net.modules():
        if isinstance(module, torch.nn.BatchNorm2d):
            module.momentum = None
            torch.nn.init.uniform_(module.weight, 0.5, 1.5)
            torch.nn.init.normal_(module.bias, 0, 0.3)
    net.train()(images(64, 1))
    return net.eval()


@dataclass
class Samples:
    """Sums over groups of samples: their numbers (G,), sums (G, m), and sums of products (G, m, m)."""

    counts: torch.Tensor
    sums: torch.Tensor
    products: torch.Tensor

    @classmethod
    def of(cls, net, x, sigma, samples):
        """Outputs under noise, less those without, group by group."""
        generator = torch.Generator().manual_seed(3)
        centre = net(x).double()
        counts, sums, products = [], [], []
        for _ in range(GROUPS):
            outputs = []
            for batch in torch.arange(samples // GROUPS).split(BATCH):
                noise = torch.randn(len(batch), *x.shape[1:], generator=generator, dtype=x.dtype)
                outputs.append(net(x + sigma * noise).double() - centre)
            y = torch.cat(outputs)
            counts.append(torch.tensor(float(len(y))))
            sums.append(y.sum(0))
            products.append(y.mT @ y)
        return cls(torch.stack(counts), torch.stack(sums), torch.stack(products)), centre[0]

    def moments(self, without=None):
        """Mean and covariance, of all groups or of all but one."""
        kept = [group for group in range(GROUPS) if group != without]
        n = self.counts[kept].sum()
        mean = self.sums[kept].sum(0) / n
        return mean, (self.products[kept].sum(0) - n * torch.outer(mean, mean)) / (n - 1)

    def figures(self, statistic):
        """Values of a statistic of mean and covariance, each with its standard error."""
        leave_one_out = torch.stack([statistic(*self.moments(group)) for group in range(GROUPS)])
        errors = (leave_one_out.var(0, correction=0) * (GROUPS - 1)).sqrt()
        return zip(statistic(*self.moments()), errors, strict=True)


def errors(law, centre):
    """Errors of mean and covariance and the extreme ratios of variances, given the samples' moments."""
    predicted_mean = law.mean[0].double() - centre
    predicted_covariance = law.covariance[0].double()

    def statistic(mean, covariance):
        variance = covariance.diagonal()
        ratio = predicted_covariance.diagonal() / variance
        mean_error = ((predicted_mean - mean).abs() / variance.sqrt()).max()
        covariance_error = (predicted_covariance - covariance).norm() / covariance.norm()
        return torch.stack([mean_error, covariance_error, ratio.min(), ratio.max()])

    return statistic


def cells(samples, law, centre):
    """Figures of a rule as cells of a table: of the mean, the covariance and the variances."""
    texts = [f"{value:.3f} ± {error:.3f}" for value, error in samples.figures(errors(law, centre))]
    mean_error, covariance_error, lowest, highest = texts
    return mean_error, covariance_error, f"{lowest} to {highest}"


def resnet(width, samples, sigmas, rules=RULES):
    """Print the table of ResNet-18."""
    net, x = random_net(width), images(1, 7)
    print("| σ | rule | mean | covariance | variances | seconds |\n| --- | --- | --- | --- | --- | --- |")
    for sigma in sigmas:
        law = sr.DiagonalGaussian(x, torch.full_like(x, sigma**2))
        drawn, centre = Samples.of(net, x, sigma, samples)
        for rule in rules:
            start = time.process_time()
            prediction = sr.propagate(net, law, rule)
            seconds = time.process_time() - start
            row = " | ".join(cells(drawn, prediction, centre))
            print(f"| {sigma:g} | `{rule}` | {row} | {seconds:.2g} |", flush=True)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    print(f"at most {peak:.1f} GiB of memory")


def even(samples=200_000):
    """Print the table of functions of 32 units between 8 inputs and 4 outputs, without biases before them."""
    print("| function | inputs' mean | covariance | variances | `beyond` | covariance, `moment_matching` |")
    print("| --- | --- | --- | --- | --- | --- |")
    for name, function in FUNCTIONS.items():
        torch.manual_seed(0)
        first, last = torch.nn.Linear(8, 32, bias=False).double(), torch.nn.Linear(32, 4).double()

        def net(x, first=first, last=last, function=function):
            return last(function(first(x)))

        for mean in (0.0, 1.0):
            x = torch.full((1, 8), mean, dtype=torch.float64)
            law = sr.DiagonalGaussian(x, torch.ones_like(x))
            drawn, centre = Samples.of(net, x, 1.0, samples)
            low_rank = sr.propagate(net, law, "low_rank")
            full = sr.propagate(net, law, "moment_matching")
            _, covariance, variances = cells(drawn, low_rank, centre)
            row = covariance, variances, f"{low_rank.beyond.item():.2f}", cells(drawn, full, centre)[1]
            print(f"| {name} | {mean:g} | {' | '.join(row)} |")


if __name__ == "__main__":
    torch.set_grad_enabled(False)
    if sys.argv[1] == "even":
        even()
    else:
        width, samples = int(sys.argv[2]), int(sys.argv[3])
        resnet(width, samples, [float(sigma) for sigma in sys.argv[4:]] or [0.02, 0.1, 0.3])
