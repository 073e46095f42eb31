from dataclasses import dataclass
from typing import ClassVar

import sdp_ref as sr
from sdp_ref.rules import Traits, traits


def test_rules_are_listed_by_rank():
    ranks = [traits(sr.rule(name)).rank for name in sr.rules()]
    assert ranks == sorted(ranks)


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
