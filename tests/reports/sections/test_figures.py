import base64
import gzip
import html
import re

import pandas as pd
import pytest

from sdp_bench.reports.sections.figures import Figures
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


def test_every_metric_of_the_tables_can_be_picked_and_only_the_first_is_unpacked():
    frame = checked(made_up.frame(depths=(1, 2)))
    every = list(tables.tables(frame, TRAITS))
    first, *_ = figures(tables.headline(every), TRAITS, others=every)
    assert {panel.facets["metric"] for panel in first.panels} == {table.metric.title for table in every}
    assert next(iter(first.groups)) == tables.headline(every)[0].metric.title
    outputs = [panel for panel in first.panels if panel.facets["metric"].startswith("Ratio of standard")]
    assert [(panel.facets["net"], panel.facets["output"]) for panel in outputs] == [
        (net, output) for net in ("1 ReLU layer", "2 ReLU layers") for output in "012"
    ]
    text = made_up.rendered(Figures(), figures=[first])
    plain = text.count('<div class="panel"')
    assert plain == len(first.groups[next(iter(first.groups))]) == 2
    packs = dict(re.findall(r'<template data-metric="([^"]+)" data-packed="([^"]+)">', text))
    unpacked = {name: gzip.decompress(base64.b64decode(pack)).decode() for name, pack in packs.items()}
    assert len(unpacked) == len(first.groups) - 1
    for name, own in list(first.groups.items())[1:]:
        held = unpacked[html.escape(name, quote=True)]
        assert all(panel.svg in held for panel in own)
        assert held.count('<div class="panel"') == len(own)


def test_a_metric_without_a_headline_is_drawn_too():
    frame = checked(made_up.frame(depths=(1,), suites=("iris-w1",)))
    (figure,) = figures([], TRAITS, others=list(tables.tables(frame, TRAITS)))
    assert [panel.facets for panel in figure.panels] == [
        {"metric": "Wasserstein distance W1", "net": "1 ReLU layer"}
    ]


def test_suites_of_the_same_nets_have_panels_and_rows_of_their_own():
    frame = made_up.frame(depths=(4,), suites=("iris-tv",))
    other = frame.assign(experiment="iris-mixtures", value=0.5 * frame["value"])
    drawn_ = drawn(pd.concat([frame, other], ignore_index=True))
    assert {panel.title for panel in drawn_[0].panels} == {
        "4 ReLU layers, Beyond one Gaussian",
        "4 ReLU layers, Total variation",
    }
    (sdp,) = [panel for panel in drawn_[1].panels if panel.title == "SDP"]
    assert len(re.findall(r">(\d\.\d\d)<", sdp.svg)) == 2 * frame["sigma"].nunique()


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
