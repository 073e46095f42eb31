import re

import numpy as np
import pytest

from sdp_bench.reports.sections.choice.choice import choice
from sdp_bench.reports.sections.choice.figure import choice_figures
from sdp_bench.reports.sections.figures.figures import figures
from sdp_bench.reports.style.axis import Axis
from sdp_bench.reports.style.chart import Chart, Guide, Series
from sdp_bench.reports.style.drawing import Style
from sdp_bench.reports.style.figure import Figure, Panel, found
from sdp_bench.reports.style.printed import KINDS, save
from sdp_bench.reports.tables import tables
from sdp_bench.reports.tables.frame import checked
from tests.reports import made_up

FRAME = checked(made_up.frame(depths=(1,), rules=made_up.FEW, suites=("iris-tv",)))
OVERLAP = figures(tables.headline(list(tables.tables(FRAME, made_up.TRAITS))), made_up.TRAITS)

BARS = Chart(
    Axis(ticks=((0, "Linear 1"), (1, "ReLU 1"))),
    Axis("share", 0),
    (Series(Style("rule", "#0072b2", "square"), [0, 1], [1, 2], wide=0.4, base=[0, 1]),),
    (Guide([0, 1, 1, np.nan, 0, 0.5], [0, 0, 1, np.nan, 0, 0.5], filled=True),),
    inclined=True,
    gridless=True,
)
LAYERS = Figure("figure-layers", "", "", (Panel("After each layer", BARS, ""),))


@pytest.mark.parametrize("kind", KINDS)
def test_a_figure_is_written_whole_and_the_same_each_time(tmp_path, kind):
    first = save(LAYERS, tmp_path / f"one.{kind}")
    second = save(LAYERS, tmp_path / f"two.{kind}")
    assert first.read_bytes() == second.read_bytes()
    assert first.read_bytes().startswith({"pdf": b"%PDF", "svg": b"<?xml", "png": b"\x89PNG"}[kind])
    assert sorted(path.name for path in tmp_path.iterdir()) == [f"one.{kind}", f"two.{kind}"]


def test_prints_have_the_panels_and_the_rules_as_text(tmp_path):
    """Lines, heat maps and fronts; a bar for each layer and a polygon with a hole besides."""
    front, _ = choice_figures(choice(FRAME, made_up.TRAITS))
    for figure in (*OVERLAP, front, LAYERS):
        text = save(figure, tmp_path / f"{figure.anchor}.svg").read_text()
        for panel in figure.panels:
            assert panel.title.split(",")[0] in text
        for style in figure.styles:
            assert f">{style.label}<" in text
    assert "Linear 1" in text


def test_other_suffixes_are_refused(tmp_path):
    with pytest.raises(ValueError, match=r"fig\.gif: a figure is written as one of pdf, svg, png"):
        save(OVERLAP[0], tmp_path / "fig.gif")


def test_a_figure_declares_every_colour_of_its_panels():
    for figure in (*OVERLAP, LAYERS):  # the latter without a legend
        used = {name for panel in figure.panels for name in re.findall(r"var\((--k\w+)\)", panel.svg)}
        assert used <= set(re.findall(r"(--k\w+):", figure.colours))
    assert used


def test_every_figure_of_a_section_is_found_once():
    nested = {"figures": OVERLAP, "section": [{"main": OVERLAP[0].panels[0]}], "count": 3, "name": "figure"}
    assert [each.anchor for each in found(nested)] == ["figure-sigma", "figure-depth"]
