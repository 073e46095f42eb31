from dataclasses import dataclass
from typing import ClassVar

import pytest

import sdp_ref as sr
from sdp_ref.rules import Traits, traits


def test_rules_are_listed_by_rank():
    ranks = [traits(sr.rule(name)).rank for name in sr.rules()]
    assert ranks == sorted(ranks)


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ("sdp", Traits("SDP", "#0072b2", rank=10)),
        ("marginal_sdp", Traits("marginal SDP", "#56b4e9", marginal=True, rank=50)),
        ("unscented:kappa=2.0", Traits("unscented (kappa=2.0)", "#cc79a7", rank=40)),
        ("monte_carlo:samples=7,seed=3", Traits("MC estimate k=7", sampling=7, rank=200)),
        ("monte_carlo:samples=8,sampler=sobol", Traits("MC estimate k=8, Sobol", sampling=8, rank=200)),
    ],
)
def test_a_rule_says_what_is_to_be_known_of_it(spec, expected):
    assert traits(sr.rule(spec)) == expected


@dataclass(frozen=True)
class Drawing(sr.Rule):
    name: ClassVar[str] = "drawing"
    seed: int = 0

    def prepare(self, net):
        raise NotImplementedError


class Foreign:
    name = "foreign"

    def propagate(self, net, x):
        raise NotImplementedError


class ForeignDrawing(Foreign):
    def __init__(self, seed=0):
        self.seed = seed


class ForeignDeclaring(ForeignDrawing):
    label, colour, sampling, rank = "ours", "#123456", 12, 5


def test_a_rule_of_a_user_that_has_a_seed_draws_samples():
    assert traits(Drawing()) == Traits("drawing", sampling=0)
    assert traits(Drawing(seed=3)).label == "drawing (seed=3)"
    assert traits(Foreign()) == Traits("foreign")
    assert traits(ForeignDrawing()) == Traits("foreign", sampling=0)
    assert traits(ForeignDeclaring()) == Traits("ours", "#123456", sampling=12, rank=5)
