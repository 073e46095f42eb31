import subprocess
import sys
from pathlib import Path

import pytest

BIG = Path(__file__).parents[2] / "benchmarks" / "big_results.py"
RECORDS = 100_000
MOST = 1_200  # bytes a record, of which the frame itself is 130; as objects it took over 2 kB

READ = """
import resource, sys
from pathlib import Path
import sdp_bench.reports.page
from sdp_bench.bench.results.store import Store
from sdp_bench.reports.results import results_of
peak = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
before = peak()
with Store(Path(sys.argv[1])) as store:
    results = results_of(store)
assert len(results.with_oracle) > 0.9 * len(results.frame)
print(len(results.frame), peak() - before)
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="peaks are in other units elsewhere")
def test_reading_a_big_file_takes_little_memory_for_each_record(tmp_path):
    path = tmp_path / "big.sqlite"
    subprocess.run([sys.executable, BIG, path, "--records", str(RECORDS)], check=True)
    # a process between, so that the peak does not begin at this one's size
    shell = ["/bin/sh", "-c", '"$0" "$@"; exit $?', sys.executable, "-c", READ, str(path)]
    done = subprocess.run(shell, check=True, capture_output=True, text=True)
    rows, grown = map(int, done.stdout.split())
    assert rows > 0.9 * RECORDS
    assert grown < MOST * rows
