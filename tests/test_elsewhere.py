"""What other projects take over: the action, the hooks, the image, and the page that shows how."""

import os
import re
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from tests.attacks.calls import parsed
from tests.project import ROOT, script_run

yaml = pytest.importorskip("yaml")

PAGE = (ROOT / "docs/ci.md").read_text(encoding="utf-8")
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
ACTION = yaml.safe_load((ROOT / ".github/actions/gate/action.yml").read_text(encoding="utf-8"))
STEPS = {step.get("name", step.get("uses", "").partition("@")[0]): step for step in ACTION["runs"]["steps"]}
HOOKS = yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text(encoding="utf-8"))
SHOWN = [yaml.safe_load(block) for block in re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)]


def scripted(name, tmp_path, **variables):
    """What a step's script prints with an `sdp-bench` and a `python` that print their words."""
    programs = dict.fromkeys(("sdp-bench", "python"), r'printf "%s\n" "$0" "$@"')
    done = script_run(STEPS[name]["run"], tmp_path, programs, FOLDER=str(tmp_path), **variables)
    assert done.returncode == 0, done.stderr
    return [line for line in done.stdout.splitlines() if "/programs/" not in line]


def test_the_action_calls_the_command_with_what_it_was_given(tmp_path):
    rules = "my rule.py:MyRule,sdp;$(exit 1)"
    words = scripted("Check", tmp_path, BASELINE="a b.json", RULES=rules, OPTIONS="--no-speed\n\n--seed=3\n")
    found = parsed(words).params
    assert (str(found["baseline"]), found["speed"], found["seed"]) == ("a b.json", False, 3)
    assert found["rules"] == tuple(rules.split(","))
    assert found["junit_file"] == tmp_path / "junit.xml"
    assert found["badge_files"] == (tmp_path / "badge.svg", tmp_path / "badge.json")
    assert parsed(scripted("Check", tmp_path, BASELINE="b", RULES="", OPTIONS="")).params["rules"] is None


def test_no_input_is_pasted_into_a_script_and_what_tells_runs_after_a_failure_too():
    for step in STEPS.values():
        assert "${{" not in step.get("run", "") + step.get("with", {}).get("script", "")
    for name in ("Summary", "actions/upload-artifact", "Comment"):
        assert "!cancelled()" in STEPS[name]["if"]
    assert "pull_request" in STEPS["Comment"]["if"]
    script = STEPS["Comment"]["with"]["script"]
    assert script.index("updateComment") < script.index("createComment")
    named = {name for step in STEPS.values() for name in re.findall(r"inputs\.([\w-]+)", str(step))}
    assert named == set(ACTION["inputs"])


def test_the_hooks_of_the_page_are_there_and_call_the_command_rightly():
    by_id = {hook["id"]: hook for hook in HOOKS}
    (shown,) = [each for each in SHOWN if isinstance(each, dict) and "repos" in each]
    used = shown["repos"][0]["hooks"]
    assert {each["id"] for each in used} == set(by_id)
    for each in used:
        hook = by_id[each["id"]]
        program, *words = shlex.split(hook["entry"])
        assert program in PROJECT["scripts"]
        assert not hook["pass_filenames"]
        parsed([*words, *each["args"]])


def walked():
    """The commands of the page that are for a checkout."""
    (block,) = re.findall(r"```sh\n(.*?)```", PAGE, re.DOTALL)
    return block


@pytest.mark.slow
def test_the_commands_of_the_page_run_as_printed(tmp_path):
    (tmp_path / "docs").symlink_to(ROOT / "docs")
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "sdp-bench").symlink_to(Path(sys.executable).with_name("sdp-bench"))
    # Times depend on what else the machine does, and are no part of what is printed.
    script = walked().replace("--junit", "--no-speed --junit")
    path = f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", "-e", "-c", script],
        cwd=tmp_path,
        env={**os.environ, "PATH": path},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    files = ("conformance.svg", "ci.json", "junit.xml", "summary.md", "check.json", "gate.svg")
    assert all((tmp_path / name).stat().st_size for name in files)
    assert "0 failed" in (tmp_path / "conformance.svg").read_text(encoding="utf-8")
