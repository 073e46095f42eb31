import sdp_ref
from sdp_bench.reports.style.drawing import legend_of, look, styles
from sdp_bench.reports.style.rules import RuleTraits
from sdp_ref.rules import Traits

OURS = {rule: RuleTraits()[rule] for rule in sdp_ref.rules()}


def test_twelve_rules_of_others_are_told_apart_by_colour_and_by_marker():
    theirs = {f"rule{number:02}": Traits(f"rule {number}", marginal=number > 5) for number in range(12)}
    plain = [rule for rule in OURS if OURS[rule].colour]  # those that are drawn as they declare
    styled = styles([*plain, *theirs], RuleTraits({**OURS, **theirs}))
    assert len({styled[rule].colour for rule in styled}) == len(plain) + 12
    assert len({styled[rule].marker for rule in theirs}) == 12
    assert not {styled[rule].marker for rule in theirs} & {styled[rule].marker for rule in plain}
    with look():
        assert all(swatch.startswith("<svg") for _, swatch in legend_of(styled.values(), "every"))


def test_a_colour_that_one_rule_declares_is_given_to_no_other():
    first = styles(["a"], RuleTraits({"a": Traits("a")}))["a"].colour
    traits = RuleTraits({"a": Traits("a", colour=first), "b": Traits("b"), "c": Traits("c", colour=first)})
    styled = styles(["a", "b", "c"], traits)
    assert styled["a"].colour == first
    assert len({style.colour for style in styled.values()}) == 3
