"""The GitHub Actions workflow: it parses, is bounded, and what it calls is there."""

import re
import shlex
import subprocess
from pathlib import Path

import click
import pytest

from sdp_bench.cli import cli

yaml = pytest.importorskip("yaml")

ROOT = Path(__file__).parents[1]
WORKFLOW = yaml.safe_load((ROOT / ".github/workflows/ci.yml").read_text(encoding="utf-8"))
ACTION = yaml.safe_load((ROOT / ".github/actions/install/action.yml").read_text(encoding="utf-8"))
JOBS = WORKFLOW["jobs"]
STEPS = [step for job in JOBS.values() for step in job["steps"]] + ACTION["runs"]["steps"]
LINES = [line for step in STEPS for line in step.get("run", "").splitlines()]


def calls(program):
    """Words after a program's name, up to a pipe or redirection, of each line that begins with it."""
    found = []
    for line in LINES:
        if line.strip().startswith(f"{program} "):
            words = shlex.split(line.strip())[1:]
            ends = [k for k, word in enumerate(words) if word[0] in "|>;&"]
            found.append(words[: ends[0] if ends else None])
    return found


def test_it_runs_on_pushes_and_pull_requests_and_may_write_nothing():
    triggers = WORKFLOW[True]  # `on` is a truth value in YAML 1.1
    assert triggers["push"] == {"branches": ["main"]}
    assert "pull_request" in triggers
    assert WORKFLOW["permissions"] == {"contents": "read"}
    assert all("permissions" not in job for job in JOBS.values())
    assert "github.ref" in WORKFLOW["concurrency"]["group"]


def test_actions_are_pinned_and_packages_come_from_one_index_each():
    files = sorted((ROOT / ".github").rglob("*.yml"))
    pinned = re.compile(r"\s*(- )?uses: (\./[\w./-]+|[\w./-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+)")
    for file in files:
        lines = file.read_text(encoding="utf-8").splitlines()
        assert [line for line in lines if "uses:" in line and not pinned.fullmatch(line)] == [], file
    versions = {}
    for found in re.finditer(r"uses: (\S+)@(\S+ # \S+)", "".join(file.read_text() for file in files)):
        versions.setdefault(found[1], set()).add(found[2])
    assert versions
    assert {name: kinds for name, kinds in versions.items() if len(kinds) > 1} == {}
    for file in (*files, ROOT / "Dockerfile"):  # a package of the same name in an extra index would be taken
        assert "extra-index" not in file.read_text(encoding="utf-8").lower().replace("_", "-")


@pytest.mark.parametrize("words", calls("make"), ids=" ".join)
def test_each_make_target_is_there(words):
    done = subprocess.run(
        ["make", "--dry-run", *words], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


FOLDER = ROOT / ".github"
FILES = (*sorted(FOLDER.glob("workflows/*.yml")), *sorted(FOLDER.glob("actions/*/action.yml")))


def scripts(path):
    """What the steps of a workflow or an action run, with what GitHub fills in as a word."""
    content = yaml.safe_load(path.read_text(encoding="utf-8"))
    steps = [step for job in content.get("jobs", {"": content.get("runs")}).values() for step in job["steps"]]
    return [re.sub(r"\$\{\{.*?\}\}", "x", step["run"]) for step in steps if "run" in step]


def called(path):
    """Words of each call of the command, up to where a shell's own begin."""
    for script in scripts(path):
        for call in re.findall(r"^ *sdp-bench (.*)", script.replace("\\\n", " "), re.MULTILINE):
            yield shlex.split(re.split(r" (?:2?>|\||;|&&)", call)[0])


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(FOLDER)))
def test_what_any_of_them_runs_is_a_command_with_its_options(path):
    for words in called(path):
        command = cli
        while isinstance(command, click.Group):
            command, words = command.commands[words[0]], words[1:]
        known = {name for parameter in command.params for name in parameter.opts}
        assert {word.partition("=")[0] for word in words if word.startswith("--")} <= known, words
