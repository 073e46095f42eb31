"""The picture of two moons: short, by the public face only, and showing what its page says."""

import re

import pytest

from tests.project import ROOT, python

SCRIPT = ROOT / "docs" / "examples" / "two_moons.py"
SOURCE = SCRIPT.read_text(encoding="utf-8")
PAGE = (ROOT / "docs" / "learning.md").read_text(encoding="utf-8")


def width_and_height(png):
    assert png.startswith(b"\x89PNG\r\n\x1a\n")
    return int.from_bytes(png[16:20], "big"), int.from_bytes(png[20:24], "big")


def test_the_page_shows_all_of_it():
    assert f"```python\n{SOURCE}```" in PAGE


@pytest.mark.slow
def test_it_runs_as_printed(tmp_path):
    picture = tmp_path / "moons.png"
    done = python(SCRIPT, picture, cwd=tmp_path, OMP_NUM_THREADS="1", MPLBACKEND="Agg")
    assert done.returncode == 0, done.stderr
    committed = (ROOT / "docs" / "two_moons.png").read_bytes()
    # matplotlib versions may lay a pixel out differently
    assert width_and_height(picture.read_bytes()) == pytest.approx(width_and_height(committed), abs=3)

    (shown,) = re.findall(r"```text\n(Data uncertainty.*?)```", PAGE, re.DOTALL)
    number = re.compile(r"\d+\.\d+")
    assert number.sub("#", done.stdout) == number.sub("#", shown)
    printed, promised = (
        [tuple(map(float, number.findall(line))) for line in text.splitlines()]
        for text in (done.stdout, shown)
    )
    # Rounding differs between CPUs, and 300 steps of training carry it on.
    for got, told in zip(printed, promised, strict=True):
        assert got == pytest.approx(told, abs=0.06)
