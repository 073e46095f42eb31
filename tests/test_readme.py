"""The README's example runs as printed and prints what it says."""

import re
import subprocess
import sys
from pathlib import Path

README = (Path(__file__).parents[1] / "README.md").read_text(encoding="utf-8")


def test_the_python_example_prints_what_the_readme_shows(tmp_path):
    (code,) = re.findall(r"```python\n(.*?)```", README, flags=re.DOTALL)
    (shown,) = re.findall(r"```text\n(.*?)```", README, flags=re.DOTALL)
    printed = subprocess.check_output([sys.executable, "-c", code], text=True, cwd=tmp_path)
    numbers = [[float(n) for n in re.findall(r"\d+\.\d+", text)] for text in (printed, shown)]
    assert len(numbers[0]) == 6
    # The weights' rounding differs between CPUs; ratios are of 10^6 samples.
    assert all(abs(a - b) < 2e-3 for a, b in zip(*numbers, strict=True))


def test_the_example_of_the_contributing_guide_runs(tmp_path):
    text = (Path(__file__).parents[1] / "CONTRIBUTING.md").read_text(encoding="utf-8")
    (code,) = re.findall(r"```python\n(.*?)```", text, flags=re.DOTALL)
    use = (
        "\nx = sr.DiagonalGaussian(torch.zeros(1, 2), torch.ones(1, 2))"
        "\nprint(sr.propagate(nn.Sequential(nn.Softplus()), x, Mine()).variance.tolist())"
    )
    printed = subprocess.check_output([sys.executable, "-c", code + use], text=True, cwd=tmp_path)
    assert printed.strip() == "[[0.25, 0.25]]"
