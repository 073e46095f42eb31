"""Settings common to all tests: one thread of BLAS (tests may share cores), no deadlines."""

import os
import sys

os.environ.setdefault("OMP_NUM_THREADS", "1")

import hypothesis
import pytest

from tests.attacks import COUNTS

hypothesis.settings.register_profile(
    "project", deadline=None, derandomize=True, max_examples=50, print_blob=True
)
hypothesis.settings.load_profile("project")


@pytest.fixture(scope="session", autouse=True)
def _cache(tmp_path_factory):
    """No test sees or touches the user's cache of nets, nor does a fixture of any scope."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SDP_BENCH_CACHE", str(tmp_path_factory.getbasetemp() / "cache"))
        yield


@pytest.fixture(autouse=True)
def _threads():
    """Commands set torch's threads for their process, which here is that of the tests to come."""
    yield
    if "torch" in sys.modules:
        sys.modules["torch"].set_num_threads(1)


def pytest_terminal_summary(terminalreporter):
    """Say how many tries of each attack held; under xdist only reports travel to the one that prints."""
    reports = (report for each in ("passed", "failed") for report in terminalreporter.stats.get(each, ()))
    lines = {value for report in reports for name, value in report.user_properties if name == COUNTS}
    if lines:
        terminalreporter.section("attacks")
        for line in sorted(lines):
            terminalreporter.line(line)
