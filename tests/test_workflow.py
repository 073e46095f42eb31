"""The workflows of GitHub Actions: they parse, may do no more than they must, and what they call is there."""

import re
import shlex
import subprocess

import pytest

from tests.attacks.calls import resolved
from tests.project import ROOT, script_run

yaml = pytest.importorskip("yaml")

FOLDER = ROOT / ".github"
FILES = sorted(FOLDER.rglob("*.yml"))
CONTENTS = {path: yaml.safe_load(path.read_text(encoding="utf-8")) for path in FILES}
WORKFLOWS = {path.name: content for path, content in CONTENTS.items() if "jobs" in content}
WRITING = {
    ("answer.yml", "answer"): {"actions": "read", "pull-requests": "write"},
    ("leaderboard.yml", "deploy"): {"pages": "write", "id-token": "write"},
}
"""Permissions of jobs that may write."""


def steps_of(content):
    jobs = content.get("jobs", {"": content.get("runs", {"steps": []})})
    return [step for job in jobs.values() for step in job["steps"]]


def test_workflows_start_when_they_should():
    triggers = {name: workflow[True] for name, workflow in WORKFLOWS.items()}  # `on` is true in YAML 1.1
    assert triggers["ci.yml"]["push"] == {"branches": ["main"]}
    assert "pull_request" in triggers["ci.yml"]
    assert set(triggers["leaderboard.yml"]) == {"push", "pull_request", "workflow_dispatch"}
    assert triggers["benchmark.yml"] == {"pull_request": {"types": ["labeled"]}}
    answered = [WORKFLOWS[name]["name"] for name in ("leaderboard.yml", "benchmark.yml")]
    assert triggers["answer.yml"] == {"workflow_run": {"workflows": answered, "types": ["completed"]}}
    (job,) = WORKFLOWS["benchmark.yml"]["jobs"].values()
    assert job["if"] == "github.event.label.name == 'benchmark'"
    assert WORKFLOWS["benchmark.yml"]["env"]["OMP_NUM_THREADS"] == "1"
    assert "github.ref" in WORKFLOWS["ci.yml"]["concurrency"]["group"]


def test_code_of_others_runs_without_secrets_and_with_a_token_that_reads():
    for path, content in CONTENTS.items():
        text = path.read_text(encoding="utf-8")
        assert "secrets." not in text
        assert "pull_request_target" not in text
        for step in steps_of(content):
            assert "${{" not in step.get("run", "")  # what others write is in variables, not in the script
            if "checkout@" in step.get("uses", ""):
                assert step["with"]["persist-credentials"] is False
    trusting = []
    for name, workflow in WORKFLOWS.items():
        assert workflow["permissions"] == ({} if name == "answer.yml" else {"contents": "read"})
        for key, job in workflow["jobs"].items():
            assert job.get("permissions") == WRITING.get((name, key))
            scripts = "".join(step.get("run", "") for step in job["steps"])
            trusting += [(name, key)] if "--trust-code" in scripts else []
    assert trusting == [("leaderboard.yml", "check")]
    for name, key in WRITING:
        used = {step.get("uses", "").partition("@")[0] for step in WORKFLOWS[name]["jobs"][key]["steps"]}
        assert used <= {"", "actions/download-artifact", "actions/deploy-pages"}


def test_actions_are_pinned_and_packages_come_from_one_index_each():
    pinned = re.compile(r"\s*(- )?uses: (\./[\w./-]+|[\w./-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+)")
    for file in FILES:
        lines = file.read_text(encoding="utf-8").splitlines()
        assert [line for line in lines if "uses:" in line and not pinned.fullmatch(line)] == [], file
    versions = {}
    for found in re.finditer(r"uses: (\S+)@(\S+ # \S+)", "".join(file.read_text() for file in FILES)):
        versions.setdefault(found[1], set()).add(found[2])
    assert versions
    assert {name: kinds for name, kinds in versions.items() if len(kinds) > 1} == {}
    for file in (*FILES, ROOT / "Dockerfile"):  # a package of the same name in an extra index would be taken
        assert "extra-index" not in file.read_text(encoding="utf-8").lower().replace("_", "-")


def calls(path, program):
    """Words of each call of a program, up to a pipe, a redirection or the next command."""
    for step in steps_of(CONTENTS[path]):
        script = step.get("run", "").replace("\\\n", " ")
        for call in re.findall(rf"^ *{program} (.*)", script, re.MULTILINE):
            yield shlex.split(re.split(r" (?:2?>|\||;|&&)", call)[0])


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(FOLDER)))
def test_what_workflows_run_exists_with_its_options(path):
    for words in calls(path, "make"):
        done = subprocess.run(["make", "--dry-run", *words], cwd=ROOT, capture_output=True, check=False)
        assert done.returncode == 0, done.stderr
    for words in calls(path, "sdp-bench"):
        command, rest = resolved(words)
        known = {name for parameter in command.params for name in parameter.opts}
        assert {word.partition("=")[0] for word in rest if word.startswith("--")} <= known, words


def script_of(job, part):
    (script,) = (step["run"] for step in job["steps"] if part in step.get("run", ""))
    return script


def test_a_pull_request_gets_the_error_of_an_unreadable_entry(tmp_path):
    for name in ("a", "b"):
        (tmp_path / "entries" / name).mkdir(parents=True)
    changed = r"entries/README.md\0entries/a/manifest.json\0entries/a/runs.csv\0entries/b/x\0entries/gone/x\0"
    commands = {
        "git": f"printf '{changed}'",
        "sdp-bench": 'case $2 in */a) echo "no difference";; *) echo "Error: damaged" >&2; exit 2;; esac',
    }
    script = script_of(WORKFLOWS["leaderboard.yml"]["jobs"]["check"], "replay")
    done = script_run(script, tmp_path, commands, BASE="0", SEED="0")
    answer = (tmp_path / "answer/answer.txt").read_text().splitlines()
    assert answer == ["entries/a", "no difference", "entries/b", "Error: damaged"]
    assert done.returncode == 1


@pytest.mark.parametrize("linked", ["answer.txt", "other.txt"])
def test_an_answer_that_leads_elsewhere_is_not_told(linked, tmp_path):
    (tmp_path / "answer").mkdir()
    (tmp_path / "secret").write_text("token")
    script = script_of(WORKFLOWS["answer.yml"]["jobs"]["answer"], "gh api")
    (tmp_path / "answer/answer.txt").write_text("stands ~~~~~~\n```")
    commands = {"gh": 'echo 7; for word; do case $word in body=*) cat "${word#body=@}" > told;; esac; done'}
    given = {"HEAD_SHA": "0", "HEAD_REPOSITORY": "a/b", "REPOSITORY": "c/d", "CONCLUSION": "success"}
    given["NAME"] = "Leaderboard"
    assert script_run(script, tmp_path, commands, **given).returncode == 0
    told = (tmp_path / "told").read_text()
    assert told.count("~~~~~~") == 2
    assert "`" not in told
    for name in ("told", "body.md", f"answer/{linked}"):
        (tmp_path / name).unlink(missing_ok=True)
    (tmp_path / "answer" / linked).symlink_to(tmp_path / "secret")
    assert script_run(script, tmp_path, commands, **given).returncode != 0
    assert not (tmp_path / "told").exists()
