"""What the benchmarks share: pairs on one thread and on two, and the processor's name above them."""

import pytest
import torch

from sdp_bench.bench.environment import cpu_name


def pytest_report_header() -> str:
    return f"processor: {cpu_name()}, torch {torch.__version__}"


@pytest.fixture(params=(1, 2), ids=("one thread", "two threads"))
def threads(request: pytest.FixtureRequest):
    """Threads of torch during a test: one, then two."""
    before = torch.get_num_threads()
    torch.set_num_threads(request.param)
    yield request.param
    torch.set_num_threads(before)
