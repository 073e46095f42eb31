"""The command as a user meets it: what it prints, its exit codes, and what it leaves behind.

It runs in this process, where what it imports is there already, but for what only a process of its own shows.
"""

import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pandas as pd
import pytest

from sdp_bench.bench.nets import storage
from sdp_bench.bench.results.columns import keys
from sdp_bench.bench.results.folder import read
from tests.attacks.calls import complaint
from tests.bench.conftest import change
from tests.reports.made_up import PLAIN
from tests.sdp_bench.helpers import command, tiny

EXPERIMENTS = ("iris-tv", "iris-w1", "iris-std")


TINY = tiny()


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A folder with the results and report of a tiny run."""
    folder = tmp_path_factory.mktemp("finished")
    ran = command("run", *EXPERIMENTS, *TINY, "--sigma", "0.1,10", cwd=folder)
    assert ran.code == 0, ran.err
    assert "groups 4/4" in ran.err
    assert "left" in ran.err
    return folder


@pytest.fixture(scope="module")
def reported(finished):
    """What its report printed, and the table beside the page."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sdp_bench.reports.page.every_section", lambda: PLAIN)
        made = command("report", "--no-committed", cwd=finished)
    assert made.code == 0, made.err
    return made.out, pd.read_csv(finished / "reports" / "html" / "results.csv")


def test_report_and_table(finished, reported):
    said, table = reported
    page = finished / "reports" / "html" / "index.html"
    assert said.strip() == f"report: {page.relative_to(finished)}"
    assert (page.parent / "suite-iris-tv.html").stat().st_size > 5_000
    assert set(table.rule) == {"sdp", "monte_carlo:samples=10"}
    assert set(table.experiment) == {"iris-tv", "iris-w1", "iris-std"}


def test_damaged_committed_results_are_one_line_and_the_report_is_written(finished, monkeypatch, tmp_path):
    monkeypatch.setattr("sdp_bench.reports.results.COMMITTED", tmp_path / "nothing")
    monkeypatch.setattr("sdp_bench.reports.page.every_section", lambda: PLAIN)
    monkeypatch.setenv("SDP_BENCH_CACHE", str(tmp_path / "cache"))
    words = ("report", "--database", finished / "results", "--output", "page")
    code, out, err = command(*words, cwd=tmp_path)
    assert code == 3
    assert err.splitlines()[-1].startswith("Error: the results that come with the package are damaged")
    assert out.strip() == f"report: {Path('page') / 'index.html'}"
    assert 'href="committed' not in (tmp_path / "page" / "index.html").read_text(encoding="utf-8")


@pytest.mark.slow
def test_before_anything_is_measured_the_report_is_of_the_committed_results(finished, tmp_path):
    theirs = Path("reports") / "html" / "committed" / "index.html"
    code, out, err = command("report", cwd=tmp_path)
    assert (code, out.strip()) == (0, f"committed results: {theirs}")
    assert "no results yet" in err
    alone = {path.name: path.read_text("utf-8") for path in (tmp_path / theirs).parent.glob("*.html")}
    assert 'id="paper"' in alone["paper.html"]
    assert not any('id="here"' in text for text in alone.values())
    shutil.copytree(finished / "results", tmp_path / "results")
    code, out, _ = command("report", cwd=tmp_path)
    assert code == 0
    assert out.splitlines()[1] == f"committed results: {theirs}"
    assert out.splitlines()[2].startswith("None of the ")  # nets of 8 units
    assert 'id="here"' in (tmp_path / theirs.parents[1] / "index.html").read_text(encoding="utf-8")
    assert 'id="here"' not in (tmp_path / theirs).read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("key", "exit_code", "message"),
    [
        ("ffffffffffffffff/sdp", 2, "no measurement has a key"),
        ("{unit}", 2, "begins the keys of"),
        ("worst:0", 2, "n from 1 to 100"),
        ("x", 2, "neither none, worst:n nor keys"),
        ("{first}", 3, "no drill-down of {first}: sdp, "),
    ],
)
def test_a_requested_page_that_is_not_made_is_an_error(
    finished, tmp_path, monkeypatch, key, exit_code, message
):
    monkeypatch.setattr("sdp_bench.reports.page.every_section", lambda: PLAIN)
    shutil.copytree(finished / "results", tmp_path / "results")
    change(tmp_path / "results", lambda rows: rows.assign(fingerprint="older"))
    measured = read(tmp_path / "results").measurements
    first = keys(measured[measured["rule"] == "sdp"]).iloc[0]
    names = {"unit": first.partition("/")[0], "first": first}
    done = command("report", "--no-committed", "--drill-down", key.format(**names), cwd=tmp_path)
    assert done.code == exit_code, done.err
    assert message.format(**names) in done.err
    assert (tmp_path / "reports").exists() == (exit_code == 3)


def test_replay_from_the_table(finished, reported):
    _, table = reported
    key = table[(table.metric == "tv_headline") & (table.rule == "monte_carlo:samples=10")].key.iloc[0]
    done = command("replay", key, cwd=finished)
    assert done.code == 0, done.err
    assert "identical to the last bit" in done.out
    assert "oracle" in done.out


def test_a_replay_that_differs_says_so(finished, tmp_path):
    copy = shutil.copytree(finished / "results", tmp_path / "copy")
    change(copy, lambda rows: rows.assign(value=rows["value"] + 1e-9))
    key = keys(read(copy).measurements).iloc[0]
    done = command("replay", key, "--database", str(copy), cwd=tmp_path)
    assert done.code == 3
    assert "DIFFERENT" in done.out


def test_the_package_is_the_command_and_its_help_does_not_import_torch(tmp_path):
    code = "import runpy, sys\ntry: runpy.run_module('sdp_bench', run_name='__main__')\n"
    code += "finally: print({'torch', 'pandas'} & set(sys.modules))"
    done = subprocess.run(
        [sys.executable, "-c", code, "--help"], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0
    assert done.stdout.splitlines()[-1] == "set()"
    assert "Usage:" in done.stdout


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["run"], "name experiments to run, or --all"),
        (["run", "iris"], "experiment 'iris' not found; did you mean 'iris-"),
        (["run", "iris-tv", "--all"], "name experiments"),
        (["run", "--all", "--preset", "huge"], "choose from smoke, quick, paper"),
        (["run", "--all", "--rules", "spd"], "rule 'spd' not found; did you mean 'sdp'?"),
        (["run", "--all", "--rules", "monte_carlo:samples=1"], "at least 2"),
        (["run", "--all", "--sigma", "big"], "not a list of numbers"),
        (["run", "--all", "--device", "cuda:99"], "device 'cuda:99'"),
        (["run", "iris-tv", "--preset", "smoke", "--width", "7"], "no net of these experiments is committed"),
        (["report", "--run", "1"], "no results at"),
        (["run", "--all", "--shard", "3/2"], "not a part i/n"),
        (["diff", "a", "b"], "no results at a"),
        (["results", "check", "nowhere"], "no results at nowhere"),
        (["nonsense"], "No such command"),
    ],
)
def test_bad_input_is_exit_2_and_one_line(words, message, tmp_path):
    ended = command(*words, cwd=tmp_path)
    assert complaint(*ended, (2,)) == ""
    assert message in ended.err
    assert list(tmp_path.iterdir()) == []


def _start(folder, *words):
    return subprocess.Popen(
        [sys.executable, "-m", "sdp_bench", "run", *EXPERIMENTS, *TINY, *words],
        cwd=folder,
        stderr=subprocess.PIPE,
        text=True,
    )


def _wait_for_groups(folder, count):
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        if len(list((folder / "measured").glob("*.parquet"))) >= count:
            return
        time.sleep(0.02)
    raise AssertionError("no group was finished in time")


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_stopping_a_run_keeps_what_is_finished(tmp_path, number):
    many = ",".join(f"{k / 10}" for k in range(1, 201))  # more than are done before the signal comes
    # A shell lets its background jobs ignore the signal, and their children inherit that, but no handler.
    handler = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        running = _start(tmp_path, "--sigma", many)
    finally:
        signal.signal(signal.SIGINT, handler)
    _wait_for_groups(tmp_path / "results", 2)
    for _ in range(3):  # somebody in a hurry
        running.send_signal(number)
        time.sleep(0.1)
    _, err = running.communicate(timeout=60)
    assert running.returncode == 128 + number
    assert "resumes" in err
    assert "Traceback" not in err
    stored = read(tmp_path / "results")
    assert stored.faults == ()
    assert [run.finished for run in stored.runs.values()] == [None]
    assert stored.measurements["unit"].nunique() >= 2


@pytest.mark.slow
def test_shards_give_what_one_run_gives_in_one_folder_or_copied_together(finished, tmp_path):
    whole = str(finished / "results")
    for part, folder in (("1/2", "one"), ("2/2", "other")):
        words = ("run", *EXPERIMENTS, *TINY, "--sigma", "0.1,10", "--shard", part, "--database", folder)
        assert "groups 2/2" in command(*words, cwd=tmp_path).err
    part = command("diff", "one", whole, cwd=tmp_path)
    assert " 0 different, 0 only in one, " in part.out
    assert ", 0 only in " + whole not in part.out
    shutil.copytree(tmp_path / "other", tmp_path / "one", dirs_exist_ok=True)
    same = command("diff", "one", whole, cwd=tmp_path)
    assert same.code == 0
    assert f" 0 different, 0 only in one, 0 only in {whole}\n" in same.out
    assert command("results", "check", "one", cwd=tmp_path).code == 0


def test_the_cache_is_listed_and_cleared(tmp_path, monkeypatch):
    monkeypatch.setenv("SDP_BENCH_CACHE", str(tmp_path / "cache"))
    assert "0 net files and 0 pages in" in command("cache", "list", cwd=tmp_path).out
    page = tmp_path / "cache" / "pages" / "0123456789abcdef.zip"
    page.parent.mkdir(parents=True)
    page.write_bytes(bytes(3000))
    net = "iris-relu-1x8-0123abcd-seed0.safetensors"
    storage.write(tmp_path / "cache" / "nets" / net, storage.to_file({}, {"x": "x" * 2000}))
    listed = command("cache", "list", cwd=tmp_path).out
    assert f"2 kB  {net}\n       3 kB  0123456789abcdef.zip\n" in listed
    assert "removed 1 net file and 1 page from" in command("cache", "clear", cwd=tmp_path).out
    assert "0 net files and 0 pages in" in command("cache", "list", cwd=tmp_path).out


@pytest.mark.parametrize(
    "call",
    [("run", "iris-tv", "--rules", "sdp", "--rules=dvia"), ("export", "--paper", "one", "--paper=two")],
)
def test_an_option_given_twice_is_refused(call, tmp_path):
    """Click would take the last one and drop the other."""
    code, _, err = command(*call, cwd=tmp_path)
    assert code == 2
    assert "is given twice" in err


@pytest.mark.parametrize(
    "words",
    [
        (),
        ("--output", "a"),
        ("--paper", "a", "--committed", "--all-runs"),
        ("--paper", "a", "--committed", "--database", "b"),
        ("--paper", "a", "--run", "1", "--all-runs"),
    ],
)
def test_export_refuses_options_that_do_not_go_together(words, tmp_path):
    code, _, err = command("export", *words, cwd=tmp_path)
    assert code == 2
    assert err.splitlines()[-1].startswith("Error: ")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("experiments", "options", "refused"),
    [
        ("two-moons uci", "--inputs 3 --noise cauchy", "--inputs, --noise"),
        ("two-moons", "--sigma 1", "--sigma"),
        ("uci", "--rules sdp", "--rules"),
        ("iris-tv", "--datasets yacht", "--datasets"),
        ("iris-sensitivity", "--learning-rate 0.1", "--learning-rate"),
    ],
)
def test_an_option_that_no_requested_experiment_takes_is_refused(experiments, options, refused, tmp_path):
    done = command("run", *experiments.split(), *options.split(), "--preset", "smoke", cwd=tmp_path)
    assert (done.code, done.out) == (2, "")
    assert done.err.startswith(f"Error: {refused} cannot be used with")
    assert list(tmp_path.iterdir()) == []
