"""Compare two commits with asv; exits with 1 after a regression, 2 after a failure, 3 without measurements.

python benchmarks/continuous.py BASE HEAD [OPTION OF asv continuous...]
"""

from __future__ import annotations

import re
import subprocess
import sys

NO_RESULTS = ("No benchmarks selected", "No commit hashes selected", "Did not find results")
ROW = re.compile(r"^\|.*\| +~?[0-9.]+ +\|[^|]*\|$", re.MULTILINE)  # with a ratio of two measured values


def exit_code(status: int, output: str) -> int:
    """Return the exit code for the status, which is ambiguous, and output of ``asv continuous``."""
    if "PERFORMANCE DECREASED" in output:
        return 1
    if any(text in output for text in NO_RESULTS):
        return 3
    if status:
        return 2
    return 0 if ROW.search(output) else 3


if __name__ == "__main__":
    options = ["--split", "--no-only-changed", "--factor", "1.3", *sys.argv[1:]]
    run = subprocess.run(
        [sys.executable, "-m", "asv", "continuous", *options],
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False,
    )  # fmt: skip
    print(run.stdout)
    sys.exit(exit_code(run.returncode, run.stdout))
