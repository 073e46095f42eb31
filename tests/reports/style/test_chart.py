import re
from xml.etree import ElementTree as ET

import numpy as np
import pytest

from sdp_bench.reports.style.axis import Axis
from sdp_bench.reports.style.chart import Chart, Guide, Series
from sdp_bench.reports.style.drawing import Style

RULE = Style("SDP <a>", "#0072b2", "circle")
OTHER = Style("other", "#d55e00", "square", (2.0, 1.0))
SIGMAS = np.array([0.1, 1.0, 10.0])
MEANS = np.array([0.9, 0.5, 0.25])
ERRORS = np.array([0.01, 0.02, np.nan])


def chart(*series, **settings):
    axes = Axis("σ", log=True, told=lambda sigma: f"σ = {sigma:g}"), Axis("1 − TV", 0, 1)
    return Chart(*axes, series or (Series(RULE, SIGMAS, MEANS, error=ERRORS),), **settings)


def parsed(drawn):
    return ET.fromstring(drawn.svg)


def paths(element, kind):
    return [path.get("d") for path in element.iter("path") if path.get("class", "").split()[:1] == [kind]]


def places(path):
    return np.array([[float(x), float(y)] for x, y in re.findall(r"[ML](-?[\d.]+) (-?[\d.]+)", path)])


def test_a_series_says_its_name_and_its_values_in_a_title():
    (series,) = [group for group in parsed(chart()).iter("g") if group.get("class") == "series"]
    assert series.find("title").text.split("\n") == [
        "SDP <a>",
        "σ = 0.1: 0.900 ± 0.010",
        "σ = 1: 0.500 ± 0.020",
        "σ = 10: 0.250",
    ]


def test_points_and_lines_are_where_the_axes_say():
    drawn = chart()
    svg = parsed(drawn)
    names = [(text.text, float(text.get("x")), float(text.get("y"))) for text in svg.iter("text")]
    across = {text: x for text, x, _ in reversed(names)}  # names of x come first
    (level,) = paths(svg, "grid")
    rows = [float(y) for y in re.findall(r"M[\d.]+ ([\d.]+)H", level)]
    bottom, top = max(rows), min(rows)  # of 0 and of 1
    (points,), (line,) = paths(svg, "p"), paths(svg, "l")
    assert places(line) == pytest.approx(places(points))
    for (x, y), sigma, mean in zip(places(points), SIGMAS, MEANS, strict=True):
        assert x == pytest.approx(across[f"{sigma:g}"], abs=0.11)
        assert (bottom - y) / (bottom - top) == pytest.approx(mean, abs=1e-3)


def test_bars_reach_from_low_to_high_and_bands_around():
    svg = parsed(chart())
    ends = re.findall(r"M([\d.]+) ([\d.]+)V([\d.]+)", paths(svg, "e")[0])
    points = places(paths(svg, "p")[0])
    assert len(ends) == 2  # one error is not known
    for (x, low, high), (at, middle) in zip(ends, points, strict=False):
        assert float(x) == at
        assert (float(low) + float(high)) / 2 == pytest.approx(middle, abs=0.11)
    band = parsed(chart(Series(RULE, SIGMAS, MEANS, error=np.full(3, 0.1), band=True)))
    assert len(places(paths(band, "b")[0])) == 6
    assert not paths(band, "e")


def test_what_is_not_known_is_neither_drawn_nor_said():
    values = np.array([0.9, np.nan, np.inf])
    svg = parsed(chart(Series(RULE, SIGMAS, values), Series(OTHER, SIGMAS, MEANS)))
    first, second = paths(svg, "p")
    assert (len(places(first)), len(places(second))) == (1, 3)
    assert len(next(svg.iter("title")).text.split("\n")) == 2


def test_points_are_as_many_as_lines_of_the_title():
    """What reads them counts on it: on a log axis 0 has no place."""
    x = np.linspace(0, 5, 481)
    log = Chart(Axis(), Axis(log=True), (Series(RULE, x, np.maximum(x - 1, 0), every=7),))
    bars = Series(RULE, range(4), [1, np.nan, 2, 3], wide=0.4)
    for drawn in (log, Chart(Axis(), Axis(low=0), (bars,))):
        svg = parsed(drawn)
        said = next(svg.iter("title")).text.split("\n")[1:]
        assert len(places(paths(svg, "p")[0])) == len(said) > 2


def test_a_curve_of_many_points_is_drawn_with_those_that_bend_it():
    x = np.linspace(0, 1, 1001)
    straight = Chart(Axis(), Axis(), (Series(RULE, x, x, every=100),))
    assert len(places(paths(parsed(straight), "l")[0])) == 2
    bent = Chart(Axis(), Axis(), (Series(RULE, x, np.abs(x - 0.5), every=100),))
    assert len(places(paths(parsed(bent), "l")[0])) == 3
    y = np.sin(12 * x)
    wave = Chart(Axis(low=0, high=1), Axis(low=-1, high=1), (Series(RULE, x, y, every=100),))
    line, exact = places(paths(parsed(wave), "l")[0]), 72 * np.column_stack(wave.places(x, y))
    assert len(line) < 150
    assert np.abs(np.interp(exact[:, 0], line[:, 0], line[:, 1]) - exact[:, 1]).max() < 0.75
    assert np.array_equal(line[[0, -1]], exact[[0, -1]].round(1))


def test_a_guide_that_leaves_the_frame_is_cut_there_and_one_inside_is_not():
    inside, beyond = Guide([0.1, 10], [0.5, 0.5]), Guide([0.1, 10], [0.5, 3])
    assert "<svg x=" not in chart(guides=(inside,)).svg
    assert chart(guides=(inside, beyond)).svg.count("<svg x=") == 1


def test_a_flipped_axis_has_small_values_on_top():
    drawn = Chart(Axis(), Axis(flipped=True), (Series(RULE, [0, 1], [1, 5]),))
    (_, first), (_, last) = places(paths(parsed(drawn), "p")[0])
    assert first < last


def test_drawings_say_no_colour_that_one_of_the_pages_would_hide():
    svg = chart(Series(RULE, SIGMAS, MEANS), Series(OTHER, SIGMAS, MEANS)).svg
    assert set(re.findall(r'color="([^"]*)"', svg)) == {RULE.attribute.split('"')[1], "var(--kd55e00)"}
    assert "#" not in svg


@pytest.mark.parametrize(
    ("axis", "values", "texts"),
    [
        (Axis(low=0, high=1), [], ["0", "0.2", "0.4", "0.6", "0.8", "1"]),
        (Axis(low=0, high=100), [], ["0", "20", "40", "60", "80", "100"]),
        (Axis(log=True), [0.01, 100], ["0.01", "0.1", "1", "10", "100"]),
        (Axis(log=True), [2, 8], ["2", "5"]),
        (Axis(log=True), [1e-9, 1e9], ["1e−9", "1e−6", "0.001", "1", "1000", "1e6", "1e9"]),
        (Axis(), [-1, 0, 1], ["−1", "−0.5", "0", "0.5", "1"]),
        (Axis(log=True), [0, -1, np.nan], ["0.5", "1", "2"]),
        (Axis(), [5.0], ["4.6", "4.8", "5", "5.2", "5.4"]),
    ],
)
def test_ticks_are_round_and_inside(axis, values, texts):
    made = axis.over(values)
    assert [text for _, text in made.marks] == texts
    assert all(made.low <= value <= made.high for value, _ in made.ticks)
