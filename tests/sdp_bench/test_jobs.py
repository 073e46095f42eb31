import pytest

from sdp_bench.bench import environment
from sdp_bench.bench.errors import UserError
from sdp_bench.bench.executors import local
from tests.attacks.calls import called

ASKED = 10_000
COMMANDS = [
    ["run", "iris-tv", "--preset", "smoke"],
    ["validate", "sdp", "--no-conformance", "--preset", "smoke"],
]


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command[0])
@pytest.mark.parametrize("cores", [1, 3])
def test_more_workers_than_cores_are_not_begun_and_that_is_said(command, cores, tmp_path, monkeypatch):
    begun = []

    def refuse(self, jobs, *_, **__):
        begun.append(jobs)
        raise UserError("no workers here")

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(environment, "cores", lambda: cores)
    monkeypatch.setattr(local.LocalProcesses, "__init__", refuse)
    _, _, err = called([*command, "--jobs", ASKED])
    plural = "" if cores == 1 else "s"
    said = f"--jobs {ASKED}: this machine has {cores} core{plural}; using {cores}"
    assert said in err.splitlines()
    assert "no workers here" in err
    assert 1 <= max(begun) <= cores
