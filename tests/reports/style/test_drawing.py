import re

import sdp_ref
from sdp_bench.bench.metrics.references import references
from sdp_bench.reports.sections.robustness.words import OBJECTIVES
from sdp_bench.reports.style.colours import CONTRAST, DARK, LIGHT, contrast, css, shades
from sdp_bench.reports.style.drawing import styles
from sdp_bench.reports.style.markers import SHAPES
from sdp_bench.reports.style.rules import RuleTraits
from sdp_bench.reports.writing import TEMPLATES
from sdp_ref.rules import Traits

OURS = {rule: RuleTraits()[rule] for rule in sdp_ref.rules()}
THEIRS = {f"rule{number:02}": Traits(f"rule {number}", marginal=number > 5) for number in range(12)}
SAMPLING = {f"mc{count}": Traits(f"MC {count}", sampling=count) for count in (5, 10, 20, 50, 100, 1000, 9999)}
EVERY = RuleTraits(
    {**OURS, **THEIRS, **SAMPLING, **{name: references()[name].traits for name in references()}}
)


def test_twelve_rules_of_others_are_told_apart_by_colour_and_by_marker():
    plain = [rule for rule in OURS if OURS[rule].colour]  # those that are drawn as they declare
    styled = styles([*plain, *THEIRS], RuleTraits({**OURS, **THEIRS}))
    assert len({styled[rule].colour for rule in styled}) == len(plain) + 12
    assert len({styled[rule].marker for rule in THEIRS}) == 12
    assert not {styled[rule].marker for rule in THEIRS} & {styled[rule].marker for rule in plain}


def test_built_in_rules_have_markers_of_their_own():
    drawn = [rule for rule in OURS if not OURS[rule].sampling][:12]
    assert len(drawn) == 12
    assert len({style.marker for style in styles(drawn, RuleTraits(OURS)).values()}) == 12


def test_no_two_rules_share_both_colour_and_marker():
    styled = styles(EVERY.stored, EVERY).values()
    assert len({(style.colour, style.marker) for style in styled}) == len(EVERY.stored) > 30
    assert len(set(SHAPES.values())) == len(SHAPES)
    assert {style.marker for style in styled} <= set(SHAPES)


def test_every_line_is_seen_on_the_light_page_and_on_the_dark_one():
    for style in (*styles(EVERY.stored, EVERY).values(), *OBJECTIVES.values()):
        if style.variable:  # else it is the ink
            light, dark = shades(style.colour)
            assert contrast(light, LIGHT) >= CONTRAST
            assert contrast(dark, DARK) >= CONTRAST
            assert style.declared.endswith(light if light == dark else f"light-dark({light},{dark})")


def test_the_pages_are_those_of_the_style():
    pages = re.findall(r"--page: (#[0-9a-f]{6});", (TEMPLATES / "style.css").read_text())
    assert pages[:2] == [LIGHT, DARK]


def test_a_colour_that_one_rule_declares_is_given_to_no_other():
    first = styles(["a"], RuleTraits({"a": Traits("a")}))["a"].colour
    traits = RuleTraits({"a": Traits("a", colour=first), "b": Traits("b"), "c": Traits("c", colour=first)})
    styled = styles(["a", "b", "c"], traits)
    assert styled["a"].colour == first
    assert len({style.colour for style in styled.values()}) == 3


def test_what_a_rule_declares_and_is_no_colour_is_left_out():
    """Results of others may hold any text there, and it stands in the style of pages."""
    for text in ("red", "#12345", "#12345g", "#000000;}</style><script>", "", "url(#a)", "#１２３４５６"):
        (style,) = styles(["a"], RuleTraits({"a": Traits("a", colour=text)})).values()
        assert style.colour == styles(["a"], RuleTraits({"a": Traits("a")}))["a"].colour


def test_a_dot_has_the_shades_that_lines_have_on_either_page():
    style = styles(["marginal_moment_matching"], RuleTraits())["marginal_moment_matching"]
    assert f"background:{css(style.colour)}" in style.dot
    assert "light-dark" in style.dot
