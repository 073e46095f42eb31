"""Local processes: a worker may die or hang without harm to the others."""

import os
import subprocess
import sys
import time

import pytest

from sdp_bench.bench.executors import WorkerError
from sdp_bench.bench.executors.local import LocalProcesses, in_separate_process, send


def double(x):
    return 2 * x


def threads():
    import torch

    return torch.get_num_threads()


def fail():
    raise ValueError("no good")


def die():
    os._exit(1)


def is_imported(module):
    return module in sys.modules


@pytest.fixture(scope="module")
def executor():
    with LocalProcesses(2, threads=1) as processes:
        yield processes


def test_calls_run_elsewhere_with_their_share_of_threads(executor):
    assert executor.submit(os.getpid).result() != os.getpid()
    assert executor.submit(threads).result() == 1
    assert list(executor.map(double, range(8))) == [0, 2, 4, 6, 8, 10, 12, 14]


def test_what_is_slow_to_import_is_there_from_the_start(executor):
    names = ["torch", "ot", "sdp_bench.bench.experiments.law_group", "sdp_bench.bench.metrics.distances"]
    assert all(executor.map(is_imported, names))
    assert not executor.submit(is_imported, "antigravity").result()


def test_a_call_over_its_time_is_stopped_and_its_start_does_not_count():
    with LocalProcesses(1, threads=1, limit=1.5) as processes:
        assert processes.submit(double, 3).result() == 6
        with pytest.raises(WorkerError, match=r"1\.5 s"):
            processes.submit(time.sleep, 60).result()
        assert processes.submit(double, 4).result() == 8


def test_shutdown_cancels_what_waits_and_stops_what_runs():
    processes = LocalProcesses(1, threads=1)
    processes.submit(double, 1).result()
    running, waiting = processes.submit(time.sleep, 600), processes.submit(double, 1)
    time.sleep(0.2)
    processes.shutdown(wait=True, cancel_futures=True)
    assert waiting.cancelled()
    assert running.exception() is not None
    with pytest.raises(RuntimeError, match="shutdown"):
        processes.submit(double, 1)


ORPHAN = """
import os, time
from sdp_bench.bench.executors.local import LocalProcesses
if __name__ == "__main__":
    processes = LocalProcesses(1, 1)
    print(processes.submit(os.getpid).result(), flush=True)
    processes.submit(time.sleep, 600)
    time.sleep(600)
"""


@pytest.mark.slow
def test_workers_end_with_a_killed_driver(tmp_path):
    script = tmp_path / "driver.py"
    script.write_text(ORPHAN)
    driver = subprocess.Popen([sys.executable, script], stdout=subprocess.PIPE, text=True)
    worker = int(driver.stdout.readline())
    driver.kill()
    driver.wait()
    driver.stdout.close()
    deadline = time.monotonic() + 30
    while _alive(worker) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert not _alive(worker)


def _alive(pid):
    try:
        with open(f"/proc/{pid}/stat") as file:  # noqa: PTH123
            return file.read().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


class OwnError(Exception):
    """A class that the process that waits cannot know."""


def failed():
    raise OwnError("no such thing")


def ended():
    raise KeyboardInterrupt


def sends_two_messages():
    send("one")
    send({"two": 2})
    return 3


def test_an_interrupt_in_a_worker_is_an_error_of_its_call():
    with pytest.raises(WorkerError, match="it raised KeyboardInterrupt, which ends a process"):
        in_separate_process(ended)


def test_an_error_of_a_users_class_is_not_imported():
    with pytest.raises(RuntimeError, match=r"^OwnError: no such thing$"):
        in_separate_process(failed)


def test_messages_of_a_worker_arrive_before_its_result():
    heard = []
    assert in_separate_process(sends_two_messages, on_message=heard.append) == 3
    assert heard == ["one", {"two": 2}]


@pytest.mark.slow
def test_a_script_is_not_run_again_and_its_output_is_its_own(tmp_path):
    script = tmp_path / "driver.py"
    script.write_text(
        "from sdp_bench.bench.executors.local import in_separate_process\n"
        "in_separate_process(print, 'words of a worker')\n"
        "print('words of the driver')\n"
    )
    ended = subprocess.run([sys.executable, script], capture_output=True, text=True, check=True)
    assert ended.stdout == "words of the driver\n"
    assert "words of a worker" in ended.stderr


def test_files_in_the_working_folder_do_not_replace_the_standard_library(tmp_path):
    for name in ("colorsys.py", "queue.py", "random.py"):
        (tmp_path / name).touch()
    script = tmp_path / "scripts" / "script.py"  # the folder of a script does replace it
    script.parent.mkdir()
    script.write_text(
        "from sdp_bench.bench.executors.local import in_separate_process\n"
        "import os\n"
        "print(in_separate_process(abs, -3), in_separate_process(os.getenv, 'PYTHONSAFEPATH'))\n"
    )
    done = subprocess.run([sys.executable, script], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout == "3 None\n"  # processes of user code do import from their folders


def test_an_error_of_a_call_reaches_the_caller_and_the_worker_goes_on(executor):
    with pytest.raises(ValueError, match="no good"):
        executor.submit(fail).result()
    assert executor.submit(double, 2).result() == 4


def test_a_dead_worker_fails_only_its_own_call(executor):
    calls = [executor.submit(die) if k == 3 else executor.submit(double, k) for k in range(8)]
    with pytest.raises(WorkerError):
        calls[3].result()
    assert [call.result() for k, call in enumerate(calls) if k != 3] == [0, 2, 4, 8, 10, 12, 14]
