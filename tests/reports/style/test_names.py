import dataclasses
import itertools
import math
import re

import pytest

import sdp_ref
from sdp_bench.bench.metrics.references import references
from sdp_bench.reports.style import labels
from sdp_bench.reports.style.names import LONGEST, NetKind, RuleTraits, activation_label, distinct_labels
from sdp_ref.rules import Traits
from sdp_ref.rules import traits as rule_traits


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


@pytest.mark.parametrize("activation", ["published:crepe", "own:published:crepe", "own:crepe"])
def test_a_net_of_others_is_called_by_its_name_only(activation):
    assert activation_label(activation) == "crepe"


def test_an_image_classifier_is_known_by_its_architecture():
    assert NetKind("cnn3", 3).is_classifier
    assert not NetKind("relu", 3).is_classifier


@pytest.mark.parametrize(
    ("rule", "label"),
    [
        ("sdp", "SDP"),
        ("monte_carlo:samples=100", "MC 100"),
        ("monte_carlo", "MC 100"),
        ("monte_carlo:samples=100,sampler=sobol", "MC 100, Sobol"),
        ("unscented:alpha=0.5,beta=2", "unscented (alpha=0.5, beta=2)"),
        ("my_rule", "my_rule"),
        ("", ""),
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
        ("control_variate:samples=256,sampler=sobol", "use {label}"),
        ("control_variate:samples=300,sampler=sobol", "use {label} with 512 samples"),
        ("dvia:means=regular_covariance", "use DVIA*"),
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


def test_rules_with_equal_labels_are_distinguished_by_their_specs():
    traits = RuleTraits({"mine": Traits("Mine"), "yours:a=1": Traits("Mine"), "sdp": Traits("SDP")})
    assert [traits.label(rule) for rule in traits.stored] == ["Mine (mine)", "Mine (yours, a=1)", "SDP"]


def test_a_long_label_has_the_parameters_that_distinguish_the_rule():
    rules = [
        f"dvia:fallback=linearise,max_bytes=123456789,means={means}" for means in ("regular", "propagated")
    ]
    traits = RuleTraits({rule: rule_traits(sdp_ref.rule(rule)) for rule in rules})
    assert [len(traits[rule].label) > LONGEST for rule in rules] == [True, False]
    assert traits.label(rules[0]) == "DVIA (means=regular)"


OPTIONS = {
    "alpha": 0.5,
    "base": "marginal_moment_matching:precision=0.001",
    "beta": 2.0,
    "coefficient": "jacobian",
    "columns": 16,
    "create_graph": True,
    "degree": 5,
    "fallback": "linearise",
    "k": 1024,
    "kappa": 1.5,
    "mass": 0.999,
    "max_bytes": 123456789,
    "means": "regular_covariance",
    "precision": 1e-05,
    "probes": 64,
    "regions": 100000,
    "sampler": "antithetic",
    "samples": 65536,
    "scheme": "tensor",
    "step": 1.25,
    "tolerance": 1e-05,
}
"""A value of each parameter of the built-in rules, other than the default."""


def variants():
    """Specs of all built-in rules with each set of parameters, and their traits."""
    found = {name: own.traits for name, own in references().items()}
    for name in sdp_ref.rules():
        rule = sdp_ref.rule(name)
        names = [field.name for field in dataclasses.fields(rule) if field.name != "seed"]
        for count in range(len(names) + 1):
            for chosen in itertools.combinations(names, count):
                options = ",".join(f"{key}={OPTIONS[key]}" for key in chosen)
                spec = f"{name}:{options}" if options else name
                try:
                    found[spec] = rule_traits(sdp_ref.rule(spec))
                except ValueError:  # values that do not go together
                    continue
    return found


def is_short_and_says_the_name_once(rule, label):
    name = rule.partition(":")[0]
    words = re.sub("[^a-z0-9]+", "_", label.lower())
    return 0 < len(label) <= LONGEST and words.count(name) <= 1 and rule not in label.partition(" (")[2]


def test_labels_of_all_built_in_rules_and_variants_are_short_and_distinct():
    every = variants()
    assert len(every) > 80
    traits = RuleTraits(every)
    labels_of_all = {rule: traits.label(rule) for rule in every}
    assert len(set(labels_of_all.values())) == len(every)
    for rule, label in labels_of_all.items():
        assert is_short_and_says_the_name_once(rule, label), label
        assert traits.recommended(rule).count(label) <= 1
        assert f"({rule})" not in traits.action(rule)


def test_labels_of_any_two_variants_are_short_and_distinct():
    for pair in itertools.combinations(variants().items(), 2):
        traits = RuleTraits(dict(pair))
        one, other = (traits.label(rule) for rule, _ in pair)
        assert one != other
        for (rule, _), label in zip(pair, (one, other), strict=True):
            assert is_short_and_says_the_name_once(rule, label), label


def test_labels_of_users_are_short_and_distinct():
    long = "a rule with a label that is far too long for a table or a figure"
    declared = {"one": long, "two": long, "three:a=1": long, "three:a=2": long, "four": f"{long}, too"}
    declared |= {"five": "DVIA", "dvia": "DVIA", "six": "DVIA (dvia)"}
    chosen = distinct_labels(declared)
    assert len(set(chosen.values())) == len(declared)
    assert all(0 < len(label) <= LONGEST for label in chosen.values())


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


def test_labels_are_short_unless_two_rules_would_share_one():
    labels = {rule: RuleTraits().label(rule) for rule in ("dvia:means=regular_covariance", "dvia", "sdp")}
    assert list(labels.values()) == ["DVIA*", "DVIA", "SDP"]
    both = RuleTraits(
        {"mine": Traits("DVIA*"), "dvia:means=regular_covariance": Traits("DVIA (means=regular_covariance)")}
    )
    assert both.label("mine") == "DVIA*"
    assert both.label("dvia:means=regular_covariance") == "DVIA (means=regular_covariance)"
