import sdp_ref
from sdp_bench.bench.datasets import names
from sdp_bench.bench.datasets.base import Dataset
from sdp_bench.bench.experiments import PRESETS, experiments, preset
from sdp_bench.bench.metrics import metrics
from sdp_bench.bench.metrics.references import references
from sdp_bench.bench.noise import FORMS
from sdp_bench.bench.rules import PEERS
from tests.project import copy_of_project, python

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


def test_a_file_that_cannot_be_imported_is_one_line(tmp_path):
    """Other invalid files and entry points are in tests/sdp_ref/test_registry.py."""
    project = copy_of_project(tmp_path / "project")
    (project / "bench/experiments/broken.py").write_text("import no_such_module\nONE = LawExperiment()\n")
    done = python("-m", "sdp_bench", "list", path=project, cwd=project)
    (line,) = done.stderr.splitlines()
    assert (done.returncode, done.stdout, line[:7]) == (3, "", "Error: ")
    assert "no_such_module" in line
    assert "/broken.py" in line
