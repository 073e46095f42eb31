"""What docs/adding.md shows: one file each, and nothing else is touched."""

import re

import pytest

from tests.project import ROOT, copy_of_project, python

_FILE = re.compile(r'^```\w+ title="([^"]+)"\n(.*?)^```$', re.DOTALL | re.MULTILINE)
FILES = dict(_FILE.findall((ROOT / "docs" / "adding.md").read_text(encoding="utf-8")))
KINDS = {
    "sdp_ref/rules/": 1,
    "sdp_ref/activations/": 1,
    "bench/metrics/": 1,
    "bench/datasets/": 1,
    "bench/experiments/": 1,
    "reports/sections/": 2,  # and its template
}


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    """A copy of the project with all of them."""
    folder = copy_of_project(tmp_path_factory.mktemp("adding") / "project")
    for name, text in FILES.items():
        assert not (folder / name).exists()
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8")
    return folder


def test_each_is_one_file():
    for folder, count in KINDS.items():
        assert sum(name.startswith(folder) for name in FILES) == count
    assert len(FILES) == sum(KINDS.values())


def test_they_keep_the_rules_of_the_project(project):
    names = [name for name in FILES if name.endswith(".py")]
    done = python("-m", "ruff", "check", *names, cwd=project)
    assert done.returncode == 0, done.stdout


USED = """
from sdp_bench.bench import datasets, experiments, metrics
from sdp_bench.bench.datasets.base import TabularClassification
from sdp_bench.bench import experiments

print(experiments.experiment("small-noise").extent(experiments.preset("quick")))
print(metrics.metric("mean_shift").spec)
print(tuple(datasets.dataset("wine-cultivars", TabularClassification).load().features.shape))
"""


@pytest.fixture(scope="module")
def run(project, tmp_path_factory):
    folder = tmp_path_factory.mktemp("run")

    def run(*arguments):
        done = python(*arguments, cwd=folder, path=project)
        assert done.returncode == 0, done.stderr
        return done.stdout

    return run


@pytest.mark.slow
def test_metric_data_set_and_experiment_are_known_by_name(run):
    shown = run("-c", USED).splitlines()
    assert shown == ["relu 1; 2 x 1; sigma 0.05", "mean_shift", "(178, 13)"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "shown"),
    [
        (
            "small-noise --preset quick --nets 1 --samples 20000",
            ("Small noise", "every net is nearly linear", "Distance of the predicted mean", "wine-cultivars"),
        ),
        (
            "iris-std --preset smoke --net-source trained --epochs 50 --activation arctan --depth 1 "
            "--sigma 1 --rules inflated,marginal_moment_matching",
            ("inflated SDP", "arctan", 'id="shifts"'),
        ),
    ],
)
def test_they_are_on_the_page(run, tmp_path, words, shown):
    file = ("--database", str(tmp_path / "results"))
    command = ("-m", "sdp_bench")
    run(*command, "run", *words.split(), "--jobs", "1", *file)
    run(*command, "report", "--single-file", "--no-committed", *file, "--output", str(tmp_path))
    page = (tmp_path / "index.html").read_text(encoding="utf-8")
    assert [text for text in shown if text not in page] == []
