import json
from xml.etree import ElementTree

import pytest

from sdp_bench.bench.gate.baseline import read
from sdp_bench.bench.gate.cases import GateScope
from tests.attacks.calls import called, complaint
from tests.bench.gate.gate_rules import few_cells, write_rule


@pytest.fixture(autouse=True)
def small(monkeypatch):
    scope = few_cells(inputs=1)
    monkeypatch.setattr(GateScope, "of_ci", lambda: scope)


@pytest.fixture
def run(tmp_path):
    words = ("check", "--baseline", tmp_path / "ci.json")
    return lambda *arguments: called([*words, *arguments], seconds=600)


@pytest.fixture
def files(tmp_path):
    return {kind: tmp_path / "out" / kind for kind in ("json", "junit", "markdown")}


@pytest.fixture
def mine(tmp_path, run):
    """A rule in a file and a baseline of it."""
    file = tmp_path / "mine.py"
    address = write_rule(file)
    result = run("--rules", f"{address},sdp", "--update")
    assert result.code == 0, result.said
    assert "has the current mine, sdp" in result.said
    return file


def options(files):
    return [item for kind, path in files.items() for item in (f"--{kind}", path)]


def test_unchanged_rules_pass(run, mine, tmp_path, files):
    files["badge"] = tmp_path / "out/badge.svg"
    result = run("--rules", f"{mine}:Mine,sdp", *options(files))
    assert result.code == 0
    assert "accuracy: PASSED (2 unchanged)" in result.said
    assert result.out.splitlines()[-2:] == [
        "speed: not compared; give --against main, or another revision or folder",
        "verdict: passed",
    ]
    found = json.loads(files["json"].read_text())
    assert (found["exit code"], found["regressions"]) == (0, [])
    suites = ElementTree.parse(files["junit"]).getroot()
    assert [suite.get("failures") for suite in suites] == ["0"]
    assert len(suites.findall("testsuite/testcase")) == 2
    assert "| `mine` | unchanged | 1 of 1 |" in files["markdown"].read_text()
    assert "<title>sdp-bench: 2 passed, 0 failed</title>" in files["badge"].read_text()


@pytest.mark.parametrize("change", [{"scale": 1.005}, {"shift": 0.002}])
def test_a_change_of_predictions_ends_in_one(run, mine, tmp_path, change, files):
    write_rule(mine, **change)
    files["badge"] = tmp_path / "badge.json"
    result = run("--rules", f"{mine}:Mine,sdp", "--seed", 1, *options(files))
    assert result.code == 1
    assert "accuracy: CHANGED of mine" in result.said
    verdict, kit, step = result.out.splitlines()[-3:]
    assert verdict == "verdict: changed"
    assert kit.endswith(f"sdp-bench check-rule {mine}:Mine")
    assert step.endswith(f"--baseline {tmp_path / 'ci.json'} --rules {mine}:Mine --update")
    found = json.loads(files["json"].read_text())
    assert (found["exit code"], found["regressions"], found["changes"]) == (1, [], ["accuracy"])
    (verdict,) = found["verdicts"]
    unchanged = {finding["subject"]: finding["status"] == "unchanged" for finding in verdict["findings"]}
    assert unchanged == {"mine": False, "sdp": True}
    failures = ElementTree.parse(files["junit"]).getroot().findall("testsuite/testcase/failure")
    assert len(failures) == 2  # the cell, and all cells together
    assert all(failure.get("message").startswith("changed") for failure in failures)
    assert "| accuracy | `mine` | 4-100-3 seed 0 sigma 1, row 42 | **" in files["markdown"].read_text()
    assert json.loads(files["badge"].read_text())["message"] == "changed, 1 passed, 1 failed"


def test_update_accepts_a_change(run, mine, tmp_path):
    write_rule(mine, scale=1.05)
    before = read(tmp_path / "ci.json").rules.keys()
    words = ("--rules", f"{mine}:Mine")
    assert run(*words).code == 1
    assert run(*words, "--update").code == 0
    assert run(*words).code == 0
    assert read(tmp_path / "ci.json").rules.keys() == before


@pytest.mark.slow
def test_a_rule_that_is_slower_than_in_another_folder_stops_unless_accepted(tmp_path, monkeypatch):
    """The rule does its work ten times."""
    (tmp_path / "old").mkdir()
    write_rule(tmp_path / "old" / "mine.py")
    write_rule(tmp_path / "mine.py", times=10)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    words = ["check", "--against", "old", "--rules", "mine.py:Mine"]
    slower = called(words, seconds=600)
    assert slower.code == 1
    assert "accuracy: not compared; give --baseline ci.json" in slower.out
    assert "speed: REGRESSION of mine" in slower.out
    assert slower.out.splitlines()[-1].endswith("--against old --allow-slower mine.py:Mine")
    accepted = called([*words, "--allow-slower", "mine.py:Mine"], seconds=600)
    assert accepted.code == 0
    assert "mine in 4-100-3 seed 0: slower, accepted" in accepted.out
    unknown = called([*words, "--allow-slower", "sdp"], seconds=600)
    assert complaint(*unknown, (2,)) == ""


def test_nothing_to_compare_with_is_bad_input(tmp_path):
    result = called(["check", "--rules", "sdp"])
    assert complaint(*result, (2,)) == ""
    assert "--baseline for predictions or --against for times" in result.err


def test_a_rule_that_fails_ends_in_three(run, mine):
    mine.write_text("class Mine:\n    name = 'mine'\n    def propagate(self, net, x):\n        1 / 0\n")
    result = run("--rules", f"{mine}:Mine,sdp")
    assert result.code == 3
    assert "ZeroDivisionError: division by zero" in result.said
    assert "1 unchanged" in result.said
    verdict, step = result.out.splitlines()[-2:]
    assert verdict == "verdict: failed to run"
    assert step.endswith(f"sdp-bench check-rule {mine}:Mine")
    refused = run("--rules", f"{mine}:Mine", "--update")
    assert (refused.code, "no baseline is written" in refused.err) == (3, True)


def test_a_rule_that_is_not_in_the_baseline_is_bad_input_unless_allowed(run, mine):
    refused = run("--rules", "sdp,unscented")
    assert (refused.code, "accept it with --rules unscented --update" in refused.err) == (2, True)
    assert "nonesuch" in run("--rules", "nonesuch").err
    allowed = run("--rules", "sdp,unscented", "--allow-new")
    assert allowed.code == 0
    assert "unscented: not compared; not in the baseline; --update adds it" in allowed.said
    nothing = run("--rules", "unscented", "--allow-new")
    assert nothing.code == 3
    assert "verdict: nothing compared" in nothing.out


def test_infinite_numbers_are_written_as_text(run, mine, files):
    """A rule that becomes a point mass: its KL divergence is infinite."""
    write_rule(mine, scale=0.0)
    run("--rules", f"{mine}:Mine,sdp", *options(files))
    assert all(path.exists() for path in files.values())
    assert "Infinity" not in files["json"].read_text()
    findings = json.loads(files["json"].read_text())["verdicts"][0]["findings"]
    numbers = [finding["numbers"] for finding in findings if finding["subject"] == "mine"]
    assert [each["KL"] for each in numbers if "KL" in each] == ["inf"]


@pytest.mark.parametrize(
    ("arguments", "content", "message"),
    [
        ([], None, "sdp-bench check --baseline"),
        ([], "{", "damaged"),
        (["--update"], "{}", "not a baseline"),
        (["--against", "nowhere"], None, "does not exist"),
        (["--against", "main", "--update"], None, "leave out --against"),
    ],
)
def test_bad_input_is_one_line(run, tmp_path, arguments, content, message):
    if content is not None:
        (tmp_path / "ci.json").write_text(content)
    code, out, err = run(*arguments)
    assert complaint(code, out, err, (2,)) == ""
    assert message in err


def test_update_writes_no_report(run, mine, tmp_path):
    before = (tmp_path / "ci.json").read_bytes()
    result = run("--rules", "sdp", "--update", "--json", tmp_path / "out")
    assert complaint(*result, (2,)) == ""
    assert (tmp_path / "ci.json").read_bytes() == before


def test_an_output_file_that_cannot_be_written_ends_before_the_comparison(run, mine, tmp_path):
    (tmp_path / "file").write_text("")
    result = run("--rules", "sdp", "--json", tmp_path / "file/out.json")
    assert complaint(*result, (3,)) == ""
    assert "accuracy" not in result.said
