import functools
import re
import shutil

import numpy as np
import pandas as pd
import pytest

from sdp_bench.bench.errors import UserError
from sdp_bench.bench.replay.replay import stored_measurement
from sdp_bench.bench.results.columns import keys as keys_of
from sdp_bench.bench.results.folder import read
from sdp_bench.bench.settings import Size
from sdp_bench.bench.text import public
from sdp_bench.reports import drilldown
from sdp_bench.reports.drilldown import verdict
from sdp_bench.reports.numbers import FOLDER, MOST_ROWS, sheets
from sdp_bench.reports.page import build
from sdp_bench.reports.sections.tables import Tables
from tests.bench.conftest import TINY, change, make_plan, run_all
from tests.reports import made_up
from tests.reports.helpers import outline, plain_text
from tests.reports.made_up import TRAITS

SETTINGS = TINY.but(sizes={"iris-tv": Size(1, 3)}, sigmas=(10.0,), rules=("sdp", "marginal_sdp"))


class Progress:
    def __init__(self):
        self.notes, self.steps = [], []

    def done(self, count, total, text):
        self.steps.append((count, total))

    def note(self, text):
        self.notes.append(text)


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    folder = tmp_path_factory.mktemp("drill")
    path = folder / "results"
    frame = run_all(path, make_plan(SETTINGS, ("iris-tv",)), settings=SETTINGS)
    progress = Progress()
    wanted = drilldown.selected_keys("worst:2", frame)
    outdated = frame.loc[~frame["key"].isin(wanted), "key"].iloc[0]

    def outdate(rows):
        versions = rows["fingerprint"].astype(object)
        return rows.assign(fingerprint=versions.where(keys_of(rows) != outdated, "older"))

    change(path, outdate)
    measurement_of = functools.partial(stored_measurement, read(path))
    made = drilldown.make(measurement_of, [*wanted, outdated], folder / "html", progress, TRAITS)
    build(made_up.results(frame, database=path), folder / "html", made_up.PLAIN)
    return folder / "html", frame, wanted, made, progress


def test_a_page_has_one_table_one_figure_and_the_command_that_repeats_it(report):
    folder, frame, wanted, made, _ = report
    pages = drilldown.current_pages(folder / drilldown.FOLDER, frame)
    assert {path.name for path in made} == {pages[key] for key in wanted}
    for key in wanted:
        text = (folder / drilldown.FOLDER / pages[key]).read_text()
        parsed = outline(text)
        assert parsed.fetched == ["data:,"]
        assert [target for target in parsed.targets if target[0] != "#"] == ["../index.html"]
        assert len(text.encode()) <= 80_000
        assert text.count("<table") == text.count("<figure") == 1
        assert "The error arises" in text
        assert f"sdp-bench replay {key}" in plain_text(text)


def test_a_page_that_fails_is_a_note(report):
    *_, made, progress = report
    assert len(made) == 2
    (note,) = progress.notes
    assert "has another version since it was measured" in note
    assert progress.steps[-1] == (3, 3)


def test_a_page_without_errors_by_layer_gives_the_reason(tmp_path):
    path = tmp_path / "results"
    settings = SETTINGS.but(rules=("sdp",), sigmas=(1.0,), sizes={"iris-cauchy": Size(1, 1)})
    frame = run_all(path, make_plan(settings, ("iris-cauchy",)), settings=settings)
    key = frame["key"].iloc[0]
    measurement_of = functools.partial(stored_measurement, read(path))
    (page,) = drilldown.make(measurement_of, [key], tmp_path / "html", Progress(), TRAITS)
    text = page.read_text()
    assert "No errors by layer: the input has a Cauchy law" in plain_text(text)
    assert "<figure" not in text
    assert f"sdp-bench replay {key}" in plain_text(text)


def test_every_number_leads_to_its_measurements_and_these_to_their_pages(report):
    folder, frame, _, made, _ = report
    pages = [outline(path.read_text()) for path in folder.glob("*.html")]
    linked = [t for page in pages for t in page.targets if t.startswith(FOLDER)]
    rules, metrics = frame["rule"].nunique(), 5
    assert len(set(linked)) == rules * metrics  # one sigma; score differences stand beside the class
    drilled = set()
    for target in linked:
        file, _, anchor = target.partition("#")
        parsed = outline((folder / file).read_text())
        assert parsed.ids.count(anchor) == 1
        drilled |= {t.removeprefix("../") for t in parsed.targets if drilldown.FOLDER in t}
    assert drilled == {f"{drilldown.FOLDER}/{path.name}" for path in made}


def test_a_page_is_not_linked_when_its_measurement_changes_or_it_is_deleted(report, tmp_path):
    folder, frame, wanted, *_ = report
    place = folder / drilldown.FOLDER
    assert set(drilldown.current_pages(place, frame)) == set(wanted)
    changed = frame.assign(value=frame["value"].where(frame["key"] != wanted[0], 0.5))
    assert set(drilldown.current_pages(place, changed)) == {wanted[1]}
    copy = tmp_path / "copy"
    shutil.copytree(place, copy)
    (copy / drilldown.current_pages(place, frame)[wanted[0]]).unlink()
    assert set(drilldown.current_pages(copy, frame)) == {wanted[1]}


def test_every_row_has_a_key_that_works_as_printed(report):
    folder, frame, *_ = report
    text = (folder / FOLDER / "iris-tv-relu-1-4-8-3.html").read_text()
    keys = re.findall("<td>([^<]*/[^<]*)</td></tr>", text)
    assert keys
    assert set(keys) <= set(frame["key"])
    command = f"sdp-bench report --drill-down KEY --database {folder.parent / 'results'} --output {folder}"
    assert text.count(public(command)) == 1  # in the folder where the report was made
    for key in keys:
        assert drilldown.selected_keys(key, frame) == [key]


def test_the_worst_are_spread_over_rules_then_noise():
    frame = made_up.frame(depths=(1, 2), nets=2, inputs=2, experiments=("iris-tv",))
    frame["unit"] = pd.util.hash_pandas_object(frame[["net", "input", "sigma"]], index=False).map(
        "{:016x}".format
    )
    frame = frame.assign(metric_spec=frame["metric"]).assign(key=keys_of)
    rules = {rule for rule in made_up.RULES if not rule.startswith("monte_carlo")}
    keys = drilldown.worst_keys(frame, len(rules))
    assert {key.split("/")[1] for key in keys} == rules
    rows = frame.set_index("key")
    first = rows.loc[keys[0]]
    excess = (rows["value"] - rows["floor95"])[(rows["metric"] == "tv_headline") & rows["rule"].isin(rules)]
    assert first["value"] - first["floor95"] == pytest.approx(excess.max())
    twice = drilldown.worst_keys(frame, 2 * len(rules))
    cells = {(rows.loc[key]["rule"], rows.loc[key]["sigma"]) for key in twice}
    assert len(cells) == 2 * len(rules)  # a second noise level before a second net


def test_keys_hold_commas_and_so_do_lists_of_them():
    one, two = (
        "0123456789abcdef/sdp/tv:cells=512,pilot_samples=9",
        "fedcba9876543210/monte_carlo:samples=5,sampler=sobol/w1",
    )
    assert drilldown.selected_keys(f"{one},{two}", pd.DataFrame()) == [one, two]
    assert drilldown.selected_keys("none", pd.DataFrame()) == []
    counts = ["worst:0", "worst:-1", "worst:x", "worst:²", "worst:101", "worst", "worst5"]
    for wrong in (*counts, "sdp", "", ","):
        with pytest.raises(UserError):
            drilldown.selected_keys(wrong, pd.DataFrame())
    with pytest.raises(UserError, match="none was measured"):
        drilldown.selected_keys("worst:3", made_up.frame(experiments=("iris-w1",)))


def test_lists_are_bounded_and_say_what_they_leave_out(tmp_path):
    results = made_up.results(made_up.frame(depths=(1,), nets=5, inputs=6, experiments=("iris-tv",)))
    frame, numbers = results.frame, made_up.page(results, [Tables()])[1]
    (sheet,) = sheets(numbers, frame, {}, TRAITS)
    listing = sheet["parts"][0][1][0]
    assert (listing["count"], listing["shown"]) == (30, MOST_ROWS)
    assert listing["rows"].count("<tr>") == MOST_ROWS
    (small,) = sheets(numbers, frame, {}, TRAITS, most_bytes=200_000)
    listings = [each for _, listings in small["parts"] for each in listings]
    assert sum(len(each["rows"]) for each in listings) < 200_000
    assert min(each["shown"] for each in listings) >= 1
    assert small["cut"]
    path = build(results, tmp_path, [Tables()])
    text = (path.parent / FOLDER / sheet["page"].file).read_text()
    assert "20 of 30 " in plain_text(text)
    assert "All measurements are in results.csv" in plain_text(text)


def layers_with(formula, dropped, closure, *, total=1.0, floor95=0.01, rounding=0.0, constant=False):
    causes = {"formula_at_output": formula, "dropped_at_output": dropped, "closure_at_output": closure}
    names = ["Linear 1", "ReLU 1", "Linear 2", "ReLU 2", "Linear 3"]
    layers = pd.DataFrame({"layer": names, "constant": constant} | causes)
    layers["at_output"] = formula + dropped + closure
    layers["share"] = layers["at_output"] / layers["at_output"].sum()
    layers.attrs = {"total": total, "floor95": floor95, "rounding": rounding}
    return layers


def array(**values):
    """Values by layer (``r1`` for ReLU 1), 0 for the other layers."""
    return np.array([values.get(name, 0.0) for name in ("l1", "r1", "l2", "r2", "l3")])


ZERO = array()


@pytest.mark.parametrize(
    ("layers", "expected"),
    [
        (layers_with(ZERO, ZERO, array(r1=0.01, r2=0.99)), r"arises in ReLU 2 .99 %., by closure.*.100 %."),
        (
            layers_with(array(r1=0.4, r2=0.3), ZERO, array(r2=0.3)),
            r"arises in ReLU 1 .40 %. and ReLU 2 .60 %., by the rule’s own approximation .70 %. and closure",
        ),
        (
            layers_with(array(r1=0.5), array(l1=0.3, l2=0.2), ZERO),
            r"mainly in Linear 1 .30 %. and ReLU 1 .50 %., by .*approximation .50 %. and covariances.*.50 %.",
        ),
        (layers_with(array(l1=0.2, r1=0.2, l2=0.2, r2=0.2, l3=0.2), ZERO, ZERO), "in many layers, by"),
        (layers_with(array(l1=0.001), ZERO, ZERO, total=0.009), "indistinguishable from the exact ones"),
        (layers_with(array(l1=0.1), ZERO, ZERO, total=0.1, rounding=0.2), "within the rounding error"),
        (layers_with(array(l1=1), ZERO, ZERO, total=1, rounding=0.25), "may cause about 25 % of it"),
        (layers_with(array(l1=1), ZERO, ZERO, constant=True), "constant up to rounding"),
    ],
)
def test_the_verdict_names_layers_and_causes(layers, expected):
    assert re.search(expected, verdict(layers).replace("\u00a0", " "))


def test_the_error_of_a_sampling_rule_is_its_sampling_error():
    text = verdict(layers_with(array(r1=1.0), ZERO, ZERO), sampling=True)
    assert "by the sampling error of the rule" in text
