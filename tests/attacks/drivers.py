"""Runs of the command that start at once and are killed: forked from a process that has imported everything.

``python -m tests.attacks.drivers`` does an undisturbed run and says its exit code. Then it reads lines of
JSON, the arguments of a run and the seconds after which it is killed (or null), and answers each with how it
ended: its exit code, or minus the signal.
"""

import json
import os
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.project import ROOT


class Drivers:
    """The other side: a process that runs the command in a folder, as often as it is asked."""

    def __init__(self, folder: Path, arguments) -> None:
        self._server = subprocess.Popen(
            [sys.executable, "-m", "tests.attacks.drivers", str(folder), *arguments],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=os.environ | {"OMP_NUM_THREADS": "1"},
        )
        assert self._answer() == 0

    def _answer(self) -> int:
        return int(self._server.stdout.readline())

    def run(self, *arguments, seconds=None) -> int:
        """Exit code of a run, or minus the signal that ended it."""
        print(json.dumps([arguments, seconds]), file=self._server.stdin, flush=True)
        return self._answer()

    def close(self) -> None:
        """End the process."""
        self._server.stdin.close()
        self._server.wait()


class Threads(ThreadPoolExecutor):
    """Workers inside the driver's process: what is killed is the driver, with all that it is doing."""

    def __init__(self, jobs, *_) -> None:
        super().__init__(jobs)


def _in_child(arguments, log) -> int:
    os.dup2(os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND), 2)
    os.dup2(2, 1)
    return _command(arguments)


def _command(arguments) -> int:
    from sdp_bench import cli

    sys.argv = ["sdp-bench", "run", *arguments]
    try:
        cli.main()
    except SystemExit as stop:
        return stop.code
    return 0


def _ended(pid: int, seconds: float | None) -> int:
    until = time.monotonic() + (float("inf") if seconds is None else seconds)
    while time.monotonic() < until:
        done, status = os.waitpid(pid, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.001)
    os.kill(pid, signal.SIGKILL)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def _serve(folder, *arguments) -> None:
    from sdp_bench.bench.executors import local
    from sdp_bench.bench.runs import driver, preloaded  # noqa: F401

    os.chdir(folder)
    local.LocalProcesses = Threads
    answers = os.dup(1)
    os.dup2(2, 1)
    os.write(answers, f"{_command(arguments)}\n".encode())  # which also fills what is worked out once
    for line in sys.stdin:
        (words, seconds), pid = json.loads(line), os.fork()
        if pid == 0:
            code = 70
            try:
                code = _in_child(words, "log.txt")
            finally:
                os._exit(code)
        os.write(answers, f"{_ended(pid, seconds)}\n".encode())


if __name__ == "__main__":
    _serve(*sys.argv[1:])
