import re
import shutil

import pandas as pd
import pytest
from sdp_bench.bench.results.queries import keys as keys_of
from sdp_bench.bench.results.store import Store

from sdp_bench.bench.errors import UserError
from sdp_bench.bench.replay.error_by_layer import OutputErrors
from sdp_bench.bench.settings import Size
from sdp_bench.bench.text import public
from sdp_bench.oracles.estimate.estimate import Estimate
from sdp_bench.reports.drilldown import page as drilldown
from sdp_bench.reports.drilldown.page import verdict
from sdp_bench.reports.numbers import FOLDER, MOST_ROWS, sheets
from sdp_bench.reports.page import build
from sdp_bench.reports.sections.tables import Tables
from tests.bench.conftest import TINY, change, make_plan, run_all
from tests.reports import made_up
from tests.reports.made_up import TRAITS
from tests.reports.test_page import outline, told

SETTINGS = TINY.but(sizes={"iris-tv": Size(1, 3)}, sigmas=(10.0,), rules=("sdp", "marginal_sdp"))


class Said:
    def __init__(self):
        self.notes, self.steps = [], []

    def done(self, count, total, text):
        self.steps.append((count, total))

    def note(self, text):
        self.notes.append(text)


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    folder = tmp_path_factory.mktemp("drill")
    frame = run_all(folder / "store.sqlite", make_plan(SETTINGS, ("iris-tv",)))
    said = Said()
    wanted = drilldown.chosen("worst:2", frame)
    outdated = frame.loc[~frame["key"].isin(wanted), "key"].iloc[0]
    statement = "UPDATE records SET fingerprint = 'older' WHERE unit = ? AND rule = ? AND metric = ?"
    change(folder / "store.sqlite", statement, outdated.split("/", 2))
    with Store(folder / "store.sqlite", writing=True) as store:
        made = drilldown.make(store, [*wanted, outdated], folder / "html", said)
    build(made_up.results(frame, database=folder / "store.sqlite"), folder / "html", made_up.PLAIN)
    return folder / "html", frame, wanted, made, said


def test_pages_are_whole_bounded_and_from_disk(report):
    _, _, _, made, _ = report
    for path in made:
        text = path.read_text()
        parsed = outline(text)
        assert parsed.fetched == ["data:,"]
        assert [target for target in parsed.targets if target[0] != "#"] == ["../index.html"]
        assert len(text.encode()) <= 180_000
        assert text.count("<figure") == 4
        assert "sdp-bench replay" in text


def test_a_page_that_fails_is_a_note(report):
    *_, made, said = report
    assert len(made) == 2
    (note,) = said.notes
    assert "has another version since it was measured" in note
    assert said.steps[-1] == (3, 3)


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
    command = (
        f"sdp-bench report --drill-down KEY --database {folder.parent / 'store.sqlite'} --output {folder}"
    )
    assert text.count(public(command)) == 1  # in the folder where the report was made
    for key in keys:
        assert drilldown.chosen(key, frame) == [key]


def test_the_worst_are_spread_over_rules_then_noise():
    frame = made_up.frame(depths=(1, 2), nets=2, inputs=2, suites=("iris-tv",))
    frame["unit"] = pd.util.hash_pandas_object(frame[["net", "input", "sigma"]], index=False).map(
        "{:016x}".format
    )
    frame = frame.assign(metric_spec=frame["metric"]).assign(key=keys_of)
    rules = {rule for rule in made_up.RULES if not rule.startswith("monte_carlo")}
    chosen = drilldown.worst(frame, len(rules))
    assert {key.split("/")[1] for key in chosen} == rules
    rows = frame.set_index("key")
    first = rows.loc[chosen[0]]
    excess = (rows["value"] - rows["floor95"])[(rows["metric"] == "tv_headline") & rows["rule"].isin(rules)]
    assert first["value"] - first["floor95"] == pytest.approx(excess.max())
    twice = drilldown.worst(frame, 2 * len(rules))
    cells = {(rows.loc[key]["rule"], rows.loc[key]["sigma"]) for key in twice}
    assert len(cells) == 2 * len(rules)  # a second noise level before a second net


def test_keys_hold_commas_and_so_do_lists_of_them():
    one, two = (
        "0123456789abcdef/sdp/tv:cells=512,pilot_samples=9",
        "fedcba9876543210/monte_carlo:samples=5,sampler=sobol/w1",
    )
    assert drilldown.chosen(f"{one},{two}", pd.DataFrame()) == [one, two]
    assert drilldown.chosen("none", pd.DataFrame()) == []
    for wrong in ("worst:0", "worst:²", "worst:101", "worst5", "sdp", "", ","):
        with pytest.raises(UserError):
            drilldown.chosen(wrong, pd.DataFrame())
    with pytest.raises(UserError, match="none was measured"):
        drilldown.chosen("worst:3", made_up.frame(suites=("iris-w1",)))


def test_lists_are_bounded_and_say_what_they_leave_out(tmp_path):
    results = made_up.results(made_up.frame(depths=(1,), nets=5, inputs=6, suites=("iris-tv",)))
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
    assert "20 of 30 " in told(text)
    assert "All measurements are in results.csv" in told(text)


def at_output(formula, dropped, closure, total=1.0, floor95=0.01, rounding=0.0):
    return OutputErrors(formula, dropped, closure, Estimate(total, floor95 / 2, floor95, 0.01), rounding)


def test_the_verdict_names_the_way_and_the_layers_of_the_error():
    names, zero = ["Linear 1", "ReLU 1", "Linear 2", "ReLU 2", "Linear 3"], (0.0,) * 5
    said = verdict(at_output(zero, zero, (0.0, 0.01, 0.0, 0.99, 0.0)), names)
    assert re.search("Nearly all .* by closure.* at ReLU 2 .99 %", said)
    said = verdict(at_output((0.0, 0.4, 0.0, 0.3, 0.0), zero, (0.0, 0.0, 0.0, 0.3, 0.0)), names)
    assert re.search("Most .* own approximation of a layer .70 %", said)
    said = verdict(at_output((0.0, 0.5, 0.0, 0.0, 0.0), (0.5, 0.0, 0.0, 0.0, 0.0), zero), names)
    assert re.search("more than one way.*Linear 1 .50 %.*ReLU 1 .50 %", said)
    said = verdict(at_output((0.001, *zero[1:]), zero, zero, total=0.009), names)
    assert "cannot be told from the exact ones" in said
    assert "spread over many layers" in verdict(at_output((0.2,) * 5, zero, zero), names)
