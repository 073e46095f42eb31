"""Rules that are subtly wrong, each in a way that one check of the conformance kit is there for.

They walk nets of Linear and ReLU by themselves. `Gated` is the sound rule that most of them spoil: the
mean m Phi(h) and the covariance D S D with D = Phi(h), h = mean / std, which no published rule uses but which
keeps everything that every rule must keep.
"""

import copy
from dataclasses import dataclass

import numpy as np
import torch
from torch import nn
from torch.special import ndtr

import sdp_ref as sr
from sdp_ref.activations import activation
from sdp_ref.graph.ops import Multiply
from sdp_ref.laws import Edgeworth, unchecked
from sdp_ref.rules import MarginalMomentMatching
from sdp_ref.rules.edgeworth import EdgeworthRule
from sdp_ref.rules.marginal import linear_product


def normal_pdf(h):
    return torch.exp(-h * h / 2) / (2 * torch.pi) ** 0.5


def ratio(mean, std):
    """mean / std, with its limits at a point mass."""
    return torch.where(std > 0, mean / std.clamp(min=1e-300), torch.where(mean >= 0, torch.inf, -torch.inf))


class Gated:
    """Sound."""

    name = "gated"
    graph = False

    def propagate(self, net, x):
        with torch.set_grad_enabled(self.graph and torch.is_grad_enabled()):
            mean, covariance = x.mean.double(), x.covariance.double()
            if not isinstance(net, nn.Sequential | list):
                raise sr.UnsupportedError(self.name, type(net).__name__)
            for module in net:
                if isinstance(module, nn.Linear):
                    w, b = module.weight.double(), module.bias.double()
                    mean, covariance = self.linear(net, w, b, mean, covariance)
                elif isinstance(module, nn.ReLU):
                    mean, covariance = self.relu(mean, covariance)
                else:
                    raise sr.UnsupportedError(self.name, type(module).__name__)
            return self.result(mean, covariance, x)

    def linear(self, net, w, b, mean, covariance):
        return mean @ w.T + b, w @ covariance @ w.T

    def std(self, covariance):
        v = covariance.diagonal(dim1=1, dim2=2)
        return torch.where(v > 0, v.clamp(min=1e-300).sqrt(), 0.0)

    def gate(self, mean, std):
        return ndtr(ratio(mean, std))

    def relu(self, mean, covariance):
        d = self.gate(mean, self.std(covariance))
        return mean * d, self.outer(d, covariance)

    def outer(self, d, covariance):
        return d.unsqueeze(2) * covariance * d.unsqueeze(1)

    def result(self, mean, covariance, x):
        return self.law(mean.to(x.mean.dtype), covariance.to(x.mean.dtype))

    def law(self, mean, covariance):
        return sr.laws.unchecked(sr.Gaussian, mean, covariance)


class Matched(Gated):
    """Sound: exact moments of each layer."""

    name = "matched"

    def relu(self, mean, covariance):
        return activation("relu").mean_covariance(mean, covariance)


class Marginal(Gated):
    """Sound: five-point Gauss-Hermite quadrature of each unit, correlations dropped."""

    name = "marginal"

    def relu(self, mean, covariance):
        nodes, weights = np.polynomial.hermite_e.hermegauss(5)
        nodes = torch.from_numpy(nodes)
        weights = torch.from_numpy(weights)
        weights = weights / weights.sum()
        values = (mean.unsqueeze(-1) + self.std(covariance).unsqueeze(-1) * nodes).clamp(min=0)
        first = values @ weights
        return first, torch.diag_embed((values - first.unsqueeze(-1)).square() @ weights)

    def propagate(self, net, x):
        return super().propagate(net, sr.DiagonalGaussian(x.mean, x.variance))

    def linear(self, net, w, b, mean, covariance):
        return mean @ w.T + b, torch.diag_embed(covariance.diagonal(dim1=1, dim2=2) @ w.square().T)

    def law(self, mean, covariance):
        variance = covariance.diagonal(dim1=1, dim2=2)
        return sr.laws.unchecked(sr.DiagonalGaussian, mean, variance)


class Sampled:
    """Sound: Monte Carlo."""

    name = "sampled"

    def __init__(self, samples=100, seed=0):
        self.samples, self.seed = samples, seed
        self.generator = torch.Generator().manual_seed(seed)

    def propagate(self, net, x):
        if any(not isinstance(m, nn.Linear | nn.ReLU | nn.Sequential) for m in net.modules()):
            raise sr.UnsupportedError(self.name, "other nets")
        with torch.no_grad():
            points = x.mean.unsqueeze(1) + (self.draws(x) @ x.factor().mT).to(x.mean.dtype)
            values = net(points.flatten(0, 1)).unflatten(0, (x.batch, -1)).double()
            mean = values.mean(1)
            centred = values - mean.unsqueeze(1)
            covariance = centred.mT @ centred / (values.shape[1] - 1)
            return sr.laws.unchecked(sr.Gaussian, mean.to(x.mean.dtype), covariance.to(x.mean.dtype))

    def draws(self, x):
        generator = torch.Generator().manual_seed(self.seed)
        return torch.randn(1, self.samples, x.dimension, generator=generator, dtype=torch.float64)


MUTANTS = {}
"""By the name of the check that alone must catch it."""


def caught_by(check):
    def register(kind):
        kind.name = f"mutant-{check}"
        MUTANTS[check] = kind
        return kind

    return register


@caught_by("several")
class Unsquared(MarginalMomentMatching):
    """Leaves out Var X Var Y of a product."""


Unsquared.handles(Multiply)(linear_product)


@dataclass(frozen=True, eq=False)
class Unweighted(sr.Mixture):
    """Draws each component as often as any other."""

    def sample(self, samples, generator=None):
        even = torch.full_like(self.weights, 1 / self.pieces)
        return sr.Mixture(even, self.components).sample(samples, generator)


@dataclass(frozen=True, eq=False)
class Unnormalised(sr.Mixture):
    """Its density is that of the components without their weights."""

    def log_prob(self, value):
        even = torch.ones_like(self.weights)
        return unchecked(sr.Mixture, even, self.components).log_prob(value)


@caught_by("law")
class Mixed(Gated):
    """Gives mixtures whose draws leave their weights out."""

    family = Unweighted

    def result(self, mean, covariance, x):
        law = super().result(mean, covariance, x)
        weights = law.mean.new_tensor([[0.25, 0.75]]).expand(law.batch, 2)
        shares = law.mean.new_tensor([2.5, 0.5]).repeat(law.batch)  # whose mean is 1
        twice = (v.repeat_interleave(2, 0) for v in (law.mean, law.covariance))
        mean, covariance = twice
        return unchecked(
            self.family, weights, unchecked(sr.Gaussian, mean, shares[:, None, None] * covariance)
        )


class MixedDensity(Mixed):
    name = "mixed-density"
    family = Unnormalised


class SoundMixture(Mixed):
    """Sound."""

    name = "sound-mixture"
    family = sr.Mixture


@caught_by("affine")
class FastPathWithoutBias(Gated):
    """Nets without activations take a short way, which forgets the bias."""

    def linear(self, net, w, b, mean, covariance):
        b = b if any(isinstance(m, nn.ReLU) for m in net) else 0 * b
        return super().linear(net, w, b, mean, covariance)


@caught_by("small-noise")
class ShrunkCorrelations(Gated):
    """Correlations are shrunk by 0.1 % after an activation, to be on the safe side of singular."""

    def relu(self, mean, covariance):
        mean, covariance = super().relu(mean, covariance)
        diagonal = torch.diag_embed(covariance.diagonal(dim1=1, dim2=2))
        return mean, 0.999 * covariance + 0.001 * diagonal


@caught_by("zero-variance")
class UnguardedCorrelation(Gated):
    """Goes through correlations, 0 / 0 for a point mass."""

    def outer(self, d, covariance):
        s = self.std(covariance)
        ss = s.unsqueeze(2) * s.unsqueeze(1)
        return super().outer(d, covariance / ss * ss)


@caught_by("scale")
class AbsoluteEpsilon(Gated):
    """1e-8 beside the standard deviation guards against a division by 0."""

    def gate(self, mean, std):
        return torch.where(std == 0, (mean > 0).double(), ndtr(mean / (std + 1e-8)))


@caught_by("permutation")
class FirstUnitApart(Gated):
    """An index starts at 1: the first unit of a layer is linearised."""

    def relu(self, mean, covariance):
        d = self.gate(mean, self.std(covariance))
        d = torch.cat([(mean[:, :1] > 0).double(), d[:, 1:]], 1)
        return mean * d, self.outer(d, covariance)


@caught_by("batch")
class BatchVariance(Gated):
    """Variances are averaged over the batch in the gate."""

    def gate(self, mean, std):
        return super().gate(mean, std.square().mean(0, keepdim=True).sqrt())


@caught_by("determinism")
class RunningGenerator(Sampled):
    """Keeps its generator from call to call."""

    def draws(self, x):
        return torch.randn(1, self.samples, x.dimension, generator=self.generator, dtype=torch.float64)


@caught_by("prepare")
class StaleFunction(Gated):
    """What `prepare` gives answers every law as the first."""

    def prepare(self, net):
        kept = []

        def predict(x):
            kept.append(self.propagate(net, x))
            return kept[0]

        return predict


@caught_by("threads")
class OtherSums(Gated):
    """Its covariance is half a per cent off on any other number of threads than it was made on."""

    def __init__(self):
        self.threads = torch.get_num_threads()

    def linear(self, net, w, b, mean, covariance):
        mean, covariance = super().linear(net, w, b, mean, covariance)
        return mean, covariance if torch.get_num_threads() == self.threads else 1.005 * covariance


@caught_by("global-rng")
class GlobalGenerator(Sampled):
    """Draws from torch's global generator."""

    def draws(self, x):
        return torch.randn(1, self.samples, x.dimension, dtype=torch.float64)


@caught_by("dtype")
class AlwaysDouble(Gated):
    """Does not go back to the dtype of the input."""

    def result(self, mean, covariance, x):
        return self.law(mean, covariance)


@caught_by("precision")
class CoarseInSingle(Gated):
    """Covariances are 5 % off where the input is in float32."""

    def result(self, mean, covariance, x):
        return super().result(mean, covariance * (1.05 if x.mean.dtype == torch.float32 else 1.0), x)


@caught_by("symmetry")
class RoundedColumns(Gated):
    """The gates of the columns have been through float32."""

    def outer(self, d, covariance):
        return d.unsqueeze(2) * covariance * d.float().double().unsqueeze(1)


@caught_by("positive-semidefinite")
class PairByPair(Gated):
    """Between two units the smaller gate stands for the probability that both are active."""

    def outer(self, d, covariance):
        both = torch.minimum(d.unsqueeze(2), d.unsqueeze(1))
        own = super().outer(d, covariance).diagonal(dim1=1, dim2=2)
        off = both * covariance
        return off - torch.diag_embed(off.diagonal(dim1=1, dim2=2)) + torch.diag_embed(own)


@caught_by("diagonal")
class ExactMeanOnly(Gated):
    """The exact mean beside the covariance of the gates."""

    def relu(self, mean, covariance):
        s = self.std(covariance)
        h = ratio(mean, s)
        return mean * ndtr(h) + s * normal_pdf(h), super().relu(mean, covariance)[1]


@caught_by("mean-shift")
class IndependentNearTheKink(Matched):
    """Units within ten standard deviations of the kink are taken for independent."""

    def relu(self, mean, covariance):
        h = ratio(mean, self.std(covariance))
        sure = (h.abs() > 10).double()
        mean, covariance = super().relu(mean, covariance)
        eye = torch.eye(mean.shape[1], dtype=torch.float64)
        return mean, covariance * torch.maximum(eye, sure.unsqueeze(2) * sure.unsqueeze(1))


@caught_by("far-tails")
class NaiveMillsRatio(Gated):
    """phi(h) / Phi(h) is 0 / 0 below -38; units far beyond are taken as certain."""

    def gate(self, mean, std):
        h = ratio(mean, std)
        inside = h.clamp(-100, 100)
        mills = normal_pdf(inside) / ndtr(inside)
        gate = torch.where(h < -10, normal_pdf(inside) / mills, ndtr(inside))
        return torch.where(h.abs() > 100, (h > 0).double(), gate)


@caught_by("perfect-correlation")
class ConditionalVariance(Gated):
    """Divides by sqrt(1 - rho^2)."""

    def outer(self, d, covariance):
        s = self.std(covariance).clamp(min=1e-300)
        rho = covariance / s.unsqueeze(2) / s.unsqueeze(1)
        rest = (1 - rho.square()).clamp(min=0).sqrt()
        eye = torch.eye(d.shape[1], dtype=torch.bool)
        off = covariance * rest / rest
        return super().outer(d, torch.where(eye, covariance, off))


@caught_by("rank-deficiency")
class ClippedCholesky(Gated):
    """Needs Cholesky factors, and clips correlations for them: that helps two units only."""

    def outer(self, d, covariance):
        s = self.std(covariance)
        ss = s.unsqueeze(2) * s.unsqueeze(1)
        eye = torch.eye(d.shape[1], dtype=torch.float64)
        rho = torch.where(ss > 0, covariance / ss.clamp(min=1e-300), 0.0).clamp(-1 + 1e-12, 1 - 1e-12)
        rho = torch.where(eye.bool(), 1.0, rho)
        _, info = torch.linalg.cholesky_ex(rho)
        out = super().outer(d, covariance)
        return torch.where((info > 0)[:, None, None], torch.nan, out)


@caught_by("moments")
class FirstTerm(Matched):
    """Claims moments, and takes the first term of the series for covariances."""

    claims = ("moments",)

    def relu(self, mean, covariance):
        d = ndtr(ratio(mean, self.std(covariance)))
        mean, exact = super().relu(mean, covariance)
        eye = torch.eye(d.shape[1], dtype=torch.bool)
        return mean, torch.where(eye, exact, self.outer(d, covariance))


@caught_by("marginal-moments")
class FivePoints(Marginal):
    """Claims exact moments of a unit, from five quadrature points."""

    claims = frozenset({"marginal moments"})


@caught_by("second-order")
class WholeTrace(Gated):
    """Claims a mean of second order, and has forgotten the half: f(m) + tr(H S) for a tanh."""

    claims = ("second order",)

    def propagate(self, net, x):
        self.smooth = any(isinstance(module, nn.Tanh) for module in net.modules())
        if not isinstance(net, nn.Sequential):
            return super().propagate(net, x)
        return super().propagate([nn.ReLU() if isinstance(m, nn.Tanh) else m for m in net], x)

    def relu(self, mean, covariance):
        if not self.smooth:
            return super().relu(mean, covariance)
        value, variance = mean.tanh(), covariance.diagonal(dim1=1, dim2=2)
        slope = 1 - value.square()
        return value - 2 * value * slope * variance, self.outer(slope, covariance)


@caught_by("order")
class HalfOrder(WholeTrace):
    """Claims a mean of order 4 on smooth nets; that of f(m) + tr(H S) has order 2."""

    claims = ()
    orders = {"smooth mean": 4}  # noqa: RUF012


@caught_by("class")
class TwoThirds(EdgeworthRule):
    """Leaves out one of the three permutations of the skewness that curvature adds."""

    def finish(self, law, x):
        gaussian = super().finish(law, x)
        return unchecked(Edgeworth, gaussian.mean, gaussian.covariance, gaussian.third * 2 / 3)


@caught_by("sampling-error")
class CappedSamples(Sampled):
    """Never takes more than 16384 samples, to keep memory flat, and does not say so."""

    def draws(self, x):
        few = copy.copy(self)
        few.samples = min(self.samples, 2**14)
        return Sampled.draws(few, x)


@caught_by("gradients")
class DetachedCovariance(Gated):
    """The covariance leaves the graph."""

    graph = True

    def law(self, mean, covariance):
        return super().law(mean, covariance.detach())


@caught_by("inputs-kept")
class AsksForGradients(Gated):
    """Sets requires_grad on the tensors of the input."""

    def propagate(self, net, x):
        if x.mean.is_leaf:
            x.mean.requires_grad_()
        return super().propagate(net, x)


@caught_by("net-kept")
class LeavesEvaluation(Gated):
    """Calls net.eval() and leaves it at that."""

    def propagate(self, net, x):
        net.eval()
        return super().propagate(net, x)


SOUND = (Gated, Matched, Marginal, Sampled, SoundMixture)


class SupportsNothing:
    name = "nothing"
    claims = ("the moon",)
    known_faults = {"afine": "a slip"}  # noqa: RUF012

    def propagate(self, net, x):
        raise sr.UnsupportedError(self.name, "anything")
