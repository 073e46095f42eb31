"""Settings common to all tests: one thread of BLAS (tests may share cores), no deadlines."""

import datetime
import gc
import os
import sys
import zlib

os.environ.setdefault("OMP_NUM_THREADS", "1")

import hypothesis
import pytest

hypothesis.settings.register_profile(
    "project", deadline=None, derandomize=True, max_examples=50, print_blob=True
)
hypothesis.settings.load_profile("project")
gc.disable()  # during collection, whose objects are all kept


def pytest_addoption(parser):
    parser.addoption(
        "--sample", type=int, default=1, metavar="N", help="one in N files with slow tests, by date"
    )


def pytest_collection_modifyitems(config, items):
    """Deselect slow tests of files that are not due today."""
    count = config.getoption("--sample")
    today = datetime.datetime.now(datetime.UTC).toordinal()
    later = [
        item
        for item in items
        if item.get_closest_marker("slow") and (zlib.crc32(item.path.name.encode()) + today) % count
    ]
    config.hook.pytest_deselected(items=later)
    items[:] = [item for item in items if item not in set(later)]


def pytest_collection_finish():
    gc.freeze()  # a tenth of the suite's time went into searching the collected tests for garbage
    gc.enable()


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
