"""Settings common to all tests: one thread of BLAS (tests may share cores), no deadlines."""

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

import hypothesis
import pytest

hypothesis.settings.register_profile(
    "project", deadline=None, derandomize=True, max_examples=50, print_blob=True
)
hypothesis.settings.load_profile("project")


@pytest.fixture(autouse=True)
def _cache(tmp_path_factory, monkeypatch):
    """No test sees or touches the user's cache of nets."""
    monkeypatch.setenv("SDP_BENCH_CACHE", str(tmp_path_factory.getbasetemp() / "cache"))
