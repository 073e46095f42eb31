import functools
import re
import shutil

import pytest

from sdp_bench.bench.errors import RunFailedError
from sdp_bench.bench.experiments import experiment
from sdp_bench.bench.experiments.plan import plan_of
from sdp_bench.bench.experiments.problem_set import NAME
from sdp_bench.bench.replay.replay import replay_share
from sdp_bench.bench.results.folder import NETS, read
from sdp_bench.bench.rules import resolve
from sdp_bench.bench.settings import Settings
from tests.attacks.calls import called
from tests.bench.conftest import TINY, change, make_plan, run_all
from tests.project import ROOT

TEMPLATE = ROOT / "docs/examples/template.py"


@pytest.fixture(scope="module")
def entry(tmp_path_factory):
    """The first setting of the problem set, measured with two rules."""
    path = tmp_path_factory.mktemp("entry") / "entry"
    settings = Settings(rules=("sdp", "marginal_sdp"))
    plan = plan_of([experiment(NAME)], settings, ())
    run_all(path, plan, [*plan.groups][:1], settings=settings)
    return path


@pytest.fixture
def copy(entry, tmp_path):
    return shutil.copytree(entry, tmp_path / "copy")


def check(path, share=1.0, seed=0, **options):
    return replay_share(read(path), share, seed, **options)


def test_an_honest_entry_has_no_difference(entry):
    replayed = check(entry)
    assert replayed.differences == ()
    assert replayed.drawn == replayed.measurements == 2 * 3 * 6  # rules, inputs, metrics


def multiplied(measured, column, rule, metric):
    is_changed = (measured["rule"] == rule) & (measured["metric_spec"] == metric)
    assert is_changed.any()
    return measured.assign(**{column: measured[column].where(~is_changed, measured[column] * 1.5)})


def without_a_component(measured):
    is_gone = (measured["rule"] == "sdp") & (measured["metric_spec"] == "std_ratio")
    is_gone &= measured["component"] == "0"
    assert is_gone.any()
    return measured[~is_gone]


def of_another_version(measured):
    versions = measured["fingerprint"].astype(object)
    is_old = measured["metric_spec"] == "crps"
    return measured.assign(fingerprint=versions.where(~is_old, "rule 0, metric 1, oracle 1"))


@pytest.mark.slow
def test_changed_numbers_and_missing_components_are_found(copy):
    joint = "tv_headline:cells=128,pilot_samples=131072"
    for column, rule, metric in (
        ("value", "sdp", joint),
        ("stderr", "sdp", "crps"),
        ("floor", "marginal_sdp", joint),
        ("floor95", "marginal_sdp", "tv_class"),
    ):
        change(copy, functools.partial(multiplied, column=column, rule=rule, metric=metric))
    change(copy, without_a_component)
    change(copy, of_another_version)
    lines = check(copy).differences
    for name, column in (
        ("/sdp/tv_headline", "value"),
        ("/sdp/crps", "stderr"),
        ("/marginal_sdp/tv_headline", "floor"),
        ("/marginal_sdp/tv_class", "floor95"),
        ("/sdp/std_ratio", "missing"),
    ):
        assert sum(name in line and column in line for line in lines) >= 3, name
    assert {line.split("/")[1] for line in lines if "rule 0" in line} == {"sdp"}


def test_the_command_reports_the_verdict_as_exit_code(entry, copy, tmp_path):
    light = shutil.copytree(entry, tmp_path / "light")
    shutil.rmtree(light / NETS)  # the package has them
    ended = called(["replay", light, "--share", "5%"], seconds=600)
    assert ended.code == 0, ended.said
    change(copy, lambda measured: measured.assign(value=measured["value"] * 0.99))
    ended = called(["replay", copy, "--share", "5%", "--seed", "3"], seconds=600)
    assert (ended.code, "seed 3" in ended.said) == (1, True)


def test_other_experiments_are_measured_again_too_if_their_nets_are_kept(tmp_path):
    run_all(tmp_path / "tiny", make_plan(TINY, ("iris-tv",)))
    assert check(tmp_path / "tiny", 1e-6).differences == ()
    shutil.rmtree(tmp_path / "tiny" / NETS)
    with pytest.raises(RunFailedError, match="weights"):
        check(tmp_path / "tiny")


@pytest.fixture(scope="module")
def mine(tmp_path_factory):
    """A rule with a helper in its folder, and an entry with its results, but without its file."""
    folder = tmp_path_factory.mktemp("mine")
    (folder / "my_rule.py").write_text(
        TEMPLATE.read_text().replace("import sdp_ref", "from my_factor import ONE\nimport sdp_ref", 1)
    )
    (folder / "my_factor.py").write_text("ONE = 1.0\n")
    rules, plugins = resolve([f"{folder / 'my_rule.py'}:MyRule"])
    settings = Settings(rules=rules, plugins=plugins)
    plan = plan_of([experiment(NAME)], settings, ())
    run_all(folder / "mine", plan, [*plan.groups][:1], settings=settings)
    shutil.copytree(folder / "mine", folder / "entry", ignore=shutil.ignore_patterns(NETS))
    return folder


def replayed(folder, *words):
    return called(["replay", folder, "--share", "1%", *words], seconds=600)


def test_an_entry_is_measured_with_the_file_in_its_folder(mine, tmp_path):
    folder = shutil.copytree(mine / "entry", tmp_path / "entry")
    ended = replayed(folder)
    assert ended.code == 2
    assert "--rule my_rule.py:MyRule, or copy its file my_rule.py into" in ended.said
    for name in ("my_rule.py", "my_factor.py"):
        shutil.copy(mine / name, folder)
    ended = replayed(folder)
    assert (ended.code, "no difference" in ended.said) == (0, True), ended.said
    (folder / "my_factor.py").write_text("ONE = 1.0  # another\n")
    ended = replayed(folder)
    assert ended.code == 2
    assert re.search(r"has the hash [0-9a-f]{16}, but was measured as [0-9a-f]{16} \(my_rule.py", ended.said)


def test_the_file_of_a_rule_may_be_elsewhere(mine, tmp_path):
    ended = replayed(mine / "mine", "--rule", f"{mine / 'my_rule.py'}:MyRule")
    assert (ended.code, "no difference" in ended.said) == (0, True), ended.said
    (tmp_path / "my_rule.py").write_text((mine / "my_rule.py").read_text())
    (tmp_path / "my_factor.py").write_text("import os, time\nos._exit(0)\n")
    ended = replayed(mine / "mine", "--rule", f"{tmp_path / 'my_rule.py'}:MyRule")
    assert (ended.code, "the worker process died" in ended.said) == (3, True), ended.said
    (tmp_path / "my_factor.py").write_text("import time\ntime.sleep(600)\n")
    words = ("--rule", f"{tmp_path / 'my_rule.py'}:MyRule", "--time-limit", "3")
    ended = replayed(mine / "mine", *words)
    assert (ended.code, "time limit of 3 s" in ended.said) == (3, True), ended.said
