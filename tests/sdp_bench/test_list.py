"""What there is to run: `list` says all of it without what measures, and what cannot be read is one line."""

import os

import pytest

import sdp_ref
from sdp_bench.bench.datasets import names
from sdp_bench.bench.datasets.base import Dataset
from sdp_bench.bench.experiments import PRESETS, experiments, preset
from sdp_bench.bench.metrics import metrics
from sdp_bench.bench.metrics.references import references
from sdp_bench.bench.noise import FORMS
from sdp_bench.bench.rules import PEERS
from tests.project import ROOT, copy_of_project, python

LISTED = """
import sys
from sdp_bench import cli
sys.argv = ["sdp-bench", "list", *sys.argv[1:]]
try:
    cli.main()
finally:
    print(*sorted({"torch", "scipy", "pandas", "sklearn", "ot"} & set(sys.modules)), file=sys.stderr)
"""


def test_everything_is_listed_and_nothing_that_measures_is_imported():
    name = "smoke"
    done = python("-c", LISTED, "--preset", name)
    assert (done.returncode, done.stderr.strip()) == (0, "")
    blocks = dict(block.split("\n", 1) for block in done.stdout.rstrip().split("\n\n"))
    shown = "\n".join(
        f"  {each.name}\n      {each.description}\n      {each.extent(preset(name))}"
        for each in experiments().values()
    )
    assert blocks.pop(f"Experiments (nets x inputs, or seeds, as in the preset {name})") == shown
    assert [line.split()[0] for line in blocks.pop("Presets").splitlines()] == list(PRESETS)
    assert blocks.pop("Noise").strip() == ", ".join(FORMS)
    assert blocks.pop("Metrics").strip() == ", ".join(metrics())
    assert blocks.pop("Data sets").strip() == ", ".join(names(Dataset))
    rules, _, others, peers, _ = blocks.pop("Rules").splitlines()
    assert rules.strip() == ", ".join(sdp_ref.rules())
    assert others.endswith(", ".join(references()))
    assert f": {', '.join(PEERS)}; peers for all" in peers
    assert not blocks


# What cannot be read -----------------------------------------------------------------------------


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    return copy_of_project(tmp_path_factory.mktemp("broken") / "project")


EXPERIMENT = """
from sdp_bench.bench.experiments.laws import LawExperiment

ONE = LawExperiment(name="{name}", description="one"{more})
"""
LAW = EXPERIMENT.format(name="one", more=", metrics=('w1',), sigmas=(1.0,)")
CASES = [
    ("bench/experiments/one.py", "import no_such_module\n" + LAW, "no_such_module"),
    ("bench/experiments/one.py", EXPERIMENT.format(name="one", more=""), "sigmas"),
    ("bench/datasets/one.py", "def broken(:\nX = f()\n", "SyntaxError"),
]


@pytest.mark.parametrize(("file", "text", "word"), CASES, ids=range(len(CASES)))
def test_a_file_that_cannot_be_taken_is_one_line(project, file, text, word):
    (project / file).write_text(text)
    try:
        done = python("-m", "sdp_bench", "list", path=project, cwd=project)
    finally:
        (project / file).unlink()
    (line,) = done.stderr.splitlines()
    assert (done.returncode, done.stdout, line[:7]) == (3, "", "Error: ")
    assert word in line
    assert "/one.py" in line


@pytest.mark.parametrize(
    ("group", "point", "word"),
    [
        ("sdp_bench.experiments", "mine = no_such_module:ONE", "No module named 'no_such_module'"),
        ("sdp_bench.datasets", "iris = math:pi", "taken"),
    ],
)
def test_an_entry_point_that_cannot_be_taken_is_one_line(tmp_path, group, point, word):
    installed = tmp_path / "theirs-1.0.dist-info"
    installed.mkdir()
    (installed / "METADATA").write_text("Metadata-Version: 2.1\nName: theirs\nVersion: 1.0\n")
    (installed / "entry_points.txt").write_text(f"[{group}]\n{point}\n")
    done = python("-m", "sdp_bench", "list", path=f"{ROOT}{os.pathsep}{tmp_path}", cwd=tmp_path)
    (line,) = done.stderr.splitlines()
    assert done.returncode == 3
    assert f"the entry point '{point.split()[0]}' ({group}) of the package theirs" in line
    assert word in line
