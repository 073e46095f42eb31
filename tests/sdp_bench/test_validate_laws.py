"""Rules that give laws of every kind go through `sdp-bench validate`."""

import pytest

from tests.sdp_bench.test_validate import call  # noqa: F401  (a fixture)

RULES = """
import torch
from torch import distributions as td

import sdp_ref as sr


class Base:
    def propagate(self, net, x):
        law = sr.propagate(net, x, "sdp")
        return self.law(law.mean, law.variance.sqrt())


class Mixed(Base):
    name = "mixed"

    def law(self, mean, deviation):
        two = td.Normal(torch.stack([mean, mean + deviation], 1), torch.stack([deviation, deviation], 1))
        weights = td.Categorical(torch.full((len(mean), 2), 0.5, dtype=mean.dtype))
        return td.MixtureSameFamily(weights, td.Independent(two, 1))


class Transformed(Base):
    name = "transformed"

    def law(self, mean, deviation):
        base = td.Independent(td.Normal(mean, deviation), 1)
        return td.TransformedDistribution(base, [td.AffineTransform(0.0, 2.0, event_dim=1)])


class Draws(Base):
    name = "draws"

    def law(self, mean, deviation):
        noise = torch.randn(200, generator=torch.Generator().manual_seed(0)).to(mean)
        return sr.Empirical(mean.unsqueeze(1) + deviation.unsqueeze(1) * noise[None, :, None])


class Quantiles(Base):
    name = "quantiles"

    def law(self, mean, deviation):
        levels = torch.linspace(0.01, 0.99, 99).to(mean)
        steps = torch.special.ndtri(levels)[None, :, None]
        return sr.Quantiles(levels, mean.unsqueeze(1) + deviation.unsqueeze(1) * steps)


class Sampler:
    def __init__(self, mean, deviation):
        self.mean, self.deviation = mean, deviation

    def sample(self, samples, generator):
        noise = torch.randn(samples, *self.mean.shape, generator=generator).to(self.mean)
        return self.mean + self.deviation * noise


class Sampled(Base):
    name = "sampled"

    def law(self, mean, deviation):
        return Sampler(mean, deviation)
"""
TINY = (
    *("--preset", "smoke", "--depth", "4", "--sigma", "1", "--samples", "20000", "--jobs", "1"),
    *("--rules", "sdp", "--database", "v.sqlite", "--output", "card", "--no-conformance"),
)
TOGETHER = "all outputs together are needed, of which a law of quantiles of single outputs says nothing"
REFUSED = {
    "Mixed": (),
    "Draws": ("log score: a density is needed: an empirical law of 200 draws has no known density",),
    "Quantiles": (f"log score, energy score: {TOGETHER}",),
    "Transformed": ("CRPS, energy score: a finite mean is needed",),
    "Sampled": ("log score: a density is needed: a law given as a Sampler has no density",),
}
FAST = ("Mixed", "Quantiles")


@pytest.mark.parametrize(
    "names", [FAST, pytest.param(tuple(REFUSED), marks=pytest.mark.slow)], ids=("some", "all")
)
def test_rules_of_every_law_are_measured_and_told_once_what_they_lack(call, tmp_path, names):  # noqa: F811
    (tmp_path / "laws.py").write_text(RULES)
    code, out, err = call(*(f"laws.py:{name}" for name in names), *TINY, "--experiment", "iris-scores")
    assert code == 0, err
    assert "failed" not in out + err
    expected = [(name, line) for name in names for line in REFUSED[name]]
    told = [line for line in err.splitlines() if line.startswith("not defined: ")]
    assert len(told) == len(expected)
    for name, line in expected:
        reason = line.split(": ", 1)[1]
        assert sum(reason in each for each in told) == 1, name
        assert out.count(reason) == 1  # of the rule's own lines
    page = (tmp_path / "card" / "index.html").read_text(encoding="utf-8")
    assert ("Not defined for the laws" in page) == bool(expected)
