"""The workflows of the leaderboard: stored code runs without secrets, and what may write runs none of it."""

import re
import shlex
import subprocess

import click
import pytest

from sdp_bench.cli import cli
from tests.project import ROOT

yaml = pytest.importorskip("yaml")

FOLDER = ROOT / ".github"


def workflow(name):
    return yaml.safe_load((FOLDER / "workflows" / name).read_text(encoding="utf-8"))


BUILD, ANSWER = workflow("leaderboard.yml"), workflow("leaderboard-answer.yml")


def steps(job):
    return job["steps"]


def test_stored_code_runs_without_secrets_and_with_a_token_that_reads():
    assert set(BUILD[True]) == {
        "push",
        "pull_request",
        "workflow_dispatch",
    }  # `on` is a truth value in YAML 1.1
    assert BUILD["permissions"] == {"contents": "read"}
    check = BUILD["jobs"]["check"]
    assert "permissions" not in check
    text = (FOLDER / "workflows/leaderboard.yml").read_text(encoding="utf-8")
    assert "secrets." not in text
    assert "pull_request_target" not in text
    (checkout,) = (step for step in steps(check) if step.get("uses", "").startswith("actions/checkout@"))
    assert checkout["with"]["persist-credentials"] is False
    assert any("--trust-code" in step.get("run", "") for step in steps(check))
    for name in ("page", "deploy"):
        assert not any("--trust-code" in step.get("run", "") for step in steps(BUILD["jobs"][name]))


def test_what_may_write_runs_nothing_of_a_pull_request():
    assert ANSWER[True] == {"workflow_run": {"workflows": [BUILD["name"]], "types": ["completed"]}}
    (job,) = ANSWER["jobs"].values()
    assert job["permissions"] == {"actions": "read", "pull-requests": "write"}
    assert {step["uses"].partition("@")[0] for step in steps(job) if "uses" in step} == {
        "actions/download-artifact"
    }
    for step in steps(job):
        assert "${{" not in step.get("run", "")  # what others write is in variables, and not in the script


def test_only_the_deployment_may_write_pages():
    writing = {name for name, job in BUILD["jobs"].items() if "permissions" in job}
    assert writing == {"deploy"}
    assert BUILD["jobs"]["deploy"]["permissions"] == {"pages": "write", "id-token": "write"}
    assert BUILD["jobs"]["page"]["if"] == "github.event_name != 'pull_request'"


def test_every_job_is_bounded():
    for job in (*BUILD["jobs"].values(), *ANSWER["jobs"].values()):
        assert 0 < job["timeout-minutes"] <= 60


def test_scripts_are_valid_shell_and_call_what_is_there():
    for job in (*BUILD["jobs"].values(), *ANSWER["jobs"].values()):
        for step in steps(job):
            script = step.get("run", "")
            done = subprocess.run(["bash", "-n"], input=script, capture_output=True, text=True, check=False)
            assert done.returncode == 0, done.stderr
            for line in re.findall(r"sdp-bench ([^|\n\\]+)", script):
                command, words = cli, shlex.split(line.split("2>>")[0])
                while isinstance(command, click.Group):
                    command, words = command.commands[words[0]], words[1:]
                known = {name for parameter in command.params for name in parameter.opts}
                assert {word for word in words if word.startswith("--")} <= known


def test_the_answer_keeps_what_it_is_told_in_a_block_of_code():
    (script,) = (step["run"] for step in steps(next(iter(ANSWER["jobs"].values()))) if "run" in step)
    assert "tr -d '`~'" in script


def test_the_form_asks_for_the_file_and_what_the_check_says():
    form = yaml.safe_load((FOLDER / "ISSUE_TEMPLATE/enter-a-rule.yml").read_text(encoding="utf-8"))
    assert {part["id"] for part in form["body"] if "id" in part} >= {"rule", "file", "check"}
