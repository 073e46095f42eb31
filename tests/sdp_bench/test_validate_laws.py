"""Rules that give laws of every kind go through `sdp-bench validate`."""

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


class Quantiles(Base):
    name = "quantiles"

    def law(self, mean, deviation):
        levels = torch.linspace(0.01, 0.99, 99).to(mean)
        steps = torch.special.ndtri(levels)[None, :, None]
        return sr.Quantiles(levels, mean.unsqueeze(1) + deviation.unsqueeze(1) * steps)
"""
TINY = (
    *("--preset", "smoke", "--depth", "4", "--sigma", "1", "--samples", "20000", "--jobs", "1"),
    *("--rules", "sdp", "--database", "v.sqlite", "--output", "card", "--no-conformance"),
)
TOGETHER = "all outputs together are needed, of which a law of quantiles of single outputs says nothing"
LACKS = f"log score, energy score: {TOGETHER}"


def test_rules_of_every_law_are_measured_and_told_once_what_they_lack(call, tmp_path):  # noqa: F811
    (tmp_path / "laws.py").write_text(RULES)
    words = ("laws.py:Mixed", "laws.py:Quantiles", *TINY, "--experiment", "iris-scores")
    code, out, err = call(*words)
    assert code == 0, err
    assert "failed" not in out + err
    (told,) = [line for line in err.splitlines() if line.startswith("not defined: ")]
    reason = LACKS.split(": ", 1)[1]
    assert reason in told
    assert out.count(reason) == 1  # of the rule's own lines
    assert "Not defined for the laws" in (tmp_path / "card" / "index.html").read_text(encoding="utf-8")
