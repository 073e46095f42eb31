import re

import pytest

from sdp_bench.reports.sections.figures.figures import figures
from sdp_bench.reports.style.drawing import styles
from sdp_bench.reports.tables import tables
from sdp_bench.reports.tables.frame import checked
from tests.reports import made_up
from tests.reports.made_up import TRAITS


def drawn(frame):
    frame = checked(frame)
    winners = tables.headline(list(tables.tables(frame, TRAITS)))
    return figures(winners, TRAITS, frame.groupby(["activation", "depth", "rule"])["seconds"].median())


@pytest.fixture(scope="module")
def quick():
    return drawn(made_up.frame())


def test_three_figures_with_a_panel_for_every_depth_or_rule(quick):
    assert [figure.anchor for figure in quick] == ["figure-sigma", "figure-depth", "figure-cost"]
    assert [len(figure.panels) for figure in quick] == [3, len(made_up.RULES), 3]


def test_every_panel_says_what_it_shows(quick):
    for figure in quick:
        for panel in figure.panels:
            assert len(panel.alt) > 60
            assert panel.title in panel.alt


def test_drawings_stand_alone_and_follow_the_page(quick):
    drawings = [panel.svg for figure in quick for panel in figure.panels]
    drawings += [swatch for figure in quick for _, swatch in figure.legend]
    for svg in drawings:
        head = svg[: svg.index(">")]
        assert head.startswith("<svg")
        assert "viewBox" in head
        assert not re.search(r'\s(width|height)="', head)
        assert "http" not in svg
        assert "#010203" not in svg
        assert "font-family" not in svg  # the page's own
        for name in re.findall(r"(?:url\(#|href=\"#)([^)\"]+)", svg):
            assert f'id="{name}"' in svg


def test_ids_do_not_clash_on_the_page(quick):
    names = []
    for figure in quick:
        for panel in figure.panels:
            names += set(re.findall(r'\sid="([^"]+)"', panel.svg))
    assert len(names) == len(set(names))


def test_heat_maps_show_the_means(quick):
    frame = made_up.frame()
    mean = (
        frame[(frame["metric"] == "tv_headline") & (frame["rule"] == "sdp")]
        .groupby(["depth", "sigma"])["value"]
        .mean()
    )
    (sdp,) = [panel for panel in quick[1].panels if panel.title == "SDP"]
    written = re.findall(r">(\d\.\d\d)<", sdp.svg)
    assert written == [f"{1 - value:.2f}" for value in mean]


def test_a_rule_looks_the_same_whatever_it_is_drawn_with():
    every = styles(made_up.RULES, TRAITS)
    for rule in ("sdp", "marginal_moment_matching"):
        assert styles([rule], TRAITS)[rule] == every[rule]
    assert len({style.colour for style in every.values()}) == len(every)


def test_holes_in_the_data_are_left_blank():
    frame = made_up.frame(depths=(1, 4), suites=("iris-tv",))
    frame = frame[~((frame["rule"] == "dvia") & (frame["depth"] == 1) & (frame["sigma"] > 1))]
    (dvia,) = [panel for panel in drawn(frame)[1].panels if panel.title == "DVIA"]
    assert len(re.findall(r">(\d\.\d\d)<", dvia.svg)) == 7


def test_nothing_to_draw_is_no_figure():
    assert drawn(made_up.frame(depths=(1,), suites=("iris-w1",))) == []


def test_heat_maps_have_room_beside_long_names():
    frame = made_up.frame(depths=(1,), suites=("iris-tv",))
    recipe = "a recipe of training with a name that is wider than the whole panel, and then some"
    (panel,) = [panel for panel in drawn(frame.assign(recipe=recipe))[1].panels if panel.title == "SDP"]
    assert len(re.findall(r">(\d\.\d\d)<", panel.svg)) == frame["sigma"].nunique()
    names = re.findall(r"<text[^>]*>([^<]*)</text>", panel.svg)
    assert max(map(len, names)) < 20
