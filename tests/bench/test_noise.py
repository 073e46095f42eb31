"""Families of noise: their laws, their keys, and which rules take them."""

import dataclasses
import pickle

import pytest
import torch

import sdp_ref
from sdp_bench.bench import noise
from sdp_bench.bench.errors import UserError
from sdp_bench.bench.experiments import experiments
from sdp_bench.bench.experiments.laws import oracle_key
from sdp_bench.bench.identity import OracleKey
from sdp_bench.bench.nets.architectures import Architecture
from sdp_bench.bench.nets.fully_connected import TrainedNet, get_nets
from sdp_bench.bench.nets.recipes import Recipe
from sdp_bench.bench.noise import CAUCHY, GAUSSIAN
from sdp_bench.bench.settings import Size
from tests.bench.conftest import TINY, make_plan

FAMILIES = [GAUSSIAN, CAUCHY, noise.stable(1.5), noise.stable(2)]


@pytest.fixture
def net() -> TrainedNet:
    architecture = Architecture(1, "relu", 8)
    return next(iter(get_nets(architecture, Recipe(epochs=100), [0])))


def test_scales_of_the_laws():
    locations = torch.tensor([[1.0, 2.0], [3.0, 4.0]])
    for family in FAMILIES:
        law = family.law(locations, 0.1)
        assert torch.equal(law.location, locations)
        assert law.location.dtype == torch.float32
    assert torch.equal(GAUSSIAN.law(locations, 0.1).variance, torch.full((2, 2), 0.1**2))
    assert torch.equal(CAUCHY.law(locations, 0.1).scale, torch.full((2, 2), 0.1))
    assert noise.stable(1.5).law(locations, 0.1).alpha == 1.5


def test_labels_tell_families_and_scales_apart_for_ever():
    """Keys, and so seeds and stored results, rest on these words; a change must be a decision."""
    assert GAUSSIAN.label(0.1) == "gaussian:sigma=0.1"
    assert CAUCHY.label(0.1) == "cauchy:gamma=0.1"
    assert noise.stable(1.5).label(1.0) == "stable:alpha=1.5,gamma=1.0"
    assert len({family.label(scale) for family in FAMILIES for scale in (0.1, 1.0)}) == 8


def test_keys_of_gaussian_subjects_are_what_they_were(net):
    """Stored results rest on these numbers; a change of them must be a decision."""
    x = torch.tensor([5.1, 3.5, 1.4, 0.2])
    key = dataclasses.replace(oracle_key(net, x, GAUSSIAN.label(0.1), "mc", 2048), net="net")
    assert key == OracleKey("net", "2778a119ca7baf49", "gaussian:sigma=0.1", "mc", 2048)
    assert key.hex == "fee29b9ae3ffe5e2"
    heavy = dataclasses.replace(oracle_key(net, x, CAUCHY.label(0.1), "mc", 2048), net="net")
    assert heavy == dataclasses.replace(key, noise="cauchy:gamma=0.1")
    assert heavy.hex == "ce7f0cf60de943ae"


def test_families_are_the_same_in_another_process():
    for family in FAMILIES[:2]:
        assert pickle.loads(pickle.dumps(family)) == family
    assert pickle.loads(pickle.dumps(noise.stable(1.5))).law(torch.ones(1, 1), 2.0).alpha == 1.5
    assert noise.stable(1.5) == noise.stable(1.5)


def test_suites_with_other_noise_have_groups_and_oracles_of_their_own():
    settings = TINY.but(sigmas=(1.0,), rules=("sdp",), sizes=dict.fromkeys(experiments(), Size(1, 1)))
    plan = make_plan(settings, ("iris-tv", "iris-std", "iris-cauchy"))
    assert [group.noise for group in plan.groups] == [GAUSSIAN, CAUCHY]
    gaussian, cauchy = plan.groups
    assert isinstance(gaussian.law, sdp_ref.DiagonalGaussian)
    assert isinstance(cauchy.law, sdp_ref.Cauchy)
    assert cauchy.title.endswith("Cauchy noise 1")
    assert gaussian.title.endswith("sigma 1")
    assert gaussian.subjects[0].row == cauchy.subjects[0].row
    assert gaussian.subjects[0].key != cauchy.subjects[0].key


def test_rules_without_a_formula_for_the_noise_are_left_out_and_named():
    settings = TINY.but(rules=("sdp", "dvia", "oracle_moments"))
    plan = make_plan(settings, ("iris-tv", "iris-cauchy"))
    assert plan.experiments["iris-tv"].rules == ("sdp", "dvia", "oracle_moments")
    assert plan.experiments["iris-cauchy"].rules == ("sdp",)
    reasons = {each.rule: each.reason for each in plan.left_out if each.where == "Cauchy noise"}
    assert "'dvia' does not support Cauchy input" in reasons["dvia"]
    assert "moments are infinite" in reasons["oracle_moments"]
    with pytest.raises(UserError, match="no rule is left: rule 'dvia' does not support Cauchy input"):
        make_plan(TINY.but(rules=("dvia",)), ("iris-cauchy",))
