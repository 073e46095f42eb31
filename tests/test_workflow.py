"""Workflows of GitHub Actions, and the action and hooks for other projects: permissions and commands."""

import os
import re
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from tests.attacks.calls import parsed, resolved
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
    replaying = []
    for name, workflow in WORKFLOWS.items():
        assert workflow["permissions"] == ({} if name == "answer.yml" else {"contents": "read"})
        for key, job in workflow["jobs"].items():
            assert job.get("permissions") == WRITING.get((name, key))
            scripts = "".join(step.get("run", "") for step in job["steps"])
            replaying += [(name, key)] if "sdp-bench replay" in scripts else []
    assert replaying == [("leaderboard.yml", "check")]
    for name, key in WRITING:
        used = {step.get("uses", "").partition("@")[0] for step in WORKFLOWS[name]["jobs"][key]["steps"]}
        assert used <= {"", "actions/download-artifact", "actions/deploy-pages"}


def test_every_job_has_a_time_limit():
    for workflow in WORKFLOWS.values():
        for job in workflow["jobs"].values():
            assert 0 < job["timeout-minutes"] <= 360


def test_scripts_of_steps_are_valid_shell():
    scripts = [step["run"] for content in CONTENTS.values() for step in steps_of(content) if "run" in step]
    assert scripts
    for script in scripts:
        done = subprocess.run(["bash", "-n"], input=script, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr


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
def test_an_answer_that_is_a_link_is_not_posted(linked, tmp_path):
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


PAGE = (ROOT / "docs/ci.md").read_text(encoding="utf-8")
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
ACTION = yaml.safe_load((ROOT / ".github/actions/gate/action.yml").read_text(encoding="utf-8"))
STEPS = {step.get("name", step.get("uses", "").partition("@")[0]): step for step in ACTION["runs"]["steps"]}
HOOKS = yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text(encoding="utf-8"))
SHOWN = [yaml.safe_load(block) for block in re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)]


def scripted(name, tmp_path, **variables):
    """What a step prints with an `sdp-bench`, a `python` and a `git fetch` that print their words."""
    programs = dict.fromkeys(("sdp-bench", "python"), r'printf "%s\n" "$0" "$@"')
    # A clone without older commits; fetching a branch gives no local name to it.
    programs["git"] = '[ "$1" = fetch ] && echo "$@" | tee fetched || grep -qs "0a1b" fetched'
    done = script_run(STEPS[name]["run"], tmp_path, programs, FOLDER=str(tmp_path), **variables)
    assert done.returncode == 0, done.stderr
    return [line for line in done.stdout.splitlines() if "/programs/" not in line]


def test_the_action_calls_the_command_with_what_it_was_given(tmp_path):
    rules = "my rule.py:MyRule,sdp;$(exit 1)"
    options = "--allow-new\n\n--seed=3\n"
    given = {"BASELINE": "a b.json", "RULES": rules, "AGAINST": "0a1b", "OPTIONS": options}
    fetched, *words = scripted("Check", tmp_path, **given)
    assert fetched == "fetch --quiet --depth=1 origin 0a1b"
    found = parsed(words).params
    assert (str(found["baseline"]), found["allow_new"], found["seed"]) == ("a b.json", True, 3)
    assert found["against"] == "0a1b"
    assert found["rules"] == tuple(rules.split(","))
    assert found["junit_file"] == tmp_path / "junit.xml"
    assert found["badge_files"] == (tmp_path / "badge.svg", tmp_path / "badge.json")
    least = parsed(scripted("Check", tmp_path, BASELINE="b", RULES="", AGAINST="", OPTIONS="")).params
    assert (least["rules"], least["against"]) == (None, None)
    (tmp_path / "fetched").unlink()
    branch = scripted("Check", tmp_path, BASELINE="b", RULES="", AGAINST="main", OPTIONS="")
    assert parsed(branch[1:]).params["against"] == "FETCH_HEAD"


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
    (block,) = re.findall(r"```sh\n(.*?)```", PAGE, re.DOTALL)
    return block


@pytest.mark.slow
def test_the_commands_of_the_page_run_as_printed(tmp_path):
    (tmp_path / "docs").symlink_to(ROOT / "docs")
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "sdp-bench").symlink_to(Path(sys.executable).with_name("sdp-bench"))
    path = f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", "-e", "-c", walked()],
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
