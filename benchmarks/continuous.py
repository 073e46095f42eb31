"""Compare two commits with asv; exits with 1 after a regression, 2 after a failure, 3 without measurements.

The last lines name the environments that were not measured, for example because their Python is missing.

python benchmarks/continuous.py BASE HEAD [OPTION OF asv continuous...]
"""

from __future__ import annotations

import re
import subprocess
import sys

NO_RESULTS = (
    "No benchmarks selected",
    "No commit hashes selected",
    "No environments selected",
    "No available environments",
    "Did not find results",
)
SKIPPED = re.compile(
    r"^\W*((?:No executable found for|No way to create environment|Unknown environment type) .*"
    r"|virtualenv package not installed|Skipping \S+)$",
    re.MULTILINE,
)
"""What asv prints of an environment that it does not measure; "Skipping" is after a failed build."""
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


def skipped_environments(output: str) -> str:
    """Return lines with the environments that asv left out, and the reasons; empty if it left out none."""
    reasons = dict.fromkeys(reason.strip() for reason in SKIPPED.findall(output))  # asv prints some twice
    return "".join(f"environment not measured: {reason}\n" for reason in reasons)


if __name__ == "__main__":
    options = ["--split", "--no-only-changed", "--factor", "1.3", *sys.argv[1:]]
    run = subprocess.run(
        [sys.executable, "-m", "asv", "continuous", *options],
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False,
    )  # fmt: skip
    print(run.stdout)
    print(skipped_environments(run.stdout), end="")
    sys.exit(exit_code(run.returncode, run.stdout))
