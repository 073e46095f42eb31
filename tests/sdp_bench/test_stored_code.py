"""Results name the rules and nets of users: they never run, and replays take them from files."""

import json
import subprocess
import sys
from dataclasses import replace

import pytest

from sdp_bench.bench.results.columns import keys as keys_of
from sdp_bench.bench.results.folder import read, read_plan, write_run
from tests.sdp_bench.helpers import command, tiny

pytestmark = pytest.mark.slow

RULE = """
import pathlib
pathlib.Path({marker!r}).touch()
import sdp_ref

class Marking:
    name = "marking"

    def propagate(self, net, x):
        return sdp_ref.rule("sdp").propagate(net, x)
"""


@pytest.fixture(scope="module")
def attack(tmp_path_factory):
    """Results that hold source, as older ones did, and the file that the source writes."""
    folder = tmp_path_factory.mktemp("attack")
    marker = folder / "marker"
    source = RULE.format(marker=str(marker))
    (folder / "marking.py").write_text(source)
    for database, chosen in (("theirs", {"rules": "sdp,marking.py:Marking"}), ("own", {})):
        # In a process of its own, so that this one has not loaded the code.
        words = ("run", "iris-tv", *tiny(sigma=0.1, nets=1, database=database, **chosen))
        ran = subprocess.run([sys.executable, "-m", "sdp_bench", *words], cwd=folder, check=False)
        assert ran.returncode == 0
    assert marker.exists()
    stored = read(folder / "theirs")
    run = stored.run()
    settings = dict(run.settings)
    assert "sdp_ref" not in json.dumps(settings)
    (plugin,) = settings["plugins"]
    assert plugin.pop("address") == "marking.py:Marking"
    code = {"address": "marking.py:Marking", "module": "", "attribute": "Marking", "source": source}
    plugin["code"] = code | {"modules": [["sdp_ref.py", source]], "folder": str(folder), "trusted": True}
    write_run(replace(run, settings=settings), read_plan(run))
    frame = stored.measurements.assign(key=keys_of)
    keys = {rule: frame[frame["rule"] == rule]["key"].iloc[0] for rule in ("sdp", "marking")}
    return folder, marker, keys


def words_of(keys):
    """Calls of every command that reads results."""
    theirs = ("--database", "theirs")
    for key in keys.values():
        yield ("replay", key, *theirs)
        yield ("report", "--no-committed", "--drill-down", key, "--output", "page", *theirs)
    yield ("report", "--no-committed", "--all-runs", "--output", "page", *theirs)
    yield ("results", "check", "theirs")
    yield ("diff", "own", "theirs")
    yield ("export", *theirs, "--paper", "paper")
    yield ("report", "--no-committed", "--output", "page", "theirs", "own")
    yield ("run", "iris-tv", *tiny(sigma="0.1,1", nets=1), *theirs)
    yield ("validate", "sdp", "--preset", "smoke", "--no-conformance", "--depth", "1", *theirs)


def test_no_command_runs_the_source_in_a_file(attack):
    """The rule's file lies in the working folder, too."""
    folder, marker, keys = attack
    for words in words_of(keys):
        marker.unlink(missing_ok=True)
        ended = command(*words, cwd=folder)
        assert not marker.exists(), words
        assert "Traceback" not in ended.err, words
        refused = keys["marking"] in words
        assert (ended.code == 2) == refused, (words, ended.err)
        if refused:
            assert "name its file: --rule marking.py:Marking" in ended.err


def test_the_given_file_is_run_if_it_has_the_stored_hash(attack):
    folder, _, keys = attack
    given = ("--rule", "marking.py:Marking", "--database", "theirs")
    ended = command("replay", keys["marking"], *given, cwd=folder)
    assert (ended.code, "identical to the last bit" in ended.out) == (0, True), ended.err
    drilled = ("report", "--no-committed", "--drill-down", keys["marking"], "--output", "page", *given)
    ended = command(*drilled, cwd=folder)
    assert (ended.code, "1 of 1 made" in ended.out) == (0, True), ended.err
    (page,) = (folder / "page" / "drill-down").glob("*-marking-*.html")
    assert "--rule marking.py:Marking" in page.read_text()
    (folder / "other.py").write_text((folder / "marking.py").read_text() + "# more\n")
    for call in (("replay", keys["marking"]), drilled[:-4]):
        ended = command(*call, "--rule", "other.py:Marking", "--database", "theirs", cwd=folder)
        assert ended.code == 2
        assert "rule 'marking' of other.py:Marking has the hash" in ended.err
        assert "(marking.py:Marking)" in ended.err
