"""Runs that are killed at random moments: each leaves whole groups, and the next ends in the same bits."""

import os
import random
import signal
import subprocess
import sys
import time

import psutil
import pytest

from sdp_bench.bench.results.checked import missing
from sdp_bench.bench.results.columns import CELL
from sdp_bench.bench.results.folder import read
from tests.attacks.calls import SMALL_RUN
from tests.project import ROOT

SIGMAS = 12
RUN = (
    *SMALL_RUN,
    "--jobs",
    "2",
    "--sigma",
    ",".join(f"{0.1 * k:.1f}" for k in range(1, SIGMAS + 1)),
)


def counts(path):
    """Numbers of each group in a folder; a group is a noise level here, and fails if its worker is killed."""
    if not path.exists():
        return {}
    rows = read(path).measurements
    return rows.loc[rows["status"] == "measured", "sigma"].value_counts().to_dict()


def numbers(path):
    names = [*CELL, "component", "value", "floor", "floor95", "stderr", "fingerprint", "precision", "status"]
    frame = read(path).measurements[names].astype(object)
    return frame.sort_values([*CELL, "component"], ignore_index=True)


def is_sound(path, whole):
    """Whether a folder that a kill has left has each group as a whole or not at all, and no damage."""
    if path.exists() and (read(path).faults or read(path).contradictions):
        return False
    return counts(path).items() <= whole.items()


def started(path):
    """The command itself, with its own fork server and workers."""
    words = [sys.executable, "-m", "sdp_bench", "run", *RUN, "--database", path.name]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.Popen(
        words, cwd=path.parent, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
    )


def processes(driver):
    found = {"driver": [], "fork server": [], "worker": []}
    try:
        above = psutil.Process(driver.pid)
        found["driver"] = [above]
        servers = [child for child in above.children() if "forkserver" in " ".join(child.cmdline())]
        found["fork server"] = servers
        found["worker"] = [worker for server in servers for worker in server.children()]
    except psutil.NoSuchProcess:
        pass
    return found


@pytest.mark.slow
def test_killed_runs_leave_whole_groups_and_the_next_run_ends_in_the_same_bits(tmp_path):
    draw, path = random.Random(3), tmp_path / "killed"
    assert started(tmp_path / "whole").wait() == 0
    expected, whole = numbers(tmp_path / "whole"), counts(tmp_path / "whole")
    left = {"worker": 6, "fork server": 2, "driver": 6}
    number = 0
    while any(left.values()):
        run = started(path)
        while run.poll() is None:
            kind = draw.choice([kind for kind, count in left.items() if count] or ["none"])
            time.sleep(draw.uniform(0, 0.1 if kind == "worker" else 2))
            chosen = processes(run).get(kind)
            if not chosen or run.poll() is not None:
                continue
            try:
                draw.choice(chosen).kill()
            except psutil.NoSuchProcess:
                continue
            left[kind] -= 1
            assert is_sound(path, whole), (kind, left)
        said = run.communicate()[1].decode()
        assert "Traceback" not in said, said
        assert run.returncode in (0, 3, -9), said
        if run.returncode == 0:
            assert numbers(path).equals(expected)
            assert missing(read(path)) == []
            number += 1
            path = tmp_path / f"killed{number}"
    assert started(path).wait() == 0
    assert numbers(path).equals(expected)


WRITING = """
import sys
from pathlib import Path
from tests.bench.results.made_up import begun, groups, measured, plan
from sdp_bench.bench.results.folder import read

folder, start, count = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
rows = plan(units=count, rules=("sdp",), metrics=("w1",))
parts, done = groups(rows), set()
if folder.exists():
    done = set(read(folder).measurements["unit"].astype(object))
writer = begun(folder, rows, 1, id=f"run{start:03}")
frames = {name: measured(part) for name, part in parts.items()}
print("ready", flush=True)
for name, part in parts.items():
    if part["unit"].iloc[0] not in done:
        writer.write(name, frames[name])
        print(name, flush=True)
writer.finish(1.0)
print("finished", flush=True)
"""
GROUPS = 120


def write_and_kill(folder, number, seconds):
    """Start a process that writes groups, kill it later, and return what it had reported as written."""
    words = [sys.executable, "-c", WRITING, str(folder), str(number), str(GROUPS)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    process = subprocess.Popen(words, cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    time.sleep(seconds)
    process.send_signal(signal.SIGKILL)
    written = process.communicate()[0].split()
    return written, process.returncode


@pytest.mark.slow
def test_a_writer_killed_at_any_moment_loses_and_repeats_nothing(tmp_path):
    """Writing 120 groups and joining them takes about a second; the kills are all over it."""
    draw, written, codes = random.Random(SIGMAS), set(), set()
    folder = tmp_path / "results"
    for number in range(12):
        groups, code = write_and_kill(folder, number, draw.uniform(0, 0.6))
        codes.add(code)
        assert not written & set(groups), "a group was written twice"
        ended = "finished" in groups
        written |= {f"unit{name[5:]}" for name in groups if name != "finished"}
        stored = read(folder)
        units = stored.measurements["unit"].astype(object)
        assert stored.faults == ()
        assert stored.contradictions == 0
        assert units.is_unique
        assert written <= set(units)
        # The last group may be stored without its report.
        assert len(set(units) - written) <= 1
        written |= set(units)
        if ended:
            assert len(units) == GROUPS
            folder, written = tmp_path / f"results{number}", set()
    assert -signal.SIGKILL in codes
