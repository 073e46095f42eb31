import re
from xml.etree import ElementTree as ET

import pytest

from sdp_bench.reports.sections.choice import choice, choice_figures
from sdp_bench.reports.sections.figures import figures
from sdp_bench.reports.style.figure import KINDS, Figure, label_points, look, panels
from sdp_bench.reports.style.theme import INK, Style, marked
from sdp_bench.reports.tables import tables
from tests.reports import made_up
from tests.reports.made_up import checked

FRAME = checked(made_up.frame(depths=(1, 2), rules=made_up.FEW, experiments=("iris-tv",)))
SUMMARY, SIGMA, DEPTH = figures(tables.headline(list(tables.tables(FRAME, made_up.TRAITS))), made_up.TRAITS)
STYLE = Style("a <b> & $c$", "#332288", "o")


@look()
def drawing(draw=lambda axes: None):
    made, (axes,) = panels(["x < y"], [STYLE])
    axes.plot([0, 1], [0, 1], **STYLE.line)
    draw(axes)
    return made


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("figure", [SUMMARY, SIGMA, DEPTH], ids=lambda figure: figure.anchor)
def test_a_figure_has_the_same_bytes_each_time(figure, kind):
    content = figure.content(kind)
    assert content == figure.content(kind)
    assert content.startswith({"pdf": b"%PDF", "svg": b"<?xml"}[kind])


def test_pdfs_embed_fonts_that_publishers_accept():
    assert b"/Type3" not in SIGMA.content("pdf")


@pytest.mark.parametrize(
    "figure",
    [SUMMARY, SIGMA, DEPTH, *filter(None, choice_figures(choice(FRAME, made_up.TRAITS)))],
    ids=lambda f: f.anchor,
)
def test_svg_is_a_drawing_of_the_page_that_holds_it(figure):
    root = ET.fromstring(figure.svg.replace("<svg", '<svg xmlns:xlink="http://www.w3.org/1999/xlink"', 1))
    assert root.attrib["role"] == "img"
    assert root.attrib["aria-label"] == figure.alt
    assert "font-family" not in figure.svg
    assert "<style" not in figure.svg
    assert INK not in figure.svg
    assert "currentColor" in figure.svg
    ids = re.findall(r'\sid="([^"]+)"', figure.svg)
    assert len(ids) == len(set(ids))
    for name in re.findall(r"url\(#([^)]+)\)|href=\"#([^\"]+)\"", figure.svg):
        assert "".join(name) in ids


def test_lines_after_a_curve_stay_lines():
    """The letter of a line must stay after a curve: numbers alone would be more points of the curve."""
    drawing, (axes,) = panels(["a panel"])
    axes.pie([1, 2])  # arcs, and lines to the centre
    svg = Figure("figure-x", "A title", "Words.", drawing).svg
    curves = [path for path in re.findall(r' d="([^"]*)"', svg) if " C " in path]
    assert curves
    for path in curves:
        for numbers in re.findall(r"C ([-\d. ]*)", path):
            assert len(numbers.split()) == 6, path


def test_points_of_a_line_follow_one_letter():
    bent = drawing(lambda axes: axes.plot([0, 1, 0], [0, 1, 2]))
    paths = re.findall(r' d="([^"]*)"', Figure("figure-x", "A title", "Words.", bent).svg)
    assert any(re.fullmatch(r"M( [\d.]+){6}", path) for path in paths)
    assert not any(" L " in path for path in paths)


def test_texts_are_escaped_and_are_no_formulas():
    figure = Figure("f", "", "", drawing(lambda axes: axes.text(0, 0, "0.0123")))
    texts = [node.text for node in ET.fromstring(figure.svg.replace("xlink:", "")).iter("text")]
    assert {"a <b> & $c$", "x < y", "0.0123"} <= set(texts)


def boxes(axes):
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    canvas = FigureCanvasAgg(axes.get_figure())
    return [text.get_window_extent(canvas.get_renderer()) for text in axes.texts]


def overlapping(axes):
    found = boxes(axes)
    return [(a, b) for k, a in enumerate(found) for b in found[k + 1 :] if a.overlaps(b)]


def test_names_of_points_do_not_overlap():
    names = [(0.5 + 0.01 * k, 0.5, f"point {k}", "#000000") for k in range(9)]
    left_out = []
    made = drawing(lambda axes: left_out.extend(label_points(axes, names)))
    assert len(made.axes[0].texts) + len(left_out) == 9
    assert left_out
    assert not overlapping(made.axes[0])


def test_series_carry_their_label_and_the_texts_of_their_points():
    def draw(axes):
        line = STYLE.line | {"gid": marked(STYLE.label, [" at 0: 0.12345", " at 1: 2"])}
        axes.plot([0, 1], [0, 1], **line)

    svg = Figure("f", "", "", drawing(draw)).svg
    root = ET.fromstring(svg.replace("xlink:", ""))
    series = [group.attrib for group in root.iter("g") if "data-series" in group.attrib]
    assert {group["data-series"] for group in series} == {STYLE.label}
    assert " at 0: 0.12345| at 1: 2" in [group.get("data-tips") for group in series]
    assert [group for group in root.iter("g") if "data-legend" in group.attrib]


def test_lines_after_the_sixth_of_the_legend_are_faint():
    styles = [Style(f"rule {k}", "#332288", "o") for k in range(8)]
    made, (axes,) = panels(["p"], styles)
    for style in styles:
        axes.plot([0, 1], [0, 1], **style.line)
    root = ET.fromstring(Figure("f", "", "", made).svg.replace("xlink:", ""))
    faint = {group.attrib["data-series"] for group in root.iter("g") if group.get("class") == "faint"}
    assert faint == {"rule 6", "rule 7"}
