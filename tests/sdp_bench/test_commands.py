import dataclasses

import pytest

import sdp_ref
from sdp_bench.bench.datasets import names
from sdp_bench.bench.datasets.base import Dataset, ImageClassification
from sdp_bench.bench.experiments import PRESETS, experiments, preset
from sdp_bench.bench.metrics import metrics
from sdp_bench.bench.metrics.references import references
from sdp_bench.bench.noise import FORMS
from sdp_bench.bench.rules import PEERS
from sdp_bench.bench.runtime import table
from tests.attacks.calls import called
from tests.bench.nets.helpers import DATA, TEST
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


def test_a_table_keeps_the_nets_that_were_not_timed_again(tmp_path, monkeypatch):
    monkeypatch.setitem(table.PRESETS, "one", table.Preset(1, 1, ("mlp-1x10", "mlp-1x20"), ("forward",)))
    monkeypatch.setitem(table.PRESETS, "other", table.Preset(2, 1, ("mlp-1x20", "mlp-1x30"), ("forward",)))
    path = tmp_path / "runtime.csv"
    for size in ("one", "other"):
        ended = called(["runtime", "--preset", size, "--runtime", path])
        assert ended.code == 0, ended.said
    batches = {row.architecture: row.batch for row in table.load(path)}
    assert batches == {"mlp-1x10": 1, "mlp-1x20": 2, "mlp-1x30": 2}


def test_a_file_that_is_no_table_is_refused_before_anything_is_timed_and_stays(tmp_path):
    path = tmp_path / "runtime.csv"
    path.write_text("a,b\n1,2\n")
    assert "cannot read the runtime table" in called(["runtime", "--preset", "smoke", "--runtime", path]).err
    assert path.read_text() == "a,b\n1,2\n"


def test_timings_survive_an_error_at_a_later_net(tmp_path, monkeypatch):
    monkeypatch.setitem(table.PRESETS, "broken", table.Preset(1, 1, ("mlp-1x10", "no-net"), ("forward",)))
    path = tmp_path / "runtime.csv"
    assert "no-net" in called(["runtime", "--preset", "broken", "--runtime", path]).err
    assert {row.architecture for row in table.load(path)} == {"mlp-1x10"}


@pytest.fixture
def run(tmp_path, monkeypatch):
    sets = {"train": DATA, "test": dataclasses.replace(TEST, split="test")}
    load = ImageClassification.load

    def made_up(self, split="train", parts=None):
        return sets[split] if self.name == "mnist" else load(self, split, parts)

    monkeypatch.setattr(ImageClassification, "load", made_up)
    monkeypatch.setenv("SDP_BENCH_CACHE", str(tmp_path))
    monkeypatch.setenv("SDP_BENCH_DATA", str(tmp_path))
    return lambda *arguments: called(["train", *arguments], seconds=300)


def test_training_goes_on_where_it_stopped_and_is_kept(run):
    command = ("cnn3", "--dataset", "mnist", "--epochs", "2", "--batch-size", "16")
    code, _, errors = run(*command, "--minutes", "0")
    assert code == 3
    assert "the time is up after 0 of 6 steps" in errors
    code, output, errors = run(*command)
    assert code == 0
    assert "on Squares train: 40 of 100 images (made up)" in errors
    assert "steps 6/6" in errors
    assert "(trained)" in output
    again, kept, _ = run(*command)
    assert again == 0
    assert "(cache)" in kept
    assert kept.splitlines()[0] == output.splitlines()[0]


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (("vgg",), 2, "network 'vgg' not found; choose from resnet18, resnet18_max_pool, cnn3, vit"),
        (("cnn3", "--dataset", "mnist", "--device", "nonsense"), 2, "nonsense"),
        (("cnn3",), 3, "takes cifar10/data_batch_1"),
        (("cnn3", "--parts", "data_batch_7"), 2, "got data_batch_7"),
    ],
)
def test_what_cannot_be_done_is_told(run, arguments, code, message):
    got, _, errors = run(*arguments)
    assert got == code
    assert message in errors
