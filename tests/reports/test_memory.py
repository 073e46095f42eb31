"""What reports cost before they show anything: memory for each record, and imports."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.project import python

BIG = Path(__file__).parents[2] / "benchmarks" / "big_results.py"
RECORDS = 100_000
MOST = 1_200  # bytes a record, of which the frame itself is 130; as objects it took over 2 kB

# VmHWM, since ru_maxrss of a child starts at what its parent used.
READ = """
import re, sys
from pathlib import Path
import sdp_bench.reports.page
from sdp_bench.bench.results.folder import read
from sdp_bench.reports.results import results_of
peak = lambda: 1024 * int(re.search(r"VmHWM:\\s+(\\d+) kB", Path("/proc/self/status").read_text())[1])
before = peak()
results = results_of(read(Path(sys.argv[1])))
assert len(results.columns_with_oracle(results.frame.columns)) > 0.5 * len(results.frame)  # the rest: studies
print(len(results.frame), peak() - before)
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="/proc is Linux's")
def test_reading_big_results_takes_little_memory_for_each_record(tmp_path):
    path = tmp_path / "big"
    subprocess.run([sys.executable, BIG, path, "--records", str(RECORDS)], check=True)
    done = subprocess.run([sys.executable, "-c", READ, str(path)], check=True, capture_output=True, text=True)
    rows, grown = map(int, done.stdout.split())
    assert rows > 0.9 * RECORDS
    assert grown < MOST * rows


IMPORTED = """
import sys
import sdp_bench
print(dir(sdp_bench) and [name for name in ("torch", "pandas", "numpy", "click") if name in sys.modules])
sdp_bench.load
import sdp_bench.reports.drilldown, sdp_bench.reports.committed, sdp_bench.reports.page
from sdp_bench.reports.section import sections
from sdp_bench.reports.style.names import NetKind, activation_rank
print([section.name for section in sections()], NetKind("leaky_relu:negative_slope=0.2", 4).label)
print(sorted(["relu", "own:net", "tanh"], key=activation_rank), "torch" in sys.modules)
"""


def test_a_report_imports_no_torch_until_a_rule_is_asked():
    eager, names, order = python("-c", IMPORTED).stdout.splitlines()
    assert eager == "[]"
    assert "'overview'" in names
    assert names.endswith("] 4 Leaky-ReLU (negative_slope=0.2) layers")
    assert order == "['relu', 'tanh', 'own:net'] False"
