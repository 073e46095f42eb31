"""Workflows that answer pull requests: stored code has no secrets, and what may write runs none of it."""

import os
import subprocess

import pytest

from tests.project import ROOT

yaml = pytest.importorskip("yaml")

FOLDER = ROOT / ".github"


def workflow(name):
    return yaml.safe_load((FOLDER / "workflows" / name).read_text(encoding="utf-8"))


BUILD, BENCHMARK, ANSWER = map(workflow, ("leaderboard.yml", "benchmark.yml", "answer.yml"))


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


def test_benchmarks_of_a_pull_request_run_on_a_label_with_a_token_that_reads():
    assert BENCHMARK[True] == {"pull_request": {"types": ["labeled"]}}
    assert BENCHMARK["permissions"] == {"contents": "read"}
    assert BENCHMARK["env"]["OMP_NUM_THREADS"] == "1"
    (job,) = BENCHMARK["jobs"].values()
    assert "permissions" not in job
    assert job["if"] == "github.event.label.name == 'benchmark'"
    assert all(
        step["with"]["persist-credentials"] is False
        for step in steps(job)
        if "checkout@" in step.get("uses", "")
    )


def test_what_may_write_runs_nothing_of_a_pull_request():
    assert ANSWER[True] == {
        "workflow_run": {"workflows": [BUILD["name"], BENCHMARK["name"]], "types": ["completed"]}
    }
    (job,) = ANSWER["jobs"].values()
    assert job["permissions"] == {"actions": "read", "pull-requests": "write"}
    assert {step["uses"].partition("@")[0] for step in steps(job) if "uses" in step} == {
        "actions/download-artifact"
    }
    for step in steps(job):
        assert "${{" not in step.get("run", "")  # what others write is in variables, and not in the script


def ran(script, folder, commands, **variables):
    """A step of a workflow run in a folder, with what stands there for the programmes that it calls."""
    programmes = folder / "programmes"
    programmes.mkdir()
    for name, said in commands.items():
        (programmes / name).write_text(f"#!/bin/bash\n{said}\n")
        (programmes / name).chmod(0o755)
    path = f"{programmes}{os.pathsep}{os.environ['PATH']}"
    command = ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", script]
    known = {**os.environ, "PATH": path, **variables}
    return subprocess.run(command, cwd=folder, env=known, capture_output=True, text=True, check=False)


def script_of(job, part):
    (script,) = (step["run"] for step in steps(job) if part in step.get("run", ""))
    return script


def test_a_pull_request_gets_the_error_of_an_unreadable_entry(tmp_path):
    for name in ("a", "b"):
        (tmp_path / "entries" / name).mkdir(parents=True)
    changed = r"entries/README.md\0entries/a/manifest.json\0entries/a/runs.csv\0entries/b/x\0entries/gone/x\0"
    commands = {
        "git": f"printf '{changed}'",
        "sdp-bench": 'case $2 in */a) echo "no difference";; *) echo "Error: damaged" >&2; exit 2;; esac',
    }
    script = script_of(BUILD["jobs"]["check"], "replay")
    done = ran(script, tmp_path, commands, BASE="0", SEED="0")
    answer = (tmp_path / "answer/answer.txt").read_text().splitlines()
    assert answer == ["entries/a", "no difference", "entries/b", "Error: damaged"]
    assert done.returncode == 1


@pytest.mark.parametrize("linked", ["answer.txt", "other.txt"])
def test_an_answer_that_leads_elsewhere_is_not_told(linked, tmp_path):
    (tmp_path / "answer").mkdir()
    (tmp_path / "secret").write_text("token")
    script = script_of(ANSWER["jobs"]["answer"], "gh api")
    (tmp_path / "answer/answer.txt").write_text("stands ~~~~~~\n```")
    commands = {"gh": 'echo 7; for word; do case $word in body=*) cat "${word#body=@}" > told;; esac; done'}
    given = {
        "HEAD_SHA": "0",
        "HEAD_REPOSITORY": "a/b",
        "REPOSITORY": "c/d",
        "CONCLUSION": "success",
        "NAME": "Leaderboard",
    }
    assert ran(script, tmp_path, commands, **given).returncode == 0
    told = (tmp_path / "told").read_text()
    assert told.count("~~~~~~") == 2
    assert "`" not in told
    for name in ("told", "body.md", "programmes/gh", f"answer/{linked}"):
        (tmp_path / name).unlink(missing_ok=True)
    (tmp_path / "programmes").rmdir()
    (tmp_path / "answer" / linked).symlink_to(tmp_path / "secret")
    assert ran(script, tmp_path, commands, **given).returncode != 0
    assert not (tmp_path / "told").exists()
