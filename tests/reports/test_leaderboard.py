import io
import shutil
from dataclasses import replace
from xml.etree import ElementTree

import numpy as np
import pandas as pd
import pytest

from sdp_bench.bench.errors import UserError
from sdp_bench.bench.experiments.problem_set import NAME
from sdp_bench.bench.plugins.plugin import Plugin
from sdp_bench.bench.settings import Settings
from sdp_bench.reports.leaderboard import (
    BADGES,
    USES,
    as_csv,
    build,
    problems,
    provenance,
    read,
    table_of,
)
from sdp_ref.rules import Traits
from tests.attacks.calls import called
from tests.project import ROOT
from tests.reports import made_up
from tests.reports.helpers import outline

HOSTILE = '<script>alert(1)</script>"&\x1b[31m'
RULES = {"sdp": 0.2, "unscented": 0.3, "marginal_sdp": 0.4}
VERSIONS = "rule 1, metric 1, oracle 1"
METRICS = ("tv_headline", "tv_principal", "tv_class", "tv_joint")
WHOLE, DECISION = USES[:2]
(HEAVY,) = (use for use in USES if use.heavy)


def entry_folder(folder, rules, solved=lambda problem: True, labels=(), seconds=1e-3, **described):
    """Results with made-up values of some rules (their means) for the problems that they solved."""
    rows = problems()[problems()["metric_spec"].str.partition(":")[0].isin(METRICS)]
    rng = np.random.default_rng(5)
    noise = dict(zip(rows["unit"], rng.uniform(0.9, 1.1, len(rows)), strict=True))
    measured = [
        rows.assign(
            rule=rule,
            **made_up.columns_of(Traits(dict(labels).get(rule, rule), marginal="marginal" in rule)),
            value=mean * rows["unit"].map(noise),
            floor=0.01,
            floor95=0.02,
            stderr=0.001,
            unit_of_measure="1",
            seconds=seconds,
            precision="float32",
        )
        for rule, mean in rules.items()
    ]
    frame = pd.concat(measured, ignore_index=True).assign(experiment=NAME)
    described = {"environment": {"cpu": "a processor"}} | described
    made_up.write_results(folder, frame, measured=frame["setting"].map(solved), **described)
    return folder


@pytest.fixture(scope="module")
def first(tmp_path_factory):
    return entry_folder(tmp_path_factory.mktemp("first") / "first", RULES)


def standing(found, name):
    (row_of_entry,) = (each for each in found.rows if each.entry.name == name)
    return row_of_entry


def test_rules_are_ranked_from_the_best(first):
    for use in (WHOLE, DECISION, HEAVY):
        found = table_of(read([first]), use)
        assert [(each.entry.name, each.position, each.among) for each in found.rows] == [
            (name, position, 3) for position, name in enumerate(RULES, 1)
        ]
        assert [each.tied for each in found.rows] == [True, False, False]


def test_the_score_counts_each_net_once(first):
    entries = read([first])
    measurements = entries[0].frame.merge(problems()[["unit", "metric_spec"]], on=["unit", "metric_spec"])
    measurements = measurements[measurements["metric"].isin(WHOLE.metrics)]
    expected = measurements.groupby(["net", "input"])["value"].mean().groupby("net").mean().mean()
    found = standing(table_of(entries, WHOLE), entries[0].name)
    assert found.value == pytest.approx(expected)
    assert found.low < found.value < found.high
    assert set(found.settings) == set(measurements["setting"])
    of_setting = measurements[measurements["setting"] == "iris-relu-4/gaussian-1"]
    setting = found.settings["iris-relu-4/gaussian-1"]
    assert setting.mean == pytest.approx(of_setting["value"].mean())
    assert setting.spread == pytest.approx(of_setting.groupby("input")["value"].mean().std())
    assert setting.floor == pytest.approx(0.01)


def test_a_rule_is_ranked_on_the_problems_that_it_solved(first, tmp_path):
    def solved(setting):
        return setting.startswith("iris-gelu-4/gaussian-1")

    partial = entry_folder(tmp_path / "partial", {"dvia": 0.25}, solved)
    found = table_of(read([first, partial]), WHOLE)
    mine = standing(found, "dvia")
    assert (mine.position, mine.among, mine.measured, mine.of) == (2, 4, 6, 54)
    assert [standing(found, name).among for name in RULES] == [3, 3, 3]


def test_a_problem_without_all_components_is_not_solved(first):
    entries = read([first])
    twice = [replace(e, frame=e.frame.assign(component="0")) for e in entries]
    other = [replace(e, frame=e.frame.assign(component="1")) for e in entries[:2]]
    joined = [
        replace(a, frame=pd.concat([a.frame, b.frame], ignore_index=True))
        for a, b in zip(twice, other, strict=False)
    ]
    found = table_of([*joined, twice[2]], WHOLE)
    assert {each.entry.name for each in found.rows} == {entry.name for entry in joined}


def test_the_cheapest_rule_tied_with_the_best_is_named(tmp_path):
    slow = entry_folder(tmp_path / "slow", {"sdp": 0.2}, seconds=1.0)
    fast = entry_folder(tmp_path / "fast", {"unscented": 0.2 + 1e-9}, seconds=1e-4)
    entries = read([slow, fast])
    rng = np.random.default_rng(0)
    noisy = [replace(e, frame=e.frame.assign(value=rng.uniform(0.1, 0.3, len(e.frame)))) for e in entries]
    found = table_of(noisy, WHOLE)
    assert all(each.tied for each in found.rows)
    assert found.cheapest.name == "unscented"


def test_the_same_measurements_in_two_folders_are_one_entry_and_others_two(first, tmp_path):
    again = entry_folder(tmp_path / "again", RULES)
    assert [entry.name for entry in read([first, again])] == [entry.name for entry in read([first])]
    other = entry_folder(tmp_path / "other", {"sdp": 0.5})
    assert {e.name for e in read([first, other]) if e.rule == "sdp"} == {"sdp (first)", "sdp (other)"}


def test_equal_means_have_equal_ranks(tmp_path):
    entries = read([entry_folder(tmp_path / "equal", {"sdp": 0.2, "unscented": 0.2, "dvia": 0.3})])
    rounded = [
        replace(e, frame=e.frame.assign(value=e.frame["value"] * (1 + 1e-15 * (e.rule == "sdp"))))
        for e in entries
    ]
    found = table_of(rounded, WHOLE)
    assert {row.entry.rule: row.position for row in found.rows} == {"sdp": 1, "unscented": 1, "dvia": 3}


def test_numbers_that_another_run_has_too_are_measured_again(first, tmp_path):
    again = entry_folder(tmp_path / "again", {"sdp": 0.2 + 1e-5, "unscented": 0.2})
    entries = {entry.name: entry for entry in read([first, again])}
    assert {name for name, entry in entries.items() if entry.repetitions} == {"sdp"}
    assert entries["sdp"].repeated == 1
    assert provenance(entries["sdp"])["numbers"] == "measured again"
    assert provenance(entries["marginal_sdp"])["numbers"] == "reported"
    shutil.copytree(first, tmp_path / "copy")
    assert not any(entry.repetitions for entry in read([first, tmp_path / "copy"]))


def test_a_part_of_the_numbers_measured_again_is_that_share(first, tmp_path):
    part = entry_folder(tmp_path / "part", RULES, lambda setting: setting.startswith("iris-relu-4/gaussian"))
    entries = read([part, first])
    count = len(problems()["setting"].unique())
    assert {entry.file for entry in entries} == {"first"}
    assert all(0.5 / count < entry.repeated < 0.5 for entry in entries)


@pytest.mark.parametrize("has_file", [True, False])
def test_the_page_says_whether_the_file_of_a_rule_is_in_its_entry(tmp_path, has_file):
    settings = Settings(plugins=(Plugin("mine", "rules/mine.py:Mine", "0" * 16),)).as_dict()
    folder = entry_folder(tmp_path / "mine", {"mine": 0.2, "sdp": 0.3}, settings=settings)
    if has_file:
        (folder / "mine.py").write_text("")
    sources = {entry.name: entry.source for entry in read([folder])}
    assert sources == {"mine": "file in the entry" if has_file else "file not given", "sdp": "built in"}


def test_the_front_has_every_rule_that_no_other_one_beats_in_score_and_time(tmp_path):
    rng = np.random.default_rng(3)
    folders = [
        entry_folder(tmp_path / rule, {rule: rng.uniform(0.1, 0.9)}, seconds=rng.uniform(1e-4, 1e-2))
        for rule in ("sdp", "unscented", "dvia", "marginal_sdp", "moment_matching", "cubature")
    ]
    rows = table_of(read(folders), WHOLE).rows
    for row in rows:
        beaten = any(other.value < row.value and other.entry.seconds < row.entry.seconds for other in rows)
        assert row.is_on_front == (not beaten)
    assert 1 < sum(row.is_on_front for row in rows) < len(rows)


def test_the_table_as_csv_has_the_numbers_of_the_page(first):
    tables = [table_of(read([first]), use) for use in (WHOLE, HEAVY)]
    data = pd.read_csv(io.StringIO(as_csv(tables)))
    for table in tables:
        of_use = data[data["use"] == table.use.name]
        for row in table.rows:
            (line,) = of_use[(of_use["spec"] == row.entry.rule) & (of_use["setting"] == "all")].itertuples()
            assert (line.rank, line.rank_low, line.rank_high) == (row.position, row.first, row.last)
            assert (line.score, line.low, line.high) == (row.value, row.low, row.high)
            of_settings = of_use[(of_use["spec"] == row.entry.rule) & (of_use["setting"] != "all")]
            means = {name: score.mean for name, score in row.settings.items()}
            assert dict(zip(of_settings["setting"], of_settings["score"], strict=True)) == means
            assert of_settings[["net", "noise", "sigma", "spread", "floor"]].notna().all(axis=None)


def test_copied_results_are_one_entry(first, tmp_path):
    """Joining results is copying files."""
    entry_folder(tmp_path / "both", {"dvia": 0.25})
    shutil.copytree(first, tmp_path / "both", dirs_exist_ok=True)
    values = [
        {standing.entry.rule: standing.value for standing in table_of(read([path]), WHOLE).rows}
        for path in (first, tmp_path / "both")
    ]
    assert values[1].keys() == {*RULES, "dvia"}
    assert {rule: values[1][rule] for rule in RULES} == values[0]


def test_the_committed_entry_is_read():
    entries = read([ROOT / "entries" / "sdp-bench"])
    assert len({entry.rule for entry in entries}) == len(entries) > 5
    assert all(entry.run.environment["cpu"] for entry in entries)
    assert {standing.entry.name for standing in table_of(entries, WHOLE).rows} >= {"sdp", "dvia"}


@pytest.mark.slow
@pytest.mark.parametrize(("of_net", "of_input"), [(0.1, 0.0), (0.1, 0.05), (0.1, 0.1), (0.03, 0.1)])
def test_intervals_cover_the_mean_over_nets_and_inputs(first, of_net, of_input):
    """Six nets with three inputs each, shared by four and two; standard error of 400 trials: .011."""
    (entry, *_) = read([first])
    frame = entry.frame[entry.frame["metric"].isin(WHOLE.metrics)]
    rng = np.random.default_rng(11)
    hits, trials = 0, 400
    for _ in range(trials):
        nets = dict.fromkeys(frame["net"])
        effects = {net: rng.normal(0, of_net) for net in nets}
        inputs = {row: rng.normal(0, of_input) for row in dict.fromkeys(frame["input"])}
        values = 0.5 + frame["net"].map(effects) + frame["input"].map(inputs)
        values += rng.normal(0, 0.03, len(frame))
        (found,) = table_of([replace(entry, frame=frame.assign(value=values))], WHOLE).rows
        hits += found.low <= 0.5 <= found.high
    assert hits / trials >= 0.95 - 2 * 0.011


@pytest.fixture(scope="module")
def page(first, tmp_path_factory):
    folder = tmp_path_factory.mktemp("leaderboard")
    heavy = entry_folder(
        folder / "hostile", {"mine": 0.3}, lambda name: "cauchy" in name, [("mine", HOSTILE)]
    )
    build([first, heavy], folder / "page")
    return folder / "page"


def test_texts_of_an_entry_are_escaped(page):
    for path in page.rglob("*.*"):
        text = path.read_text(encoding="utf-8")
        assert "\x1b" not in text
        if path.suffix in (".html", ".svg"):
            assert text.count("<script") == 2 * (path.suffix == ".html")  # our own


def test_badges_are_well_formed(page):
    badges = list((page / BADGES).glob("*.svg"))
    assert len(badges) == len(RULES) + 1
    for path in badges:
        assert ElementTree.parse(path).getroot().tag.endswith("svg")


@pytest.mark.parametrize("words", [["--leaderboard"], ["entry"], ["--leaderboard", "entry", "--all-runs"]])
def test_options_that_do_not_go_together_are_refused(words):
    ended = called(["report", *words])
    assert ended.code == 2
    assert "Traceback" not in ended.err


def test_it_loads_nothing_and_its_links_lead_somewhere(page):
    found = outline((page / "index.html").read_text(encoding="utf-8"))
    assert not [address for address in found.fetched if address.startswith("http")]
    for address in (*found.fetched, *found.targets):
        if address.startswith("#"):
            assert address[1:] in found.ids
        elif not address.startswith(("data:", "https://")):
            assert (page / address).is_file(), address


def test_the_command_writes_the_page(first, tmp_path):
    ended = called(["report", "--leaderboard", first, "--output", tmp_path / "page"], seconds=600)
    assert ended.code == 0, ended.said
    assert (tmp_path / "page/index.html").is_file()


def test_a_folder_without_the_problems_is_refused(tmp_path, first):
    made_up.write_results(tmp_path / "other", [{"rule": "sdp", "metric_spec": "w1", "value": 0.1}])
    with pytest.raises(UserError, match="no measurement of sdp-bench-1"):
        read([first, tmp_path / "other"])
    for path in (tmp_path / "missing", tmp_path):
        with pytest.raises(UserError):
            read([path])
