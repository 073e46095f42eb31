import re

import pandas as pd
import pytest

from sdp_bench.reports.sections.figures import figures, relative_scores
from sdp_bench.reports.sections.sweeps import MOST, Parameter, Sweeps, figure, sweeps, varied_parameters
from sdp_bench.reports.tables import tables
from tests.reports import made_up
from tests.reports.made_up import TRAITS, Results, checked, titles, written


def all_figures(frame):
    return figures(tables.headline(list(tables.tables(checked(frame), TRAITS))), TRAITS)


def drawn(frame):
    """Figures except the summary."""
    return [figure for figure in all_figures(frame) if figure.anchor != "figure-summary"]


@pytest.fixture(scope="module")
def quick():
    return drawn(made_up.frame())


def test_a_panel_for_every_depth_or_rule(quick):
    assert [figure.anchor for figure in quick] == ["figure-sigma", "figure-depth"]
    assert titles(quick[0]) == ["1 ReLU layer", "2 ReLU layers", "4 ReLU layers"]
    assert titles(quick[1]) == [TRAITS.label(rule) for rule in (*made_up.RULES[:5], made_up.RULES[-1])]


def test_scores_are_relative_to_the_best_rule_of_the_setting():
    frame = checked(made_up.frame(depths=(1,), experiments=("iris-tv",)))
    scores = relative_scores(tables.headline(list(tables.tables(frame, TRAITS))))
    measurements = frame[frame["metric"] == "tv_headline"]
    means = measurements.groupby(["sigma", "rule"], observed=True)["value"].mean().unstack()
    relative = means.div(means.min(axis=1), axis=0)
    for rule in made_up.RULES:
        found = sorted(scores["relative"][scores["rule"] == rule])
        assert found == pytest.approx(sorted(relative[rule]))


def test_the_summary_has_a_box_for_each_rule_best_first():
    summary = all_figures(made_up.frame())[0]
    assert summary.anchor == "figure-summary"
    names = [label.get_text() for label in summary.drawing.axes[0].get_yticklabels()]
    assert len(names) == len(made_up.RULES)
    assert names[0].endswith("(15)")
    assert names[-1].startswith("marginal")


def test_monte_carlo_is_a_band_named_in_the_legend(quick):
    (legend,) = quick[0].drawing.legends
    names = [text.get_text() for text in legend.get_texts()]
    assert "Monte Carlo, 5 to 1000 samples" in names
    assert not any(re.fullmatch(r"MC \d+", name) for name in names)
    ends = quick[0].drawing.axes[0].collections[0].get_paths()[0].vertices
    frame = made_up.frame(depths=(1,))
    measurements = frame[
        (frame["metric"] == "tv_headline")
        & frame["rule"].str.startswith("monte_carlo")
        & (frame["sigma"] == 10)
    ]
    means = 1 - measurements.groupby("rule")["value"].mean()
    at = ends[ends[:, 0] == 10][:, 1]
    assert (at.min(), at.max()) == pytest.approx((means.min(), means.max()))


def test_other_metrics_are_drawn_for_the_net_that_has_most():
    frame = checked(made_up.frame(depths=(1, 2)))
    every = list(tables.tables(frame, TRAITS))
    *_, metrics, _ = figures(tables.headline(every), TRAITS, others=every)
    assert metrics.anchor == "figure-metrics"
    assert any("Ratio of standard" in title for title in titles(metrics))
    assert not any("headline" in title for title in titles(metrics))


def test_heat_maps_show_the_means(quick):
    frame = made_up.frame()
    measurements = frame[(frame["metric"] == "tv_headline") & (frame["rule"] == "sdp")]
    mean = measurements.groupby(["depth", "sigma"])["value"].mean()
    sdp = quick[1].drawing.axes[titles(quick[1]).index("SDP")]
    assert [f"0{text}" for text in written(sdp)] == [f"{1 - value:.2f}" for value in mean]


def test_missing_measurements_are_left_blank():
    frame = made_up.frame(depths=(1, 4), experiments=("iris-tv",))
    frame = frame[~((frame["rule"] == "dvia") & (frame["depth"] == 1) & (frame["sigma"] > 1))]
    depth = drawn(frame)[1]
    dvia = depth.drawing.axes[titles(depth).index("DVIA")]
    assert len([text for text in written(dvia) if text]) == 7


def test_the_alternative_text_names_every_panel(quick):
    for shown in quick:
        for title in titles(shown):
            assert title in shown.alt


def test_one_noise_level_has_no_line_chart():
    frame = made_up.frame(experiments=("iris-tv",))
    assert [figure.anchor for figure in drawn(frame[frame["sigma"] == 10])] == ["figure-depth"]


def test_without_a_headline_there_is_no_figure():
    assert drawn(made_up.frame(depths=(1,), experiments=("iris-w1",))) == []


def test_experiments_on_the_same_nets_have_separate_panels_and_rows():
    frame = made_up.frame(depths=(4,), experiments=("iris-tv",))
    other = frame.assign(experiment="iris-mixtures", value=0.5 * frame["value"])
    sigma, depth = drawn(pd.concat([frame, other], ignore_index=True))
    assert set(titles(sigma)) == {"4 ReLU layers, Beyond one Gaussian", "4 ReLU layers, Total variation"}
    sdp = depth.drawing.axes[titles(depth).index("SDP")]
    assert len(written(sdp)) == 2 * frame["sigma"].nunique()


SAMPLED = ("sdp", "monte_carlo:samples=1000", "monte_carlo:samples=10", "monte_carlo:samples=100")


def results(rules=SAMPLED, **more):
    frame = made_up.frame(rules=rules, **{"depths": (1, 4), "experiments": ("iris-tv", "iris-w1"), **more})
    return Results(frame, made_up.meta(frame))


def test_a_sweep_takes_three_values_of_a_parameter():
    assert Sweeps().build(results()) is not None
    assert Sweeps().build(results(SAMPLED[:3])) is None
    assert Sweeps().build(results(("sdp", "dvia", "moment_matching"))) is None


def test_all_else_of_the_rule_is_equal_in_a_sweep():
    rules = [f"a:x={x},y={y}" for x in (3, 1, 2) for y in (10, 20)]
    specs = varied_parameters(["b", "a:kind=full", *rules, "a:x=True,y=10", "a:x=nan,y=10", "odd:name"])
    assert specs == {
        Parameter("a", "x", ("y=10",)): {1.0: "a:x=1,y=10", 2.0: "a:x=2,y=10", 3.0: "a:x=3,y=10"},
        Parameter("a", "x", ("y=20",)): {1.0: "a:x=1,y=20", 2.0: "a:x=2,y=20", 3.0: "a:x=3,y=20"},
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
        measurements = frame[
            (frame["sigma"] == row.sigma) & (frame["rule"] == f"monte_carlo:samples={value:g}")
        ]
        assert cell.mean == pytest.approx(1 - measurements["value"].mean())


def test_a_panel_for_each_kind_of_nets_says_what_it_shows_and_many_are_told():
    ((swept, *_), kinds), _ = sweeps(results().tables).items()
    shown = figure(swept, kinds, TRAITS)
    assert made_up.titles(shown) == ["1 ReLU layer", "4 ReLU layers"]
    (legend,) = shown.drawing.legends
    assert [t.get_text() for t in legend.get_texts()] == [f"σ = {sigma:g}" for sigma in made_up.TV_SIGMAS]
    for title in made_up.titles(shown):
        assert f"{title}: 1 − TV over samples. σ = 0.1: " in shown.alt
    many = results(depths=tuple(range(1, MOST + 4)), nets=1, inputs=1, experiments=("iris-w1",))
    (((swept, *_), kinds),) = sweeps(many.tables).items()
    drawn = figure(swept, kinds, TRAITS)
    assert len(drawn.drawing.axes) == MOST
    assert "The other 3 kinds of nets are in the tables." in drawn.caption


def test_a_noise_level_without_all_values_has_no_line():
    shown = results()
    frame = shown.frame[~((shown.frame["sigma"] == 1) & (shown.frame["rule"] == SAMPLED[1]))]
    tv, _ = sweeps(Results(frame).tables).values()
    assert [row.sigma for row, _ in tv[0].lines] == [0.1, 10, 100, 1000]
