"""What a report imports: nothing that runs a rule, which takes seconds and a fifth of a gigabyte."""

import subprocess
import sys

from tests.project import ROOT

IMPORTED = """
import sys
import sdp_bench
print(dir(sdp_bench) and [name for name in ("torch", "pandas", "numpy", "click") if name in sys.modules])
sdp_bench.load
import sdp_bench.reports.drilldown.page, sdp_bench.reports.committed, sdp_bench.reports.page
from sdp_bench.reports.section import sections
from sdp_bench.reports.style.names import NetKind, activation_rank
print([section.name for section in sections()], NetKind("leaky_relu:negative_slope=0.2", 4).label)
print(sorted(["relu", "own:net", "tanh"], key=activation_rank), "torch" in sys.modules)
"""


def test_a_report_imports_no_torch_until_a_rule_is_asked():
    done = subprocess.run(
        [sys.executable, "-c", IMPORTED], cwd=ROOT, capture_output=True, text=True, check=True
    )
    eager, names, order = done.stdout.splitlines()
    assert eager == "[]"
    assert "'overview'" in names
    assert names.endswith("] 4 Leaky-ReLU (negative_slope=0.2) layers")
    assert order == "['relu', 'tanh', 'own:net'] False"
