import re

from hypothesis import given
from hypothesis import strategies as st

import sdp_ref
from sdp_bench.reports.style.names import RuleTraits
from sdp_bench.reports.style.theme import (
    CONTRAST,
    DARK,
    INK,
    LIGHT,
    LINE,
    QUIET,
    contrast,
    css,
    shade,
    styles,
)
from sdp_bench.reports.writing import TEMPLATES
from sdp_ref.rules import Traits

OURS = {rule: RuleTraits()[rule] for rule in sdp_ref.rules()}
THEIRS = {f"rule{number:02}": Traits(f"rule {number}", marginal=number > 5) for number in range(9)}


@given(st.integers(0, 0xFFFFFF))
def test_every_declared_colour_is_visible_on_both_pages(number):
    for page in (LIGHT, DARK):
        assert contrast(shade(f"#{number:06x}", page), page) >= CONTRAST


def test_every_line_is_visible_on_the_light_page():
    for style in styles([*OURS, *THEIRS], RuleTraits({**OURS, **THEIRS})).values():
        assert contrast(style.colour, LIGHT) >= CONTRAST


def test_a_dot_has_the_colour_of_the_rules_line_on_either_page():
    style = styles(["dvia"], RuleTraits())["dvia"]
    assert f"background:{css(style.colour)}" in style.dot


def test_rules_of_others_differ_from_ours_and_from_each_other():
    plain = [rule for rule in OURS if OURS[rule].colour]
    styled = styles([*plain, *THEIRS], RuleTraits({**{rule: OURS[rule] for rule in plain}, **THEIRS}))
    assert len({(style.colour, style.marker) for style in styled.values()}) == len(styled)
    assert len({style.colour for style in styled.values()}) == len(styled)


def test_a_rule_has_one_look_in_all_figures_of_the_same_results():
    traits = RuleTraits({**OURS, **THEIRS})
    every = styles([*OURS, *THEIRS], traits)
    for rule in (*OURS, *THEIRS):
        assert styles([rule], traits)[rule] == every[rule]


def test_the_colours_are_those_of_the_style_sheet():
    sheet = (TEMPLATES / "style.css").read_text()
    assert re.findall(r"--page: (#[0-9a-f]{6});", sheet)[:2] == [LIGHT, DARK]
    for name, colour in (("ink", INK), ("quiet", QUIET), ("line", LINE)):
        assert re.search(rf"--{name}: (#[0-9a-f]{{6}});", sheet)[1] == colour


def test_a_declared_text_that_is_not_a_colour_is_ignored():
    """Results of others may hold any text, and it would be part of the pages' style."""
    for text in ("red", "#12345", "#12345g", "#000000;}</style><script>", "", "url(#a)", "#１２３４５６"):
        (style,) = styles(["a"], RuleTraits({"a": Traits("a", colour=text)})).values()
        assert style.colour == styles(["a"], RuleTraits({"a": Traits("a")}))["a"].colour


def test_a_colour_declared_by_one_rule_is_given_to_no_other():
    first = styles(["a"], RuleTraits({"a": Traits("a")}))["a"].colour
    traits = RuleTraits({"a": Traits("a", colour=first), "b": Traits("b"), "c": Traits("c", colour=first)})
    styled = styles(["a", "b", "c"], traits)
    assert styled["a"].colour == first
    assert len({style.colour for style in styled.values()}) == 3
