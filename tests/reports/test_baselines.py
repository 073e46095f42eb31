from pathlib import Path

import pytest

from sdp_bench.bench.results.folder import read
from sdp_bench.bench.runtime.table import load
from sdp_bench.bench.runtime.timing import REGULAR
from sdp_bench.bench.runtime.workloads import DISTPROP, RULES, SHORT
from sdp_bench.bench.studies import uci
from sdp_bench.reports.replication.page import Rulings, topics
from sdp_bench.reports.results import BASELINES, COMMITTED, POOR_ACCURACY, Results, committed_results
from sdp_bench.reports.results_page import results_page
from sdp_bench.reports.sections.fidelity import fidelity
from sdp_bench.reports.sections.uci import PredictionIntervals, label
from sdp_bench.reports.statement import judged
from sdp_bench.reports.statistics.verdicts import Outcome
from sdp_bench.reports.style.names import NetKind
from tests.project import ROOT


@pytest.fixture(scope="module")
def committed():
    return committed_results()


@pytest.fixture(scope="module")
def frame(committed):
    return committed.frame


def test_they_are_small_and_say_how_they_were_made():
    files = [file for file in BASELINES.rglob("*") if file.is_file() and file.suffix != ".html"]
    assert sum(file.stat().st_size for file in files) < 18e6
    runs = read(COMMITTED, columns=("run",)).runs.values()
    assert runs
    assert all(run.command.startswith("sdp-bench run") for run in runs)
    assert all("torch" in run.environment for run in runs)


def test_the_main_table_and_the_ratios_are_there_in_full(frame):
    designs = fidelity(frame, POOR_ACCURACY)
    full = {(own["experiment"], own["layers"]) for own in designs if own["full"]}
    nets = {own["layers"]: own["nets"] for own in designs if own["experiment"] == "iris-w1-certified"}
    for layers in ("1 ReLU layer", "2 ReLU layers", "4 ReLU layers", "6 ReLU layers"):
        assert {("iris-tv", layers), ("iris-std", layers)} <= full
        assert nets[layers] == 10
    assert {("iris-claims", "4 ReLU layers"), ("iris-claims-w1", "4 ReLU layers")} <= full
    assert {("iris-claims-w1", "6 ReLU layers"), ("iris-claims-recipe", "4 ReLU layers")} <= full


def test_the_nets_learned(committed):
    frame = committed.columns_with_oracle(("activation", "experiment", "accuracy"))
    classifier = frame["activation"].map(lambda name: NetKind(str(name), 0).is_classifier).astype(bool)
    others = (
        "iris-sensitivity",
        "iris-claims-recipe",
        "iris-claims-w1-recipes",
        "published",
    )  # which need not
    own = frame[~frame["experiment"].isin(others) & ~classifier]
    assert (own["accuracy"] >= POOR_ACCURACY).all()


def test_eight_uci_sets_are_there_but_for_an_ensemble_and_three_of_many_samples(committed):
    section = PredictionIntervals().build(committed)
    assert {name: n for name, n, _ in section["runs"]} == dict.fromkeys(uci.PAPER, uci.EXPERIMENT.paper.nets)
    assert all(recipe.endswith(f"{uci.EPOCHS} epochs") for _, _, recipe in section["runs"])
    missing = {
        (row["dataset"], method)
        for table in section["tables"]
        for row in table["rows"]
        for method, cell in zip(table["methods"], row["cells"], strict=True)
        if cell is None
    }
    samples = label("monte_carlo:samples=1000", committed.traits)
    ensemble = label("ensemble:members=5", committed.traits)
    assert missing == {
        ("naval", ensemble),
        ("kin8nm", samples),
        ("naval", samples),
        ("power", samples),
    }


@pytest.mark.slow
def test_every_claim_has_a_verdict(frame):
    (tables,) = (topic for topic in topics() if topic.key == "tables")
    made = judged([tables], Results(frame))[0].statements
    assert len(made) == len(tables.statements)
    assert all(one.answer.verdicts.outcome is not Outcome.NOT_MEASURED for one in made)
    assert all(one.regular for one in made if one.dvia)


def test_certified_brackets_are_within_one_per_cent(frame):
    bounds = frame[(frame["metric"] == "w1_certified") & (frame["component"] != "")]
    sides = bounds.pivot_table(index=["net", "sigma", "rule"], columns="component", values="value")
    assert len(sides) == 720  # ten nets, three noise levels; five rules at four depths, two more at two
    assert ((sides["upper"] - sides["lower"]) <= 0.01 * sides["upper"]).all()


def test_the_runtime_table_has_every_method_on_both_nets():
    rows = load(BASELINES / "runtime.csv")
    methods = {REGULAR, SHORT, *RULES, DISTPROP}
    for architecture in ("cnn3", "resnet18"):
        for phase in ("forward", "training_step"):
            own = {row.method for row in rows if (row.architecture, row.phase) == (architecture, phase)}
            assert own == methods


@pytest.mark.slow
def test_the_documentation_says_what_they_say(committed):
    page = Path(__file__).parents[2] / "docs" / "results.md"
    assert page.read_text(encoding="utf-8") == results_page(committed)


@pytest.mark.slow
def test_the_readme_says_how_many_statements_hold(committed):
    readme = " ".join((ROOT / "README.md").read_text(encoding="utf-8").split())
    tally = {str(outcome): count for outcome, count in Rulings.of(committed).tally.items()}
    supported = tally.pop("supported")
    refuted = tally.pop("refuted")
    undecided = tally.pop("undecided")
    missing = tally.pop("not measured")
    assert f"{supported} are supported, {refuted} refuted and {undecided} undecided." in readme
    assert f"The verdict on {sum(tally.values())} statements depends on choices" in readme
    assert f"and {missing} statements were not measured." in readme
