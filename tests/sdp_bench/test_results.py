"""Commands on folders of results: results check, diff, report and export --paper, and choices of runs."""

import shutil
from pathlib import Path

import pandas as pd
import pytest

from sdp_bench.bench.results.columns import keys
from sdp_bench.bench.results.folder import read
from tests.attacks.calls import called
from tests.reports import made_up

ROWS = [
    {
        "unit": f"{unit:016x}",
        "net": f"{unit:016x}",
        "network": "4-100-3",
        "activation": "relu",
        "depth": 1,
        "seed": unit,
        "input": 3,
        "noise": "gaussian",
        "sigma": 1.0,
        "rule": rule,
        "metric_spec": metric,
        "value": value,
        "floor": 0.01,
        "floor95": 0.02,
        "stderr": 0.001,
        "unit_of_measure": "1",
        "seconds": 1e-3,
    }
    for unit in range(2)
    for rule, value in {"sdp": 0.2, "dvia": 0.3}.items()
    for metric in ("tv_headline", "tv_class")
]


@pytest.fixture
def folder(tmp_path):
    made_up.write_results(tmp_path / "results", ROWS)
    return tmp_path / "results"


def cut(path):
    path.write_bytes(path.read_bytes()[:-1])


def flip(path):
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 4
    path.write_bytes(content)


def test_whole_results_pass_the_check(folder):
    code, out, err = called(["results", "check", folder])
    assert (code, err) == (0, "")
    assert out == f"{folder} is as it was written: 8 measurements of 1 runs\n"


@pytest.mark.parametrize("damage", [cut, flip])
@pytest.mark.parametrize("pattern", ["measured/*.parquet", "runs/*/plan.parquet", "runs/*/run.json"])
def test_a_damaged_file_fails_the_check(folder, pattern, damage):
    (path,) = folder.glob(pattern)
    damage(path)
    code, out, _ = called(["results", "check", folder])
    assert code == 3
    assert path.parent.name in out.splitlines()[0]
    assert "left out" in out.splitlines()[0]
    assert out.splitlines()[-1].startswith(f"{folder}: ")


@pytest.mark.parametrize("is_finished", [True, False])
def test_missing_measurements_of_a_finished_run_fail_the_check(tmp_path, is_finished):
    measured = [row["unit"][-1] == "0" or row["rule"] == "sdp" for row in ROWS]
    number = made_up.write_results(tmp_path, ROWS, measured=measured, finished=is_finished)
    code, out, _ = called(["results", "check", tmp_path])
    assert code == (3 if is_finished else 0)
    assert (f"run {number}: 2 of 8 measurements are missing" in out) == is_finished


def test_measurements_that_contradict_each_other_fail_the_check(folder):
    again = [row | {"value": row["value"] + 0.1 * (row["rule"] == "sdp")} for row in ROWS]
    made_up.write_results(folder, again)
    code, out, _ = called(["results", "check", folder])
    assert code == 3
    assert out.splitlines()[0].startswith("4 measurements differ between runs of the same versions")
    # Those of newer versions count, and nothing contradicts them.
    made_up.write_results(folder, [row | {"fingerprint": "rule 2, metric 1, oracle 1"} for row in ROWS])
    assert called(["results", "check", folder]).code == 0


def test_folders_with_the_same_measurements_are_equal(folder, tmp_path):
    made_up.write_results(tmp_path / "other", ROWS[::-1], command="another command")
    code, out, err = called(["diff", folder, tmp_path / "other"])
    assert (code, err) == (0, "")
    assert out == f"8 equal, 0 different, 0 only in {folder}, 0 only in {tmp_path / 'other'}\n"


def test_differences_are_counted_and_the_largest_come_first(folder, tmp_path):
    changed = pd.DataFrame(ROWS)
    changed.loc[0, "value"] += 0.005
    changed.loc[3, "value"] -= 0.05
    changed.loc[3, "floor"] *= 1.5
    changed.loc[5, "value"] *= 1 + 1e-12  # rounding
    changed.loc[6, "seconds"] = 2e-3
    changed.loc[7, "fingerprint"] = "rule 2, metric 1, oracle 1"
    changed["fingerprint"] = changed["fingerprint"].fillna(made_up.DEFAULTS["fingerprint"])
    more = changed.loc[[2]].assign(rule="mine")
    made_up.write_results(tmp_path / "other", pd.concat([changed.drop(index=1), more], ignore_index=True))
    code, out, _ = called(["diff", folder, tmp_path / "other"])
    assert code == 0
    counts, code_line, time_line, fields, _, *largest = out.splitlines()
    assert counts == f"5 equal, 2 different, 1 only in {folder}, 1 only in {tmp_path / 'other'}"
    assert (code_line, time_line) == ("  of other code: 1", "  of other time: 1")
    assert fields.split() == ["different", "in", "value:", "2,", "floor:", "1"]
    key = keys(changed)
    assert [
        (line.split()[0], next(n for n in ("value", "floor") if n in line.split())) for line in largest
    ] == [
        (key[3], "value"),
        (key[0], "value"),
        (key[3], "floor"),
    ]
    assert [float(line.split()[-1]) for line in largest] == pytest.approx([50, 5, 5])


def test_damage_is_reported_before_a_comparison(folder, tmp_path):
    copy = shutil.copytree(folder, tmp_path / "copy")
    made_up.write_results(copy, [ROWS[0] | {"rule": "mine"}])
    newest = max((copy / "measured").iterdir(), key=lambda path: path.stat().st_mtime_ns)
    cut(newest)
    code, out, err = called(["diff", folder, copy])
    assert code == 0
    assert newest.name in err
    assert out.startswith("8 equal, 0 different, 0 only in")


# Choices of runs ------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def two(tmp_path_factory):
    """Two folders and their runs: two in the first, one in the second, each of other nets."""
    folder = tmp_path_factory.mktemp("two")
    runs = []
    for number, name in enumerate(("one", "one", "other")):
        frame = made_up.completed(
            made_up.frame(depths=(number + 1,), rules=made_up.FEW, experiments=("iris-tv",))
        )
        runs.append(
            made_up.write_results(folder / name, frame.assign(unit=f"{number}" + frame["unit"].str[1:]))
        )
    return folder / "one", folder / "other", runs


@pytest.fixture
def report(monkeypatch, tmp_path):
    """A call of `report`, and the depths of the nets in its table of measurements."""
    monkeypatch.setattr("sdp_bench.reports.page.every_section", lambda: made_up.PLAIN)
    monkeypatch.chdir(tmp_path)

    def call(*words):
        ended = called(["report", "--no-committed", "--output", tmp_path / "page", *words], seconds=300)
        assert ended.code == 0, ended.err
        return set(pd.read_csv(tmp_path / "page" / "results.csv")["depth"])

    return call


def test_a_report_of_several_folders_shows_the_newest_run_of_each(two, report):
    one, other, _ = two
    assert report(one, other) == report(other, one) == {2, 3}
    assert report(one) == report("--database", one) == {2}


def test_runs_of_all_folders_can_be_chosen(two, report):
    one, other, runs = two
    assert report("--all-runs", one, other) == {1, 2, 3}
    assert report("--run", f"{runs[0]},{runs[2][-4:]}", one, other) == {1, 3}


def test_a_folder_that_is_given_twice_or_copied_counts_once(two, report, tmp_path):
    one, _, _ = two
    shutil.copytree(one, tmp_path / "copy")
    assert report(one, one) == report(one, tmp_path / "copy") == {2}
    assert len(pd.read_csv(tmp_path / "page" / "results.csv")) == len(read(one).measurements) // 2


def test_a_folder_on_the_command_line_wins_over_one_in_a_file(two, report, tmp_path):
    one, other, _ = two
    (tmp_path / "some.toml").write_text(f'database = "{other}"')
    assert report("--config", tmp_path / "some.toml") == {3}
    assert report("--config", tmp_path / "some.toml", one) == {2}


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("report", "{one}", "--database", "{other}"), "FOLDER... and --database exclude each other"),
        (("report", "{one}", "nowhere"), "no results at nowhere"),
        (("report", "{one}", "{other}", "--run", "T"), "'T' is part of 3 runs in {one}, {other}, which has "),
        (("report", "{one}", "{other}", "--run", "no-run"), "no run no-run in {one}, {other}, which has "),
        (("report", "--database", "{one}", "--run", "T"), "'T' is part of 2 runs in {one}, which has "),
        (("report", "--leaderboard"), "--leaderboard needs the folders of results to rank: FOLDER..."),
        (
            ("export", "--paper", "paper", "--database", "{one}", "--run", "T"),
            "'T' is part of 2 runs in {one}",
        ),
        (
            ("export", "--paper", "paper", "--database", "{other}", "--run", "{first}"),
            "no run {first} in {other}",
        ),
    ],
)
def test_bad_choices_are_one_line(two, monkeypatch, tmp_path, words, message):
    monkeypatch.chdir(tmp_path)
    one, other, runs = two
    names = {"one": one, "other": other, "first": runs[0]}
    code, out, err = called([word.format(**names) for word in words])
    assert (code, out) == (2, "")
    assert err.splitlines()[-1].startswith(f"Error: {message.format(**names)}")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("choice", "depths"), [((), {2}), (("--run", "{first}"), {1}), (("--all-runs",), {1, 2})]
)
def test_a_paper_has_the_chosen_runs(two, monkeypatch, tmp_path, choice, depths):
    monkeypatch.chdir(tmp_path)
    one, _, runs = two
    chosen = [word.format(first=runs[0][-6:]) for word in choice]
    code, out, err = called(["export", "--paper", "paper", "--database", one, *chosen], seconds=300)
    assert (code, err) == (0, ""), err
    files = [path for path in (tmp_path / "paper").rglob("[!.]*") if path.is_file()]
    assert out == f"{len(files)} files in paper; {Path('paper/main.tex')} has them all\n"
    numbers = {int(path.name.split("-")[3]) for path in files if path.match("tables/iris-tv-relu-*.tex")}
    assert numbers == depths
