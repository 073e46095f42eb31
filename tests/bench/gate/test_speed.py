import json
import math
import signal
import subprocess
import threading
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import psutil
import pytest
from scipy.stats import binom, binomtest

from sdp_bench.bench.errors import UserError
from sdp_bench.bench.executors.local import Limits, in_separate_process, limited
from sdp_bench.bench.gate import report, speed
from sdp_bench.bench.gate.check import Options, check, rules_of
from sdp_bench.bench.gate.speed import Change, Timing
from sdp_bench.bench.gate.verdict import Status
from sdp_bench.bench.gate.versions import OldVersion, old_version
from tests.bench.gate.gate_rules import Operations, few_cells, write_rule
from tests.project import ROOT

SCOPE = few_cells()
(NET,) = SCOPE.nets


# The test ---------------------------------------------------------------------------------------------


def version_of(*rules):
    return OldVersion("main", Path(), dict.fromkeys(rules, ""), dict.fromkeys(rules, ""), {})


def simulated(monkeypatch, spread, factor=lambda net: 1.0, seed=0):
    """Replace measurements by lognormal ratios; return a list with an item for each pair of processes."""
    rng, calls = np.random.default_rng(seed), []

    def observations(pairs, *_, **__):
        calls.append(len(pairs))
        return {pair: math.log(factor(pair[1])) + rng.normal(0, spread) for pair in pairs}

    monkeypatch.setattr(speed, "observations", observations)
    return calls


def judged(nets=(NET,), **options):
    scope = SimpleNamespace(nets=dict.fromkeys(nets))
    return speed.judge({"mine": None}, version_of("mine"), scope, Timing(), **options)


def test_the_bounds_of_a_change_cover():
    """Each bound misses the true factor in 5 % of sessions."""
    rng = np.random.default_rng(0)
    changes = [Change(tuple(rng.normal(math.log(1.2), 0.1, 6))) for _ in range(2000)]
    above = sum(change.bounds(0.05)[0] > 1.2 for change in changes)
    below = sum(change.bounds(0.05)[1] < 1.2 for change in changes)
    for misses in (above, below):
        assert binomtest(misses, 2000, 0.05).pvalue > 0.001


def test_the_bounds_of_equal_observations_are_the_change():
    change = Change((math.log(1.5),) * 3)
    assert change.factor == pytest.approx(1.5)
    assert change.bounds(1e-6) == pytest.approx((1.5, 1.5))


@pytest.mark.parametrize(
    ("factor", "status", "shown"),
    [(1.0, "passed", Status.UNCHANGED), (1.02, "passed", Status.UNCHANGED), (0.8, "passed", Status.FASTER),
     (1.15, "regression", Status.SLOWER)],
)  # fmt: skip
def test_a_comparison_without_noise_ends_at_the_first_look(monkeypatch, factor, status, shown):
    calls = simulated(monkeypatch, 0.0, lambda _: factor)
    verdict = judged()
    assert (verdict.status, len(calls)) == (status, Timing().looks[0])
    assert verdict.findings[0].status == shown
    assert "could not exclude" not in verdict.note


def test_a_rule_that_may_be_slower_is_reported_and_passes(monkeypatch):
    simulated(monkeypatch, 0.0, lambda _: 1.3)
    verdict = judged(allowed=("mine",))
    assert (verdict.status, verdict.findings[0].status) == ("passed", Status.ACCEPTED)
    assert "1.30 times the old time" in str(verdict.findings[0])


def alarms(monkeypatch, checks, spread, factor):
    """Number of checks with 27 comparisons that stop; three of them are slower by a factor."""
    simulated(monkeypatch, spread, lambda net: factor if int(net) < 3 else 1.0)
    return sum(judged(map(str, range(27))).status == "regression" for _ in range(checks))


@pytest.mark.slow
@pytest.mark.parametrize("spread", [0.02, 0.08])
def test_false_alarms_are_as_rare_as_stated(monkeypatch, spread):
    assert alarms(monkeypatch, 300, spread, 1.0) <= binom.isf(0.001, 300, speed.FALSE_ALARMS)


def test_a_slow_down_by_10_percent_is_seen_in_nine_of_ten(monkeypatch):
    assert alarms(monkeypatch, 60, 0.06, speed.DETECTED) >= binom.ppf(0.001, 60, 0.9)


def test_a_noisy_comparison_says_what_it_cannot_exclude(monkeypatch):
    calls = simulated(monkeypatch, 0.5, lambda _: 1.1)
    verdict = judged()
    assert (verdict.status, len(calls)) == ("passed", Timing().looks[-1])
    assert "1 comparison could not exclude a slow-down by 10%" in verdict.note


# Versions ---------------------------------------------------------------------------------------------


def git(*words):
    command = ["git", "-c", "user.name=a", "-c", "user.email=a@b", *words]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


@pytest.fixture
def repository(tmp_path, monkeypatch):
    """The working folder; a repository with a rule in a file and a package with rules in src."""
    folder = tmp_path / "repository"
    package = folder / "src" / "rules_of_test"
    package.mkdir(parents=True)
    (folder / "rules").mkdir()
    monkeypatch.chdir(folder)
    write_rule(folder / "rules" / "mine.py")
    (package / "__init__.py").write_text("")
    write_rule(package / "ours.py")
    git("init", "--quiet")
    git("add", ".")
    git("commit", "--quiet", "--message", "rules")
    return folder


def name_of(rule):
    """The name that a rule has in a separate process, since this one has no more than one version."""
    return in_separate_process(_load, rule)


def _load(rule):
    return rule.load().name


def rule_at(address):
    return {
        "mine": replace(
            rules_of((str(ROOT / "docs/examples/template.py:MyRule"),))["my_rule"], address=address
        )
    }


@pytest.mark.parametrize("address", ["rules/mine.py:Mine", "rules_of_test.ours:Mine"])
@pytest.mark.parametrize("kind", ["revision", "folder"])
def test_the_code_is_that_of_the_older_version(repository, tmp_path, address, kind):
    against = "HEAD"
    if kind == "folder":
        against = str(tmp_path / "other")
        git("clone", "--quiet", ".", against)
    for path in repository.rglob("*.py"):
        path.write_text("raise SystemExit")  # not committed
    with old_version(against, rule_at(address)) as old:
        assert name_of(old.rules["mine"]) == "mine"
        assert (old.folder / "rules" / "mine.py").exists()
    assert old.folder.exists() == (kind == "folder")


@pytest.mark.parametrize("address", ["mine.py:Mine", "mine:Mine"])
def test_an_address_is_relative_to_the_working_folder(repository, monkeypatch, address):
    monkeypatch.chdir(repository / "rules")
    with old_version("HEAD", rule_at(address)) as old:
        assert name_of(old.rules["mine"]) == "mine"


def test_a_shallow_clone_has_its_revisions_only(repository, tmp_path, monkeypatch):
    write_rule(repository / "rules" / "mine.py", times=2)
    git("commit", "--quiet", "--all", "--message", "slower")
    git("clone", "--quiet", "--depth=1", f"file://{repository}", str(tmp_path / "shallow"))
    monkeypatch.chdir(tmp_path / "shallow")
    with old_version("HEAD", rule_at("rules/mine.py:Mine")) as old:
        assert old.missing == {}
    main = git("branch", "--show-current").strip()
    git("checkout", "--quiet", "--detach")
    git("branch", "--quiet", "--delete", "--remotes", f"origin/{main}")
    git("branch", "--quiet", "--delete", "--force", main)
    with pytest.raises(UserError, match=rf"'origin/{main}' is neither .* origin {main}, .* FETCH_HEAD"):
        old_version(f"origin/{main}", {}).__enter__()
    git("fetch", "--quiet", "--depth=1", "origin", main)
    with old_version("FETCH_HEAD", {}) as old:
        assert (old.folder / "rules" / "mine.py").exists()


def test_the_repository_stays_as_it_is(repository):
    """Uncommitted changes, the index and hooks."""
    (repository / "rules" / "mine.py").write_text("changed")
    (repository / "rules" / "other.py").write_text("added")
    git("add", "rules/other.py")
    hook = repository / ".git" / "hooks" / "post-checkout"
    hook.write_text(f"#!/bin/sh\ntouch {repository}/called\n")
    hook.chmod(0o755)
    before = git("status", "--porcelain")
    with old_version("HEAD", {}) as old:
        assert not (old.folder / "rules" / "other.py").exists()
    assert git("status", "--porcelain") == before
    assert not (repository / "called").exists()


def test_without_git_only_folders_can_be_compared(repository, monkeypatch):
    monkeypatch.setenv("PATH", "")
    with pytest.raises(UserError, match="'HEAD' is not a folder, and no revision is known here"):
        old_version("HEAD", {}).__enter__()
    with old_version(".", rule_at("rules/mine.py:Mine")) as old:
        assert old.rules.keys() == {"mine"}


def test_a_rule_that_the_older_version_lacks_is_new(repository):
    write_rule(repository / "rules" / "new.py")
    write_rule(repository / "src" / "rules_of_test" / "new.py")
    for address in ("rules/new.py:Mine", "rules_of_test.new:Mine"):
        with old_version("HEAD", rule_at(address)) as old:
            assert "new: HEAD (" in old.missing["mine"]


@pytest.mark.parametrize("address", [f"{ROOT}/docs/examples/template.py:MyRule", "json.decoder:JSONDecoder"])
def test_a_rule_outside_the_repository_has_no_older_version(repository, address):
    with pytest.raises(UserError, match=r"so it has no older version; leave out --against"):
        old_version("HEAD", rule_at(address)).__enter__()


def test_built_in_rules_are_compared_in_their_own_repository_only(repository, tmp_path, monkeypatch):
    with old_version("HEAD", rules_of(("sdp",))) as old:
        assert old.missing == {"sdp": "part of sdp-bench, not of this repository"}
    monkeypatch.chdir(ROOT)
    with old_version(str(ROOT), rules_of(("sdp",))) as old:
        assert old.rules == {"sdp": "sdp"}
    with old_version(str(tmp_path), rules_of(("sdp",))) as old:
        assert "has no package sdp_ref" in old.missing["sdp"]


# Measurements -----------------------------------------------------------------------------------------


@pytest.mark.slow
def test_work_done_one_and_a_half_times_is_seen(repository):
    """With a clock that counts operations, which says the same in each process."""
    address = write_rule(repository / "rules" / "mine.py", "marginal_sdp", times=2)
    git("commit", "--quiet", "--all", "--message", "twice")
    options = Options((address,), against="HEAD")
    with Operations() as clock:
        timing = Timing(clock, rounds=1, looks=(2,))
        same = check(None, options, SCOPE, timing=timing)
        write_rule(repository / "rules" / "mine.py", "marginal_sdp", times=3)
        slower = check(None, options, SCOPE, timing=timing)
    assert same.exit_code == 0
    assert [f.numbers["change"] for f in same.verdicts[0].findings] == pytest.approx([1.0])
    assert slower.exit_code == 1
    assert slower.verdicts[0].findings[0].numbers["change"] == pytest.approx(1.5, abs=0.02)
    assert json.loads(report.as_json(slower))["regressions"] == ["speed"]
    assert slower.next_steps == [
        f"to accept the slow-down: sdp-bench check --rules {address} --against HEAD --allow-slower {address}"
    ]


@pytest.mark.slow
def test_a_built_in_rule_of_another_version_is_that_of_its_package(tmp_path, monkeypatch):
    package = tmp_path / "sdp_ref"
    package.mkdir()
    (package / "__init__.py").write_text("def rule(spec):\n    raise ValueError(f'no {spec} yet')\n")
    monkeypatch.chdir(ROOT)
    options = Options(("marginal_sdp",), against=str(tmp_path))
    (finding,) = check(None, options, SCOPE).verdicts[0].findings
    assert finding.status == Status.NEW
    assert finding.text == "the older version fails: ValueError: no marginal_sdp yet"


FAULTS = {
    "1 / 0": "ZeroDivisionError",
    "__import__('os')._exit(1)": "died",
    "__import__('time').sleep(600)": "stopped at the time limit of 20 s",
}


@pytest.mark.slow
@pytest.mark.parametrize("fault", FAULTS)
def test_a_version_that_fails_is_not_compared(repository, fault):
    """A failure of the new version is one of the check; without the old one there is nothing to compare."""
    file = repository / "rules" / "mine.py"
    works = file.read_text()
    fails = works.replace("for _ in", f"{fault}\n        for _ in")
    timing = Timing(rounds=1, looks=(2,))
    for before, now, status in ((works, fails, Status.FAILED), (fails, works, Status.NEW)):
        file.write_text(before)
        git("commit", "--quiet", "--all", "--allow-empty", "--message", "other")
        file.write_text(now)
        with limited(Limits(20.0)):
            outcome = check(None, Options(("rules/mine.py:Mine",), against="HEAD"), SCOPE, timing=timing)
        (finding,) = outcome.verdicts[0].findings
        assert finding.status == status
        assert FAULTS[fault] in finding.text
        assert outcome.exit_code == 3


@pytest.mark.slow
def test_a_net_that_neither_version_supports_has_not_failed(repository):
    file = repository / "rules" / "mine.py"
    works = file.read_text()
    rejects = "raise __import__('sdp_ref').UnsupportedError('mine', 'Linear')"
    file.write_text(works.replace("for _ in", f"{rejects}\n        for _ in"))
    options, timing = Options(("rules/mine.py:Mine",), against="HEAD"), Timing(rounds=1, looks=(2,))
    assert check(None, options, SCOPE, timing=timing).verdicts[0].findings[0].status == Status.FAILED
    git("commit", "--quiet", "--all", "--message", "rejects")
    (finding,) = check(None, options, SCOPE, timing=timing).verdicts[0].findings
    assert finding.status == Status.NEW
    assert finding.text.startswith("the older version fails: UnsupportedError")


@pytest.mark.slow
def test_standard_input_of_a_rule_is_empty(repository):
    """A rule that reads it does not get the requests of the gate."""
    file = repository / "rules" / "mine.py"
    reads = "assert not __import__('sys').stdin.read()"
    file.write_text(file.read_text().replace("for _ in", f"{reads}\n        for _ in"))
    git("commit", "--quiet", "--all", "--message", "reads")
    options = Options(("rules/mine.py:Mine",), against="HEAD")
    (finding,) = check(None, options, SCOPE, timing=Timing(rounds=1, looks=(2,))).verdicts[0].findings
    assert "change" in finding.numbers, finding.text


@pytest.mark.slow
def test_an_interrupt_leaves_nothing_running(repository):
    """Neither a process nor a thread, for which Python would wait at its end."""
    file = repository / "rules" / "mine.py"
    interrupts = f"__import__('os').kill(__import__('os').getppid(), {signal.SIGUSR1:d})"
    sleeps = "__import__('time').sleep(600)"
    file.write_text(file.read_text().replace("for _ in", f"{interrupts}\n        {sleeps}\n        for _ in"))
    git("commit", "--quiet", "--all", "--message", "interrupts")
    before = signal.signal(signal.SIGUSR1, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt), limited(Limits(300.0)):
            check(None, Options(("rules/mine.py:Mine",), against="HEAD"), SCOPE)
    finally:
        signal.signal(signal.SIGUSR1, before)
    timers = [thread for thread in threading.enumerate() if isinstance(thread, threading.Timer)]
    for timer in timers:
        timer.join(10)
    assert not any(timer.is_alive() for timer in timers)
    children = psutil.Process().children(recursive=True)
    assert not any("worker.py" in " ".join(child.cmdline()) for child in children)
