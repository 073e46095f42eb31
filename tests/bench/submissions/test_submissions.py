"""Submissions: read as they are written, checked by their own numbers and by measuring again."""

import json
from dataclasses import replace

import pytest
from click.testing import CliRunner
from jsonschema import Draft202012Validator

from sdp_bench.bench.errors import UserError
from sdp_bench.bench.problems.problem_set import problem_set
from sdp_bench.bench.submissions.checking import check, choice
from sdp_bench.bench.submissions.submission import SCHEMA_FILE, Guarantee, read, schema
from sdp_bench.commands.benchmark import submission as commands
from tests.project import ROOT

FOLDER = ROOT / "submissions"
ONE = 1 / 66
"""The share that is one problem."""
TEMPLATE = str(ROOT / "docs/examples/template.py:MyRule")
WHO = ("--author", "A. Author", "--licence", "MIT")


@pytest.fixture(scope="module")
def problems():
    return problem_set()


@pytest.fixture(scope="module")
def sdp():
    return read(FOLDER / "sdp.json")


@pytest.fixture(scope="module")
def seed(problems):
    """Of a choice that falls on a problem whose oracle is quick."""
    quick = "iris-relu-1/gaussian-1/"
    return next(seed for seed in range(1000) if choice(problems, ONE, seed)[0].startswith(quick))


def resealed(submission, **changed):
    """A submission changed by a forger, who makes a new digest."""
    made = replace(submission, **changed)
    return replace(made, digest=made.content_digest)


def first(mapping):
    return next(iter(mapping.values()))


def with_number(submission, problem, metric, component, numbers):
    content = {**submission.measurements}
    content[problem] = {**content[problem], metric: {**content[problem][metric], component: numbers}}
    return resealed(submission, measurements=content)


def test_the_published_schema_is_the_one_that_is_used():
    assert (ROOT / "docs/submission.schema.json").read_text() == SCHEMA_FILE.read_text()
    Draft202012Validator.check_schema(schema())


def test_all_that_are_here_are_small_whole_and_of_the_schema(problems):
    paths = sorted(FOLDER.glob("*.json"))
    found = {read(path).rule.name for path in paths}
    assert len({read(path).slug for path in paths}) == len(paths)
    assert found >= {
        "sdp",
        "marginal_sdp",
        "dvia",
        "moment_matching",
        "marginal_moment_matching",
        "unscented",
    }
    assert sum(path.stat().st_size for path in paths) < 1e6
    for path in paths:
        made = read(path)
        assert made.text() == path.read_text(encoding="utf-8"), path
        assert made.problem_set.digest == problems.digest


@pytest.mark.rounding
def test_a_true_submission_stands(sdp, problems, seed):
    found = check(sdp, problems, ONE, seed)
    assert found.passed, found.wrong
    assert "1 of 66 problems measured again" in found.notes[-1]


def test_a_forged_number_is_found_by_measuring_again(sdp, problems, seed):
    (problem,) = choice(problems, ONE, seed)
    (metric,) = (name for name in sdp.measurements[problem] if name.startswith("tv_headline"))
    value, *rest = sdp.measurements[problem][metric][""]
    forged = with_number(sdp, problem, metric, "", [value / 2, *rest])
    found = check(forged, problems, ONE, seed)
    assert [line for line in found.wrong if "the value is stored as" in line] == list(found.wrong)
    assert len(found.wrong) == 1


@pytest.mark.parametrize("factor", [0.0, 0.5, 1.5, 2.0])
def test_a_forged_standard_error_is_found_by_measuring_again(factor, sdp, problems, seed):
    (problem,) = choice(problems, ONE, seed)
    (metric,) = (name for name in sdp.measurements[problem] if name.startswith("tv_headline"))
    *numbers, error = sdp.measurements[problem][metric][""]
    forged = with_number(sdp, problem, metric, "", [*numbers, factor * error])
    (line,) = check(forged, problems, ONE, seed).wrong
    assert f"{problem} {metric}: the standard error is stored as {factor * error:.7g}, and is " in line


def of_code(submission, name="mine"):
    """The same numbers, said to be those of code that ends whoever runs it."""
    plugin = {
        "name": name,
        "kind": "rule",
        "options": "",
        "code": {
            "address": "x.py:X",
            "module": "",
            "attribute": "X",
            "source": "raise SystemExit",
            "modules": [],
            "folder": "",
            "trusted": True,
        },
    }
    source = replace(submission.rule.source, package="", plugin=plugin)
    return resealed(submission, rule=replace(submission.rule, name=name, source=source))


def test_arithmetic_alone_finds_what_does_not_add_up(sdp, problems):
    problem = "iris-relu-4/gaussian-1/42"
    assert problem in sdp.measurements
    value, *rest = sdp.measurements[problem]["std_ratio"]["0"]
    assert check(of_code(sdp), problems).passed
    cases = {
        "but it predicts": with_number(sdp, problem, "std_ratio", "0", [value * 1.1, *rest]),
        "cannot be": with_number(sdp, problem, "tv_class", "", [1.5, None, None, None]),
        "the value is missing": with_number(sdp, problem, "tv_class", "", [None, None, None, None]),
        "is missing": resealed(
            sdp, measurements={name: each for name, each in sdp.measurements.items() if name != problem}
        ),
        "is no problem": resealed(sdp, measurements={**sdp.measurements, "iris/1": {}}),
        "there is no prediction": resealed(
            sdp, predictions={name: each for name, each in sdp.predictions.items() if name != problem}
        ),
        "about another set": resealed(sdp, problem_set=replace(sdp.problem_set, digest="0" * 64)),
        "is no place where": resealed(sdp, cost={"iris-gelu-4/gaussian-1": first(sdp.cost)}),
        "not between its quartiles": resealed(
            sdp, cost={name: replace(each, median=1e-9) for name, each in sdp.cost.items()}
        ),
        "speaks of nothing": resealed(sdp, guarantees=[Guarantee("w1", "<=", 1.0)]),
    }
    for said, case in cases.items():
        assert any(said in line for line in check(of_code(case), problems).wrong), said


@pytest.mark.parametrize("name", ["sdp", "oracle_moments", "monte_carlo:samples=7"])
def test_code_of_the_name_of_a_built_in_rule_is_refused(name, sdp, problems):
    with pytest.raises(UserError, match="is the name of a built-in rule, and has code"):
        check(of_code(sdp, name), problems, trusted=True)


def test_an_accident_shows_in_the_digest(sdp, problems):
    changed = replace(of_code(sdp), created="2000-01-01")
    (line,) = check(changed, problems).wrong
    assert "it was changed" in line


def test_a_guarantee_that_is_not_kept_comes_first(sdp, problems, tmp_path):
    claimed = resealed(sdp, guarantees=[Guarantee.of("coverage 90% >= 0.9"), Guarantee.of("tv_class <= 1")])
    path = tmp_path / "claimed.json"
    path.write_text(of_code(claimed).text())
    assert len(check(read(path), problems).violated) == 1
    done = CliRunner().invoke(commands, ["check", str(path)])
    assert done.exit_code == 1
    assert done.stdout.startswith("the guarantee 'coverage 90% >= 0.9' is violated")


@pytest.mark.parametrize(
    ("text", "guarantee"),
    [
        ("coverage 90% >= 0.9", Guarantee("coverage", ">=", 0.9, "90%")),
        ("tv_headline<=.1 at iris-*", Guarantee("tv_headline", "<=", 0.1, at="iris-*")),
        ("std_ratio >= 1e0", Guarantee("std_ratio", ">=", 1.0)),
    ],
)
def test_a_guarantee_is_read_as_it_is_written(text, guarantee):
    assert Guarantee.of(text) == guarantee
    assert Guarantee.of(str(guarantee)) == guarantee


@pytest.mark.parametrize(
    "text", ["", "coverage", "coverage > 1", "coverage >= x", "tv <= 1e999", ">= 1", "a <= 1 at"]
)
def test_what_is_no_guarantee_is_refused(text):
    with pytest.raises(UserError, match="is no guarantee"):
        Guarantee.of(text)


def test_stored_code_is_not_run_without_trust(sdp, tmp_path):
    trace = tmp_path / "trace"
    plain = json.loads(sdp.text())
    plain["rule"]["name"] = "mine"
    plain["rule"]["source"] = {
        "plugin": {
            "name": "mine",
            "kind": "rule",
            "options": "",
            "code": {
                "address": "mine.py:Mine",
                "module": "",
                "attribute": "Mine",
                "source": f"open({str(trace)!r}, 'w')\nclass Mine:\n    name = 'mine'\n",
                "modules": [],
                "folder": "",
                "trusted": True,
            },
        }
    }
    path = tmp_path / "mine.json"
    path.write_text(json.dumps(plain))
    done = CliRunner().invoke(commands, ["check", str(path)])
    assert "--trust-code" in done.stdout
    assert not trace.exists()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["sdp"], "say where to"),
        (["sdp", "dvia", "-o", "a.json"], "one file"),
        (["sdp", "-o", "a.json", "--url", "javascript:x"], "https://"),
        (["sdp", "-o", "a.json", "--guarantee", "none"], "no guarantee"),
        (["sdp", "-o", "a.json", "--guarantee", "tv_nope <= 1"], "speaks of nothing"),
        (["sdp", "-o", "a.json", "--guarantee", "tv_class <= 1 at nowhere*"], "speaks of nothing"),
        (["oracle_moments", "-o", "a.json"], "made from the truth"),
        ([TEMPLATE, "-o", "a.json"], "--author"),
        (["sdp", "-o", "a.json", "--url", f"https://{'x' * 300}"], "is too long, at most 300"),
        (["sdp", "-o", "a.json", *["--author", "me"] * 101], "rule/authors: [.*is too long, at most 100"),
        (["sdp", "-o", "a.json", "--guarantee", f"tv_class <= 1 at {'*' * 101}"], "guarantees/0/at: "),
        (["sdp", "-o", "a.json", *["--guarantee", "tv_class <= 1"] * 51], "guarantees: [.*at most 50"),
    ],
    ids=lambda value: value if isinstance(value, str) else None,
)
def test_what_cannot_be_entered_is_told_before_any_work(words, said, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(commands, ["make", *words])
    assert isinstance(done.exception, UserError)
    assert all(part in str(done.exception) for part in said.split(".*"))
    assert len(str(done.exception)) < 300
    assert not list(tmp_path.iterdir())


RULE = """
class Mine:
    name = {name!r}
    label = {label!r}
    {source}
    def propagate(self, net, x):
        raise NotImplementedError
"""


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"name": "mine" * 60}, "rule/name: "),
        ({"label": "mine" * 60}, "rule/label: "),
        ({"source": "# \u202e"}, "has characters that are not shown"),
        ({"source": "# " + "x" * 2**21}, "code/source: "),
    ],
    ids=["name", "label", "direction", "source"],
)
def test_a_rule_that_no_submission_may_hold_is_told_before_any_work(changed, said, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    told = {"name": "mine", "label": "mine", "source": ""} | changed
    (tmp_path / "mine.py").write_text(RULE.format(**told), encoding="utf-8")
    done = CliRunner().invoke(commands, ["make", "mine.py:Mine", "-o", "a.json", *WHO])
    assert isinstance(done.exception, UserError), done.exception
    assert said in str(done.exception)
    assert len(str(done.exception)) < 300
    assert [path.name for path in tmp_path.iterdir()] == ["mine.py"]


@pytest.mark.parametrize("place", [["-o", "sdp.json"], ["--folder", "."]], ids=["file", "folder"])
def test_what_is_no_submission_is_not_written_over(place, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "sdp.json").write_text("mine")
    done = CliRunner().invoke(commands, ["make", "sdp", *place])
    assert isinstance(done.exception, UserError)
    assert str(done.exception).startswith("sdp.json is there, and is no submission")
    assert (tmp_path / "sdp.json").read_text() == "mine"
    assert len(list(tmp_path.iterdir())) == 1


def test_two_rules_of_one_file_are_told_before_any_work(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("my_rule", "my-rule"):
        source = RULE.format(name=name, label=name, source="")
        (tmp_path / f"{name}.py").write_text(source, encoding="utf-8")
    rules = [f"{name}.py:Mine" for name in ("my_rule", "my-rule")]
    done = CliRunner().invoke(commands, ["make", *rules, "--folder", ".", *WHO])
    assert isinstance(done.exception, UserError), done.exception
    assert str(done.exception).startswith("two of these rules would be my-rule.json;")
    assert not (tmp_path / "my-rule.json").exists()
    assert not (tmp_path / "submissions.sqlite").exists()
