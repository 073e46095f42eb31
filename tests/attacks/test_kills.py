"""Runs that are killed at random moments: each leaves whole groups, and the next ends in the same bits."""

import random
import sqlite3
import subprocess
import sys
import time

import psutil
import pytest
from sdp_bench.bench.results.store import Store

from sdp_bench.bench.errors import UserError

SIGMAS = 12
RUN = (
    *("iris-std", "--preset", "smoke", "--depth", "1", "--inputs", "2", "--rules", "sdp,unscented"),
    *("--samples", "1024", "--pilot-samples", "1024", "--cells", "16", "--jobs", "2"),
    *("--sigma", ",".join(f"{0.1 * k:.1f}" for k in range(1, SIGMAS + 1))),
)


def counts(path):
    """Records of each group in a file; a group is a noise level here."""
    query = "SELECT u.sigma, COUNT(*) FROM records r JOIN units u ON u.key = r.unit GROUP BY u.sigma"
    return dict(select(path, query))


def numbers(path):
    return select(
        path,
        "SELECT unit, rule, metric, component, value, floor, floor95, stderr, fingerprint, precision "
        "FROM records ORDER BY 1, 2, 3, 4",
    )


def select(path, query):
    db = sqlite3.connect(path)
    try:
        return db.execute(query).fetchall() if db.execute("SELECT 1 FROM sqlite_master").fetchone() else []
    finally:
        db.close()


def is_sound(path, whole):
    """Whether a file that a kill has left can be read, and has each group as a whole or not at all."""
    if not path.exists() or not path.stat().st_size:
        return True
    try:
        with Store(path) as store:
            store.runs()
    except UserError:
        return counts(path) == {}
    return counts(path).items() <= counts(whole).items()


def remove(path):
    for end in ("", "-wal", "-shm"):
        path.with_name(path.name + end).unlink(missing_ok=True)


def started(path):
    """The command itself, with a fork server and workers of its own."""
    words = [sys.executable, "-m", "sdp_bench", "run", *RUN, "--database", path.name]
    return subprocess.Popen(words, cwd=path.parent, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)


def processes(driver):
    found = {"driver": [], "fork server": [], "worker": []}
    try:
        above = psutil.Process(driver.pid)
        found["driver"] = [above]
        servers = [each for each in above.children() if "forkserver" in " ".join(each.cmdline())]
        found["fork server"] = servers
        found["worker"] = [worker for server in servers for worker in server.children()]
    except psutil.NoSuchProcess:
        pass
    return found


@pytest.mark.slow
def test_killed_runs_leave_whole_groups_and_the_next_run_ends_in_the_same_bits(tmp_path):
    draw, whole, path = random.Random(3), tmp_path / "whole.sqlite", tmp_path / "killed.sqlite"
    assert started(whole).wait() == 0
    left = {"worker": 6, "fork server": 2, "driver": 6}
    while any(left.values()):
        run = started(path)
        while run.poll() is None:
            kind = draw.choice([kind for kind, count in left.items() if count] or ["none"])
            time.sleep(draw.uniform(0, 0.1 if kind == "worker" else 2))
            found = processes(run).get(kind)
            if not found or run.poll() is not None:
                continue
            try:
                draw.choice(found).kill()
            except psutil.NoSuchProcess:
                continue
            left[kind] -= 1
            assert is_sound(path, whole), (kind, left)
        said = run.communicate()[1].decode()
        assert "Traceback" not in said, said
        assert run.returncode in (0, 3, -9), said
        if run.returncode == 0:
            assert numbers(path) == numbers(whole)
            remove(path)
    assert started(path).wait() == 0
    assert numbers(path) == numbers(whole)
