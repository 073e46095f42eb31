import contextlib
import sqlite3
import subprocess
import sys

import pytest

from sdp_bench.bench.results.queries import keys as keys_of
from sdp_bench.bench.results.store import Store
from tests.sdp_bench.test_cli import command, tiny

pytestmark = pytest.mark.slow

RULE = """
import pathlib
pathlib.Path({marker!r}).touch()
import sdp_ref

class Marking:
    name = "marking"

    def __init__(self):
        self.rule = sdp_ref.rule("sdp")

    def propagate(self, net, x):
        return self.rule.propagate(net, x)
"""


@pytest.fixture(scope="module")
def attack(tmp_path_factory):
    """A results file of somebody else's with a plug-in rule; the file that its code writes; an own file."""
    folder = tmp_path_factory.mktemp("attack")
    marker = folder / "marker"
    (folder / "marking.py").write_text(RULE.format(marker=str(marker)))
    for database, chosen in (("theirs.sqlite", {"rules": "sdp,marking.py:Marking"}), ("own.sqlite", {})):
        # In a process of its own, so that this one has not loaded the code.
        words = ("run", "iris-tv", *tiny(sigma=0.1, nets=1, database=database, **chosen))
        ran = subprocess.run([sys.executable, "-m", "sdp_bench", *words], cwd=folder, check=False)
        assert ran.returncode == 0
    assert marker.exists()
    (folder / "marking.py").unlink()
    with Store(folder / "theirs.sqlite") as store:
        frame = store.frame(store.run()).assign(key=keys_of)
    keys = {rule: frame[frame["rule"] == rule]["key"].iloc[0] for rule in ("sdp", "marking")}
    return folder, marker, keys


def words_of(keys):
    """Calls of every command that reads a results file or what was exported from one."""
    theirs = ("--database", "theirs.sqlite")
    for key in keys.values():
        yield ("replay", key, *theirs)
        yield ("report", "--no-committed", "--drill-down", key, "--output", "page", *theirs)
    yield ("report", "--no-committed", "--all-runs", "--output", "page", *theirs)
    yield ("results", "check", "theirs.sqlite")
    yield ("diff", "own.sqlite", "theirs.sqlite")
    yield ("export", *theirs, "-o", "tables")
    yield ("import", "tables", "--database", "again.sqlite")
    yield ("merge", "theirs.sqlite", "own.sqlite", "-o", "merged.sqlite")
    yield ("oracles", "show", keys["sdp"].partition("/")[0], *theirs)
    yield ("run", "iris-tv", *tiny(sigma="0.1,1", nets=1), *theirs)
    yield ("validate", "sdp", "--preset", "smoke", "--no-conformance", "--depth", "1", *theirs)


def test_no_command_runs_stored_code_without_trust(attack):
    folder, marker, keys = attack
    for words in words_of(keys):
        marker.unlink(missing_ok=True)
        ended = command(*words, cwd=folder)
        assert not marker.exists(), words
        assert "Traceback" not in ended.err, words
        refused = keys["marking"] in words
        assert (ended.code == 2) == refused, (words, ended.err)
        if refused:
            assert "--trust-code runs it" in ended.err


def test_with_trust_it_runs(attack):
    folder, marker, keys = attack
    marker.unlink(missing_ok=True)
    words = ("replay", keys["marking"], "--trust-code", "--database", "theirs.sqlite")
    ended = command(*words, cwd=folder)
    assert ended.code == 0, ended.err
    assert marker.exists()


def test_a_file_cannot_call_itself_trusted(attack):
    folder, marker, keys = attack
    with contextlib.closing(sqlite3.connect(folder / "theirs.sqlite")) as db:
        (settings,) = db.execute("SELECT settings FROM runs").fetchone()
    assert '"trusted": true' in settings  # what a run stores of itself says nothing to who reads it
    marker.unlink(missing_ok=True)
    ended = command("replay", keys["marking"], "--database", "theirs.sqlite", cwd=folder)
    assert ended.code == 2
    assert not marker.exists()
