import pytest

from sdp_bench.reports.sections.sweeps import MOST, Sweeps, Swept, figure, sweeps, swept_in
from tests.reports import made_up
from tests.reports.made_up import Results

SAMPLED = ("sdp", *(f"monte_carlo:samples={count}" for count in (1000, 10, 100)))


def results(rules=SAMPLED, **more):
    frame = made_up.frame(rules=rules, **{"depths": (1, 4), "suites": ("iris-tv", "iris-w1"), **more})
    return Results(frame, made_up.meta(frame))


def test_three_values_of_a_parameter_make_a_sweep_and_two_make_none():
    assert Sweeps().build(results()) is not None
    assert Sweeps().build(results(SAMPLED[:3])) is None
    assert Sweeps().build(results(("sdp", "dvia", "moment_matching"))) is None


def test_all_else_of_the_rule_is_equal_in_a_sweep():
    rules = [f"a:x={x},y={y}" for x in (3, 1, 2) for y in (10, 20)]
    found = swept_in(["b", "a:kind=full", *rules, "a:x=True,y=10", "a:x=nan,y=10", "odd:name"])
    assert found == {
        Swept("a", "x", ("y=10",)): {1.0: "a:x=1,y=10", 2.0: "a:x=2,y=10", 3.0: "a:x=3,y=10"},
        Swept("a", "x", ("y=20",)): {1.0: "a:x=1,y=20", 2.0: "a:x=2,y=20", 3.0: "a:x=3,y=20"},
    }


def test_lines_are_the_means_of_the_tables_by_value():
    shown = results()
    tv, w1 = sweeps(shown.tables).values()
    assert [kinds[0].table.metric.name for kinds in (tv, w1)] == ["tv_headline", "w1"]
    assert [curves.table.depth for curves in tv] == [1, 4]
    frame = shown.frame[(shown.frame["metric"] == "tv_headline") & (shown.frame["depth"] == 4)]
    row, cells = tv[1].lines[0]
    assert list(cells) == [10.0, 100.0, 1000.0]
    for value, cell in cells.items():
        own = frame[(frame["sigma"] == row.sigma) & (frame["rule"] == f"monte_carlo:samples={value:g}")]
        assert cell.mean == pytest.approx(1 - own["value"].mean())


def test_a_panel_for_each_kind_of_nets_says_what_it_shows_and_many_are_told():
    ((swept, *_), kinds), _ = sweeps(results().tables).items()
    shown = figure(swept, kinds)
    assert made_up.titles(shown) == ["1 ReLU layer", "4 ReLU layers"]
    (legend,) = shown.drawing.legends
    assert [text.get_text() for text in legend.get_texts()] == [
        f"σ = {sigma:g}" for sigma in made_up.TV_SIGMAS
    ]
    for title in made_up.titles(shown):
        assert f"{title}: 1 − TV over samples. σ = 0.1: " in shown.alt
    many = results(depths=tuple(range(1, MOST + 4)), nets=1, inputs=1, suites=("iris-w1",))
    (((swept, *_), kinds),) = sweeps(many.tables).items()
    drawn = figure(swept, kinds)
    assert len(drawn.drawing.axes) == MOST
    assert "The other 3 kinds of nets are in the tables." in drawn.caption
