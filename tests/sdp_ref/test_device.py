"""All that is here runs where its input is: on a device it gives the CPU's numbers.

The device is a stand-in (:class:`tests.stand_in.StandIn`), which refuses what an accelerator would refuse.
"""

import copy
import warnings
from dataclasses import fields

import pytest
import torch
from torch import distributions as td
from torch import nn

import sdp_ref as sr
from sdp_ref import laws, losses
from sdp_ref.activations import ACTIVATIONS, activation, activation_of
from sdp_ref.errors import ReplacedLawWarning
from sdp_ref.laws import Law, Shape
from sdp_ref.laws.foreign import SampledLaw, TorchLaw
from sdp_ref.rules import rules
from tests.stand_in import StandIn

DOUBLE = {"dtype": torch.float64}
ROUNDING = 1e-13
"""Relative: of nets with attention or a recurrence, for which the CPU has kernels of its own. All else is
equal bit for bit."""


@pytest.fixture(autouse=True)
def _replaced_laws():
    """That rules take other laws than they are given is said elsewhere."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ReplacedLawWarning)
        yield


@pytest.fixture
def stand_in():
    with StandIn() as entered:
        yield entered


class Attentive(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.head = nn.Linear(3, 4), nn.Linear(4, 2)
        self.block = nn.TransformerEncoderLayer(4, 2, 8, dropout=0.0, activation="gelu", batch_first=True)

    def forward(self, x):
        return self.head(self.block(self.embed(x.reshape(-1, 2, 3))).mean(1))


class Functional(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.last, self.norm = nn.Linear(4, 5), nn.Linear(5, 2), nn.LayerNorm(5)

    def forward(self, x):
        hidden = self.norm(torch.sigmoid(self.first(x)) + 1)
        return torch.cat([self.last(hidden) * hidden.softmax(1)[:, :2], hidden[:, :1].exp()], 1)


class Recurrent(nn.Module):
    def __init__(self):
        super().__init__()
        self.cell, self.head = nn.LSTM(2, 3, batch_first=True), nn.Linear(3, 2)

    def forward(self, x):
        return self.head(self.cell(x.reshape(-1, 2, 2))[0][:, -1])


def plain(name):
    return lambda: nn.Sequential(nn.Linear(4, 6), activation(name).build(), nn.Linear(6, 6), nn.Linear(6, 3))


def convolved():
    features = (
        nn.Conv2d(1, 3, 3, padding=1),
        nn.BatchNorm2d(3),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(3, 2, 2),
    )
    return nn.Sequential(*features, nn.Tanh(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(2, 3))


NETS = {
    "relu": (plain("relu"), (4,)),
    "tanh": (plain("tanh"), (4,)),
    "convolved": (convolved, (1, 4, 4)),
    "functional": (Functional, (4,)),
    "attentive": (Attentive, (6,)),
    "recurrent": (Recurrent, (4,)),
}
OTHER_KERNELS = ("attentive", "recurrent")


def net_of(name):
    build, shape = NETS[name]
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return build().double().eval(), shape


class Sampled:
    def __init__(self, location):
        self.mean, self.variance = location, torch.ones_like(location)

    def sample(self, samples, generator):
        return self.mean + torch.randn((samples, *self.mean.shape), generator=generator, **DOUBLE)

    def log_prob(self, value):
        return -(value - self.mean).square().flatten(value.ndim - self.mean.ndim + 1).sum(-1)


def inputs(shape):
    generator = torch.Generator().manual_seed(1)
    location = torch.randn(2, *shape, generator=generator, **DOUBLE)
    return location, 0.05 * torch.rand(2, *shape, generator=generator, **DOUBLE) + 0.01


def covariance_of(shape):
    n = torch.Size(shape).numel()
    root = 0.1 * torch.randn(2, n, n, generator=torch.Generator().manual_seed(2), **DOUBLE)
    return root @ root.mT + 0.01 * torch.eye(n, **DOUBLE)


WEIGHTS = torch.tensor([[0.3, 0.7], [0.6, 0.4]], **DOUBLE)

ENTERING = {
    "diagonal": lambda m, s: sr.DiagonalGaussian(m, s),
    "gaussian": lambda m, s: sr.Gaussian(m, covariance_of(m.shape[1:])),
    "cauchy": sr.Cauchy,
    "stable": lambda m, s: sr.SymmetricStable(m, s, 1.5),
    "laplace": lambda m, s: sr.LocationScale(m, s, Shape("laplace")),
    "mixture": lambda m, s: sr.Mixture.of(
        WEIGHTS, [sr.DiagonalGaussian(m, s), sr.DiagonalGaussian(m + 0.1, 2 * s)]
    ),
}
"""Laws of inputs of any shape."""

LAWS = {
    **ENTERING,
    "singular": lambda m, s: sr.Gaussian(m, torch.ones(2, 3, 3, **DOUBLE)),
    "compressed": lambda m, s: laws.CompressedGaussian(m, covariance_of((3,)), *torch.zeros(2, 2, **DOUBLE)),
    "skewed": lambda m, s: laws.Edgeworth(m, covariance_of((3,)), torch.ones(2, 3, 3, 3, **DOUBLE)),
    "uniform": lambda m, s: sr.LocationScale(m, s, Shape("uniform")),
    "student_t": lambda m, s: sr.LocationScale(m, s, Shape("student_t", 3.0)),
    "triangular": lambda m, s: sr.LocationScale(m, s, Shape("triangular")),
    "split normal": lambda m, s: sr.SplitNormal(m, s, 2 * s),
    "gaussian mixture": lambda m, s: sr.Mixture.of(
        WEIGHTS, [sr.Gaussian(m, covariance_of((3,))), sr.DiagonalGaussian(m, s)]
    ),
    "empirical": lambda m, s: sr.Empirical(m.unsqueeze(1) + torch.arange(4.0, **DOUBLE)[:, None]),
    "weighted": lambda m, s: sr.Empirical(m.unsqueeze(1) + torch.arange(2.0, **DOUBLE)[:, None], WEIGHTS),
    "quantiles": lambda m, s: sr.Quantiles(
        torch.tensor([0.1, 0.5, 0.9], **DOUBLE), m.unsqueeze(1) + torch.arange(3.0, **DOUBLE)[:, None]
    ),
    "piecewise": lambda m, s: sr.propagate(
        nn.Sequential(nn.ReLU()).double(), sr.DiagonalGaussian(m, s), "exact"
    ),
    "gumbel": lambda m, s: sr.law_of(td.Independent(td.Gumbel(m, s), 1)),
    "dirichlet": lambda m, s: sr.law_of(td.Dirichlet(s)),
    "someone's": lambda m, s: sr.law_of(Sampled(m)),
    "mixture of gumbels": lambda m, s: sr.Mixture(
        torch.ones(2, 1, **DOUBLE), sr.law_of(td.Independent(td.Gumbel(m, s), 1))
    ),
}


def draws(law, **given):
    return law.sample(5, torch.Generator().manual_seed(3), **given)


ASKED = {
    **{name: lambda law, x, name=name: getattr(law, name) for name in ("location", "mean", "covariance")},
    "variance": lambda law, x: law.variance,
    "draws": lambda law, x: draws(law),
    "draws of rows put together": lambda law, x: draws(laws.joined([law[1], law[0]])),
    "global draws": lambda law, x: law.sample(5),
    "density": lambda law, x: law.log_prob(x),
    "survival": lambda law, x: law.survival(x),
    "torch's density": lambda law, x: law.to_torch().log_prob(law.location[None].flatten(2)),
    "factor": lambda law, x: law.factor(),
    "pushed": lambda law, x: law[0].push()(
        torch.linspace(0.1, 0.9, 6, **DOUBLE).unsqueeze(1).expand(-1, law.variates)
    ),
    "soundness": lambda law, x: law.unsound(),
    "narrower": lambda law, x: law.to(torch.float32).location,
    "built again": lambda law, x: type(law)(*(getattr(law, f.name) for f in fields(law))).location,
}


def families(kind=Law):
    """Laws of the package, without the bases of several."""
    for each in kind.__subclasses__():
        yield from families(each)
        if each.__module__.startswith("sdp_ref.laws.") and each.__name__ not in ("ForeignLaw", "_Components"):
            yield each


def attempted(function, *arguments):
    """What a function gives, and what it raised."""
    torch.manual_seed(0)
    try:
        return function(*arguments), None
    except Exception as error:
        return None, error


def test_every_family_of_laws_is_tested():
    location, scale = inputs((3,))
    made = {type(make(location, scale)) for make in LAWS.values()}
    assert made == set(families()) >= {TorchLaw, SampledLaw}


@pytest.mark.parametrize("name", LAWS)
def test_a_law_has_the_same_moments_on_a_device_as_on_the_cpu(name, stand_in):
    law = LAWS[name](*inputs((3,)))
    x = torch.rand(4, 2, 3, generator=torch.Generator().manual_seed(4), **DOUBLE)
    for asked in ASKED.values():
        expected, refusal = attempted(asked, law, x)
        found, other = attempted(asked, law.to(stand_in.device), x.to(stand_in.device))
        assert (type(other), str(other)) == (type(refusal), str(refusal))
        if isinstance(expected, torch.Tensor):
            assert found.device == stand_in.device
            assert torch.equal(found.cpu(), expected)
        else:
            assert found == expected


def same(found, expected, device, tolerance):
    """All tensors of two laws are: on the device those of one, on the CPU those of the other."""
    assert type(found) is type(expected)
    for field in fields(expected):
        there, here = getattr(found, field.name), getattr(expected, field.name)
        if isinstance(here, Law):
            same(there, here, device, tolerance)
        elif isinstance(here, torch.Tensor):
            assert there.device == device, field.name
            scale = max(1.0, float(here.detach().abs().max())) if here.numel() else 1.0
            assert torch.equal(there.cpu(), here) or (there.cpu() - here).abs().max() <= tolerance * scale


def runs_on(stand_in, rule, name, law):
    net, shape = net_of(name)
    x = ENTERING[law](*inputs(shape))
    expected, refusal = attempted(sr.propagate, net, x, rule)
    there = copy.deepcopy(net).to(stand_in.device), x.to(stand_in.device)
    found, other = attempted(sr.propagate, *there, rule)
    assert (type(other), str(other)) == (type(refusal), str(refusal))
    if refusal is None:
        same(found, expected, stand_in.device, ROUNDING if name in OTHER_KERNELS else 1e-16)
        assert found.notes == expected.notes
    return refusal is None


@pytest.mark.parametrize("rule", rules())
def test_a_rule_predicts_the_same_on_a_device_as_on_the_cpu(rule, stand_in):
    took = [runs_on(stand_in, rule, name, "diagonal") for name in ("relu", "tanh")]
    assert any(took)


@pytest.mark.slow
@pytest.mark.parametrize("law", ENTERING)
@pytest.mark.parametrize("name", NETS)
@pytest.mark.parametrize("rule", rules())
def test_a_rule_gives_the_same_for_every_kind_of_net_and_noise(rule, name, law, stand_in):
    runs_on(stand_in, rule, name, law)


@pytest.mark.parametrize("name", [*OTHER_KERNELS, "convolved", "functional"])
@pytest.mark.parametrize("rule", ["sdp", "marginal_sdp"])
def test_linearising_rules_take_every_kind_of_net_to_a_device(rule, name, stand_in):
    assert runs_on(stand_in, rule, name, "stable")


QUICK = ("relu", "gelu", "tanh", "elu", "relu6", "sin", "log")


@pytest.mark.parametrize(
    "name", [name if name in QUICK else pytest.param(name, marks=pytest.mark.slow) for name in ACTIVATIONS]
)
def test_an_activation_gives_the_same_moments_and_gradients(name, stand_in):
    mean, covariance = inputs((3,))[0], covariance_of((3,))

    def moments(device):
        m = mean.to(device).requires_grad_()
        c = covariance.to(device).requires_grad_()
        given = activation_of(activation(name).build().to(device)).mean_covariance(m, c)
        return [*given, *torch.autograd.grad(given[0].sum() + given[1].sum(), (m, c))]

    (here, refusal), (there, other) = attempted(moments, "cpu"), attempted(moments, stand_in.device)
    assert (type(other), str(other)) == (type(refusal), str(refusal))
    assert (refusal is None) == (
        name not in ("sqrt", "rsqrt", "reciprocal", "log")
    )  # which no normal law has
    for a, b in zip(here or (), there or (), strict=True):
        assert b.device == stand_in.device
        assert torch.equal(b.cpu(), a)


LABELS = torch.tensor([2, 0])
LOSSES = {
    "cauchy_nll": [lambda law, m, s: losses.cauchy_nll(law, m + s)],
    "dirichlet": [lambda law, m, s: losses.dirichlet(law)],
    "dirichlet_nll": [lambda law, m, s: losses.dirichlet_nll(law, LABELS)],
    "dirichlet_probabilities": [lambda law, m, s: losses.dirichlet_probabilities(m.exp())],
    "entropy": [lambda law, m, s: losses.entropy(m.softmax(1))],
    "gaussian_jitter": [lambda law, m, s: losses.gaussian_jitter(law)],
    "gaussian_nll": [lambda law, m, s: losses.gaussian_nll(law, m + s)],
    "OrthonormalCertificates": [
        lambda law, m, s: losses.OrthonormalCertificates.fit(m.mT, 1).score(m.mT),
        lambda law, m, s: losses.OrthonormalCertificates.fit(m.mT, 1, penalty=1.0).score(m.mT),
    ],
    "pairwise_log_probabilities": [lambda law, m, s: losses.pairwise_log_probabilities(law)],
    "pairwise_loss": [lambda law, m, s: losses.pairwise_loss(law, LABELS)],
    "pairwise_probabilities": [lambda law, m, s: losses.pairwise_probabilities(law)],
    "pairwise_scores": [
        lambda law, m, s, how=how: losses.pairwise_scores(law, how)
        for how in ("mean", "geometric", "minimum")
    ],
    "pinball": [lambda law, m, s: losses.pinball(m, s, 0.1), lambda law, m, s: losses.pinball(m, s, s)],
    "pnn_nll": [lambda law, m, s: losses.pnn_nll(m, s, m + s)],
    "pnn_variance": [lambda law, m, s: losses.pnn_variance(s)],
    "sdp_pnn": [lambda law, m, s: losses.sdp_pnn(law, losses.pnn_variance(s)).variance],
    "softmax_entropy": [lambda law, m, s: losses.softmax_entropy(m)],
    "sqr_input": [
        lambda law, m, s: losses.sqr_input(m, 0.1),
        lambda law, m, s: losses.sqr_input(m, s[:, 0] * 10),
    ],
}


def test_every_loss_is_tested():
    assert set(LOSSES) == set(losses.__all__)


@pytest.mark.parametrize("law", ["diagonal", "gaussian", "cauchy", "singular"])
@pytest.mark.parametrize("name", LOSSES)
def test_a_loss_and_its_gradients_are_those_of_the_cpu(name, law, stand_in):
    taken = 0

    def worth(device, loss):
        m, s = inputs((3,))
        m = m.to(device).requires_grad_()
        s = s.to(device).requires_grad_()
        own = LAWS[law](*inputs((3,))).to(device)
        if law in ("diagonal", "cauchy"):
            own = type(own)(m, s)
        value = loss(own, m, s)
        gradients = torch.autograd.grad(value.sum(), (m, s), allow_unused=True) if value.requires_grad else ()
        return [value.detach()] + [gradient for gradient in gradients if gradient is not None]

    for loss in LOSSES[name]:
        here, there = attempted(worth, "cpu", loss), attempted(worth, stand_in.device, loss)
        assert str(there[1]) == str(here[1])
        for a, b in zip(here[0] or (), there[0] or (), strict=True):
            assert b.device == stand_in.device
            assert torch.equal(b.cpu(), a)
            taken += 1
    assert taken or law != "diagonal" or name in ("cauchy_nll", "gaussian_jitter")


@pytest.mark.parametrize("law", ["diagonal", "cauchy", "stable"])
def test_a_rule_that_looks_at_no_number_is_one_compiled_graph(law):
    net, shape = net_of("relu")
    net.requires_grad_(False)
    prepared = sr.rule("marginal_sdp").prepare(net)

    def propagated(location, scale):
        return parameters_of(prepared(ENTERING[law](location, scale)))

    expected = propagated(*inputs(shape))
    compiled = torch.compile(propagated, fullgraph=True, backend="eager")
    for found, wanted in zip(compiled(*inputs(shape)), expected, strict=True):
        assert torch.equal(found, wanted)
    location, scale = inputs(shape)
    with pytest.raises(RuntimeError, match="must be finite, and its scales and weights >= 0"):
        compiled(location, -scale)
    torch.compiler.reset()


def parameters_of(law):
    return law.location, law.variance if isinstance(law, sr.DiagonalGaussian) else law.scale
