"""A real scheduler and two worker processes on loopback: the same numbers, and none lost."""

import os
import signal
import socket
import subprocess
import sys
import time

import pandas as pd
import pytest

from sdp_bench.bench.errors import RunFailedError, UserError
from sdp_bench.bench.results.store import Store
from sdp_bench.bench.runs import group
from sdp_bench.bench.runs.executors.dask import DaskWorkers
from tests.bench.conftest import TINY, begin, make_plan, run_all
from tests.bench.plugins.test_plugins import SOURCE, outside_settings
from tests.bench.runs.test_run import numbers

pytest.importorskip("distributed")
pytestmark = [pytest.mark.filterwarnings("ignore"), pytest.mark.slow]


def _free_port():
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        return server.getsockname()[1]


@pytest.fixture(scope="module")
def scheduler(tmp_path_factory):
    """Address of a scheduler, its worker processes, and what starts one of its programs."""
    folder = tmp_path_factory.mktemp("cluster")
    processes = []

    def start(program, *words):
        command = [sys.executable, "-m", f"distributed.cli.dask_{program}", *words, "--no-dashboard"]
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        processes.append(subprocess.Popen(command, cwd=folder, **quiet))

    port = _free_port()
    start("scheduler", "--host", "127.0.0.1", "--port", str(port))
    yield f"tcp://127.0.0.1:{port}", processes, start
    for process in processes:
        process.kill()
        process.wait()


@pytest.fixture
def cluster(scheduler):
    """Address of a scheduler, and its two worker processes, new ones for those that a test has killed."""
    address, processes, start = scheduler
    while len(alive := [each for each in processes[1:] if each.poll() is None]) < 2:
        start("worker", address, "--nthreads", "1", "--no-nanny")
    return address, alive


@pytest.fixture(scope="module")
def local(tmp_path_factory):
    """The numbers of the plan, measured in this process."""
    return numbers(run_all(tmp_path_factory.mktemp("local") / "local.sqlite", make_plan(TINY)))


def connect(address):
    deadline = time.monotonic() + 60
    while True:
        try:
            executor = DaskWorkers(address, 2, 1)
            break
        except RunFailedError:
            assert time.monotonic() < deadline
    while executor.workers < 2:
        assert time.monotonic() < deadline
        time.sleep(0.1)
    return executor


def test_a_lost_worker_loses_nothing_and_numbers_are_the_local_ones(tmp_path, plan, local, cluster):
    address, workers = cluster
    executor = connect(address)
    killed = []

    def on_group(*_):
        if not killed:
            killed.append(os.kill(workers[0].pid, signal.SIGKILL))

    with Store(tmp_path / "dask.sqlite", writing=True) as store:
        number = begin(store, plan)
        group.execute(plan.groups, frozenset(), store, number, executor, on_group)
        frame = numbers(store.frame(store.run(number)))
        assert store.failures(store.run(number)).empty
    executor.shutdown()
    assert killed
    pd.testing.assert_frame_equal(frame, local, check_exact=True)


def test_a_cluster_of_its_own(tmp_path, plan, local):
    with DaskWorkers(None, 2, 1) as executor, Store(tmp_path / "dask.sqlite", writing=True) as store:
        number = begin(store, plan)
        group.execute(plan.groups, frozenset(), store, number, executor, lambda *_: None)
        pd.testing.assert_frame_equal(numbers(store.frame(store.run(number))), local, check_exact=True)


def test_a_scheduler_that_is_not_there(monkeypatch):
    monkeypatch.setattr("sdp_bench.bench.runs.executors.dask._CONNECT", 1)
    with pytest.raises(RunFailedError, match="no Dask scheduler answers at tcp://127"):
        DaskWorkers(f"tcp://127.0.0.1:{_free_port()}", 1, 1)
    with pytest.raises(UserError, match="no address of a Dask scheduler"):
        DaskWorkers("gopher://x", 1, 1)


def test_a_plugin_reaches_workers_that_do_not_have_its_file(tmp_path, cluster):
    address, _ = cluster  # its workers' folder is another one
    file = tmp_path / "deep" / "outside.py"
    file.parent.mkdir()
    file.write_text(SOURCE)
    settings = outside_settings(file, "Wider", "Noisy")
    plan = make_plan(settings)
    local = numbers(run_all(tmp_path / "local.sqlite", plan))
    file.unlink()
    executor = connect(address)
    with Store(tmp_path / "dask.sqlite", writing=True) as store:
        number = begin(store, plan)
        group.execute(plan.groups, frozenset(), store, number, executor, lambda *_: None)
        assert store.failures(store.run(number)).empty
        pd.testing.assert_frame_equal(numbers(store.frame(store.run(number))), local, check_exact=True)
    executor.shutdown()
