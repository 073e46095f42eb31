import pytest

from sdp_bench.reports.sections.figures import figures
from sdp_bench.reports.tables import tables
from tests.reports import made_up
from tests.reports.made_up import TRAITS, checked, titles, written


def drawn(frame):
    return figures(tables.headline(list(tables.tables(checked(frame), TRAITS))), TRAITS)


@pytest.fixture(scope="module")
def quick():
    return drawn(made_up.frame())


def test_a_panel_for_every_depth_or_rule(quick):
    assert [figure.anchor for figure in quick] == ["figure-sigma", "figure-depth"]
    assert titles(quick[0]) == ["1 ReLU layer", "2 ReLU layers", "4 ReLU layers"]
    assert titles(quick[1]) == [TRAITS.label(rule) for rule in (*made_up.RULES[:5], made_up.RULES[-1])]


def test_monte_carlo_is_a_band_named_in_the_legend(quick):
    (legend,) = quick[0].drawing.legends
    names = [text.get_text() for text in legend.get_texts()]
    assert "Monte Carlo, 5 to 1000 samples" in names
    assert not any("MC estimate" in name for name in names)
    ends = quick[0].drawing.axes[0].collections[0].get_paths()[0].vertices
    frame = made_up.frame(depths=(1,))
    own = frame[
        (frame["metric"] == "tv_headline")
        & frame["rule"].str.startswith("monte_carlo")
        & (frame["sigma"] == 10)
    ]
    means = 1 - own.groupby("rule")["value"].mean()
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
    own = frame[(frame["metric"] == "tv_headline") & (frame["rule"] == "sdp")]
    mean = own.groupby(["depth", "sigma"])["value"].mean()
    sdp = quick[1].drawing.axes[titles(quick[1]).index("SDP")]
    assert [f"0{text}" for text in written(sdp)] == [f"{1 - value:.2f}" for value in mean]


def test_missing_measurements_are_left_blank():
    frame = made_up.frame(depths=(1, 4), suites=("iris-tv",))
    frame = frame[~((frame["rule"] == "dvia") & (frame["depth"] == 1) & (frame["sigma"] > 1))]
    depth = drawn(frame)[1]
    dvia = depth.drawing.axes[titles(depth).index("DVIA")]
    assert len([text for text in written(dvia) if text]) == 7
