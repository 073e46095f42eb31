import math

import pytest

from sdp_bench.reports.style import labels
from sdp_bench.reports.style.names import NetKind, RuleTraits
from sdp_ref.rules import Traits


@pytest.mark.parametrize(
    ("activation", "depth", "label"),
    [
        ("relu", 1, "1 ReLU layer"),
        ("leaky_relu", 4, "4 Leaky-ReLU layers"),
        ("resnet18", 18, "ResNet-18"),
        ("own:theirs", 3, "theirs"),
    ],
)
def test_a_kind_of_nets_has_a_name_for_people(activation, depth, label):
    assert NetKind(activation, depth).label == label


def test_an_image_classifier_is_known_by_its_architecture():
    assert NetKind("cnn3", 3).is_classifier
    assert not NetKind("relu", 3).is_classifier


@pytest.mark.parametrize(
    ("rule", "label"),
    [
        ("sdp", "SDP"),
        ("monte_carlo:samples=100", "MC estimate k=100"),
        ("monte_carlo", "MC estimate k=100"),
        ("monte_carlo:samples=100,sampler=sobol", "MC estimate k=100, Sobol"),
        ("unscented:alpha=0.5,beta=2", "unscented (alpha=0.5, beta=2)"),
        ("my_rule", "my_rule"),
        ("my_rule:samples=5", "my_rule (samples=5)"),
    ],
)
def test_rule_labels(rule, label):
    assert RuleTraits().label(rule) == label


@pytest.mark.parametrize(
    ("rule", "action"),
    [
        ("monte_carlo:samples=1000", "draw 1,000 samples"),
        ("monte_carlo:samples=1000,sampler=antithetic", "draw 1,000 samples"),
        ("monte_carlo:samples=1000,sampler=sobol", "draw 1,024 Sobol samples (measured with 1,000)"),
        ("monte_carlo:sampler=sobol", "draw 128 Sobol samples (measured with 100)"),
        ("monte_carlo:samples=64,sampler=sobol", "draw 64 Sobol samples"),
        ("monte_carlo:samples=65,sampler=sobol", "draw 128 Sobol samples (measured with 65)"),
        ("monte_carlo:samples=2,sampler=sobol", "draw 2 Sobol samples"),
        (
            "control_variate:samples=256,sampler=sobol",
            "use {label} (control_variate:samples=256,sampler=sobol)",
        ),
        (
            "control_variate:samples=300,sampler=sobol",
            "use {label} (control_variate:samples=300,sampler=sobol) with 512 samples",
        ),
        ("dvia", "use DVIA"),
    ],
)
def test_advice_takes_a_power_of_two_for_sobol_samples(rule, action):
    assert RuleTraits().action(rule) == action.format(label=RuleTraits().label(rule))


def test_sampling_rules_come_last_by_size():
    rules = ["monte_carlo:samples=100", "zeta", "monte_carlo:samples=5", "marginal_sdp", "sdp", "sdp"]
    ordered = ["sdp", "marginal_sdp", "zeta", "monte_carlo:samples=5", "monte_carlo:samples=100"]
    assert RuleTraits().in_order(rules) == ordered


def test_what_is_stored_of_a_rule_counts_and_not_its_name():
    traits = RuleTraits({
        "monte_carlo:samples=5": Traits("ours", rank=1),
        "mine": Traits("Mine", sampling=0, rank=90),
        "again": Traits("Again", reference=True),
    })  # fmt: skip
    assert not traits.is_sampling("monte_carlo:samples=5")
    assert traits.is_sampling("mine")
    assert traits.is_reference("again")
    assert traits.label("mine") == "Mine"
    ordered = ["monte_carlo:samples=5", "sdp", "mine", "again"]
    assert traits.in_order(["sdp", "again", "mine", "monte_carlo:samples=5"]) == ordered


def test_rules_with_equal_names_are_distinguished_by_their_specs():
    traits = RuleTraits({"mine": Traits("Mine"), "yours:a=1": Traits("Mine"), "sdp": Traits("SDP")})
    assert [traits.label(rule) for rule in traits.stored] == ["Mine (mine)", "Mine (yours:a=1)", "SDP"]


@pytest.mark.parametrize(
    ("x", "decimals", "text"),
    [
        (0.97914, 4, "0.9791"),
        (-0.25, 2, "−0.25"),
        (7.7325, None, "7.73"),
        (0.0126, None, "0.0126"),
        (21.04, None, "21.0"),
        (123.4, None, "123"),
        (4321.0, None, "4321"),
        (999.7, None, "1000"),
        (99.96, None, "100"),
        (4.321e6, None, "4.32e6"),
        (4.321e-5, None, "4.32e−5"),
        (0.0, None, "0"),
        (math.nan, None, "–"),
        (math.inf, 4, "∞"),
    ],
)
def test_numbers(x, decimals, text):
    assert labels.number(x, decimals) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.00123, "1.23 ms"),
        (12.34, "12.3 s"),
        (201.4, "3 min 21 s"),
        (120, "2 min"),
        (7384, "2 h 3 min"),
        (3599.7, "1 h 0 min"),
    ],
)
def test_durations(seconds, text):
    assert labels.duration(seconds).replace("\u00a0", " ") == text


def test_one_layer_is_singular():
    assert labels.layers([1.0, 1.0]) == "1 layer"
    assert labels.layers([4.0, 1.0, 2.0]) == "1, 2, 4 layers"
