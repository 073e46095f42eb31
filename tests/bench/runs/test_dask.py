import contextlib
import os
import signal
import socket
import subprocess
import sys
import time

import pandas as pd
import pytest

from sdp_bench.bench.errors import RunFailedError, UserError
from sdp_bench.bench.executors.dask import DaskWorkers
from sdp_bench.bench.results.columns import MEASURED
from sdp_bench.bench.runs import driver
from tests.bench.conftest import TINY, begin, frame_of, left, make_plan, run_all, statuses
from tests.bench.runs.helpers import numbers

distributed = pytest.importorskip("distributed")
pytestmark = [pytest.mark.filterwarnings("ignore"), pytest.mark.slow]


def _free_port():
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        return server.getsockname()[1]


@contextlib.contextmanager
def programs(folder):
    """Start Dask's programs in a folder; they are killed in the end."""
    processes = []

    def start(program, *words):
        command = [sys.executable, "-m", f"distributed.cli.dask_{program}", *map(str, words)]
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        processes.append(subprocess.Popen([*command, "--no-dashboard"], cwd=folder, **quiet))
        return processes[-1]

    try:
        yield start, processes
    finally:
        for process in processes:
            process.kill()
            process.wait()


@pytest.fixture(scope="module")
def scheduler(tmp_path_factory):
    """Address of a scheduler, its worker processes, and what starts one of its programs."""
    port = _free_port()
    with programs(tmp_path_factory.mktemp("cluster")) as (start, processes):
        start("scheduler", "--host", "127.0.0.1", "--port", port)
        yield f"tcp://127.0.0.1:{port}", processes, start


@pytest.fixture
def cluster(scheduler):
    """Address of a scheduler, and its two worker processes, new ones for those that a test has killed."""
    address, processes, start = scheduler
    while len(alive := [process for process in processes[1:] if process.poll() is None]) < 2:
        start("worker", address, "--nthreads", "1", "--no-nanny")
    return address, alive


@pytest.fixture(scope="module")
def local(tmp_path_factory):
    return numbers(run_all(tmp_path_factory.mktemp("local") / "results", make_plan(TINY)))


def connect(address, workers=2):
    deadline = time.monotonic() + 60
    while True:
        try:
            executor = DaskWorkers(address, workers, 1)
            break
        except RunFailedError:
            assert time.monotonic() < deadline
    while executor.workers < workers:
        assert time.monotonic() < deadline
        time.sleep(0.1)
    return executor


def test_a_lost_worker_loses_nothing_and_numbers_are_the_local_ones(tmp_path, plan, local, cluster):
    address, workers = cluster
    executor = connect(address)
    folder = tmp_path / "dask"
    writer = driver.Writer(begin(folder, plan))
    for count, (name, measured) in enumerate(driver.execute(plan, left(plan, folder), executor)):
        if not count:
            os.kill(workers[0].pid, signal.SIGKILL)
        writer.write(name, measured)
    executor.shutdown()
    assert set(statuses(folder)["status"]) == {MEASURED}
    pd.testing.assert_frame_equal(numbers(frame_of(folder)), local, check_exact=True)


def test_a_cluster_of_its_own(tmp_path, plan, local):
    with DaskWorkers(None, 2, 1) as executor:
        frame = run_all(tmp_path / "dask", plan, executor=executor)
    pd.testing.assert_frame_equal(numbers(frame), local, check_exact=True)


def test_a_scheduler_that_is_not_there(monkeypatch):
    monkeypatch.setattr("sdp_bench.bench.executors.dask._CONNECT", 1)
    with pytest.raises(RunFailedError, match="no Dask scheduler answers at tcp://127"):
        DaskWorkers(f"tcp://127.0.0.1:{_free_port()}", 1, 1)
    with pytest.raises(UserError, match="not an address of a Dask scheduler"):
        DaskWorkers("gopher://x", 1, 1)


@pytest.fixture
def alone(tmp_path):
    """Address of a separate scheduler, and what starts a worker of it with a module loaded first."""
    port = _free_port()
    address = f"tcp://127.0.0.1:{port}"
    with programs(tmp_path) as (start, _):

        def worker(source=""):
            first = tmp_path / "first.py"
            first.write_text(source)
            return start("worker", address, "--nthreads", "1", "--no-nanny", "--preload", first)

        yield address, start("scheduler", "--host", "127.0.0.1", "--port", port), worker


OTHER = """
from sdp_bench.bench import identity as module
found = dict(module.software(), code="0" * 16, torch="1.0")
module.software = lambda: found
from sdp_bench.bench.executors import dask
dask.software = module.software
"""


def refused(address):
    """What is said of a cluster, as soon as its scheduler and worker are there."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        try:
            DaskWorkers(address, 1, 1).shutdown()
        except RunFailedError as error:
            if "would give other numbers" in str(error):
                return str(error)
            continue
        raise AssertionError("the cluster was taken")
    raise AssertionError("no worker came")


def test_a_worker_with_other_software_is_refused_at_connecting(alone):
    address, _, worker = alone
    worker(OTHER)
    said = refused(address)
    assert "would give other numbers (its code is another; torch 1.0, here " in said
    assert "\n" not in said


def test_without_its_scheduler_unfinished_calls_end_in_one_line(alone, capfd):
    address, scheduler, worker = alone
    worker()
    executor = connect(address, workers=1)
    assert executor.submit(os.getpid).result(timeout=60)
    unfinished = executor.submit(time.sleep, 3600)
    scheduler.kill()
    with pytest.raises(RunFailedError, match=r"the Dask scheduler at tcp://127.* has gone"):
        unfinished.result(timeout=120)
    executor.shutdown(wait=False, cancel_futures=True)
    assert "Traceback" not in capfd.readouterr().err


def test_an_address_without_certificates_is_rejected_in_one_line():
    with pytest.raises(UserError, match=r"tls://127\.0\.0\.1:1 needs certificates.*DASK_DISTRIBUTED__COMM"):
        DaskWorkers("tls://127.0.0.1:1", 1, 1)
