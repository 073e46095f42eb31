import re

import pytest

from sdp_bench import cli
from sdp_bench.bench import environment
from sdp_bench.bench.errors import UserError
from sdp_bench.bench.executors import local
from sdp_bench.commands.config import Config
from tests.attacks.calls import called, complaint, leaves, parsed
from tests.project import ROOT

CONFIGURED = {
    path[0]: command
    for path, command in leaves(cli.cli)
    if any(isinstance(param, Config) for param in command.params)
}


@pytest.fixture
def file(tmp_path):
    def written(text):
        path = tmp_path / "some.toml"
        path.write_text(text, encoding="utf-8")
        return str(path)

    return written


@pytest.mark.parametrize(
    ("name", "words", "text"),
    [
        ("run", ["iris-tv", "iris-w1"], 'experiments = ["iris-tv", "iris-w1"]'),
        ("run", ["--all", "--no-slow-rules"], "all = true\nslow-rules = false"),
        ("run", ["--sigma", "0.1,1,1e3", "--depth", "1,4"], "sigma = [0.1, 1, 1e3]\ndepth = [1, 4]"),
        ("run", ["--rules", "sdp,a:x=1,y=2,a:x=2,y=2"], 'rules = ["sdp", "a:x={1,2},y=2"]'),
        ("run", ["--datasets", "yacht,boston"], 'datasets = ["yacht", "boston"]'),
        ("run", ["--shard", "1/4", "--database", "a"], 'shard = "1/4"\ndatabase = "a"'),
        ("validate", ["--experiment", "a", "--experiment", "b"], 'experiment = ["a", "b"]'),
        ("validate", ["--no-conformance"], "conformance = false"),
        ("report", ["--run", "3f,4", "--no-committed"], 'run = ["3f", "4"]\ncommitted = false'),
    ],
)
def test_a_file_says_what_the_command_line_says(name, words, text, file):
    assert parsed([name, "--config", file(text)]).params == parsed([name, *words]).params


def test_the_file_that_the_page_of_commands_shows_is_read(file):
    page = (ROOT / "docs" / "commands.md").read_text(encoding="utf-8")
    (shown,) = re.findall(r"```toml\n(.*?)```", page, re.DOTALL)
    found = parsed(["run", "--config", file(shown)]).params
    assert found["experiments"] == ("iris-tv", "iris-w1")
    sampling = [f"monte_carlo:samples={count}" for count in (10, 100, 1000)]
    assert list(found["rules"]) == ["sdp", *sampling]


def test_the_command_line_wins(file):
    path = file('experiments = ["iris-tv"]\nsigma = [1, 2]\nsamples = 10\nslow-rules = true')
    found = parsed(["run", "iris-w1", "--config", path, "--sigma", "3", "--no-slow-rules"]).params
    assert found["experiments"] == ("iris-w1",)
    assert (found["sigmas"], found["samples"], found["slow_rules"]) == ((3.0,), 10, False)


@pytest.mark.parametrize(
    ("name", "words", "text", "left"),
    [
        ("run", ["--all"], 'experiments = ["iris-tv"]', {"all_experiments": True, "experiments": ()}),
        ("run", ["iris-tv"], "all = true", {"all_experiments": False, "experiments": ("iris-tv",)}),
        ("report", ["--run", "3f"], "all-runs = true", {"run_ids": ("3f",), "all_runs": False}),
        ("report", ["--all-runs"], 'run = "3f"', {"run_ids": None, "all_runs": True}),
    ],
)
def test_it_wins_over_what_goes_with_it_in_no_call(name, words, text, left, file):
    found = parsed([name, "--config", file(text), *words]).params
    assert {key: found[key] for key in left} == left


@pytest.mark.parametrize("value", ["[[1]]", "{a = 1}", "2020-01-01", '""', "nan"])
@pytest.mark.parametrize("name", CONFIGURED)
def test_a_value_of_the_wrong_kind_is_told_with_its_file_and_key_whatever_the_key(name, value, file):
    parameters = [param for param in CONFIGURED[name].params if not isinstance(param, Config)]
    for key in (max(param.opts, key=len).removeprefix("--") for param in parameters):
        path = file(f"{key} = {value}")
        with pytest.raises(UserError) as error:
            parsed([name, "--config", path])
        assert str(error.value).startswith(f"{path}: {key}: ")
        assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("sigmas = 1", "key 'sigmas' not found; did you mean 'sigma'?"),
        ('config = "other.toml"', "key 'config'"),
        ("[run]\nsigma = 1", "key 'run'"),
        ("samples = '10'", "samples: expected a whole number, not '10'"),
        ("sigma = []", "sigma: the array is empty"),
        ("all = 1", "all: expected true or false, not 1"),
        ("rules = ['sdp', 'a:x={']", "rules: 'a:x={'"),
        ("sigma = 1\nsigma = 2", "is not a TOML file"),
    ],
)
def test_an_invalid_configuration_is_refused_in_one_line(text, told, file):
    code, out, err = called(["run", "iris-tv", "--config", file(text)])
    assert complaint(code, out, err, (2,)) == ""
    assert told in err


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("missing.toml", "No such file"),
        ("binary", "not a TOML file"),
        (".", "is a directory"),
        ("large", "larger than 64 KiB"),
    ],
)
def test_an_unreadable_configuration_file_is_refused_in_one_line(name, told, tmp_path):
    (tmp_path / "binary").write_bytes(b"\xff\xfe\x00")
    with (tmp_path / "large").open("wb") as large:
        large.truncate(2**40)
    code, out, err = called(["run", "iris-tv", "--config", str(tmp_path / name)])
    assert complaint(code, out, err, (2,)) == ""
    assert told in err


@pytest.mark.parametrize("command", [["run", "iris-tv"], ["validate", "sdp", "--no-conformance"]])
@pytest.mark.parametrize(("cores", "text"), [(1, "1 core; using 1"), (3, "3 cores; using 3")])
def test_more_workers_than_cores_are_not_started_and_that_is_reported(
    tmp_path, monkeypatch, command, cores, text
):
    begun = []

    def refuse(self, jobs, *_, **__):
        begun.append(jobs)
        raise UserError("no workers here")

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(environment, "cores", lambda: cores)
    monkeypatch.setattr(local.LocalProcesses, "__init__", refuse)
    _, _, err = called([*command, "--preset", "smoke", "--jobs", 10_000])
    assert f"--jobs 10000: this machine has {text}" in err.splitlines()
    assert "no workers here" in err
    assert 1 <= max(begun) <= cores


def test_every_command_that_takes_rules_takes_lists_in_braces():
    options = [param for _, command in leaves(cli.cli) for param in command.params if "--rules" in param.opts]
    assert len(options) >= 3
    for option in options:
        assert option.type.convert("sdp,a:x={1,2}", option, None) == ("sdp", "a:x=1", "a:x=2")
