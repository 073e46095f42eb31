import dataclasses
from concurrent.futures import Executor, Future

import pytest

from sdp_bench.bench.datasets.download import DataMissingError
from sdp_bench.bench.errors import UserError
from sdp_bench.bench.experiments import chosen, experiment, preset
from sdp_bench.bench.experiments.base import Group
from sdp_bench.bench.experiments.plan import plan_of
from sdp_bench.bench.experiments.replicates import ReplicateExperiment
from sdp_bench.bench.metrics.oracle import Oracle
from sdp_bench.bench.metrics.total_variation import HeadlineTotalVariation
from sdp_bench.bench.nets.architectures import Architecture
from sdp_bench.bench.results.columns import CELL, measurements
from sdp_bench.bench.results.folder import LeftOut, read, read_plan
from sdp_bench.bench.runs.driver import Request, run, run_group
from sdp_bench.bench.settings import Size
from sdp_bench.bench.studies.uci import EXPERIMENT
from sdp_bench.progress import Screen
from tests.bench.conftest import TINY, made_up_tables, make_plan, nets_of

SETTINGS = TINY.but(nets=2, datasets=("yacht", "boston"))


@pytest.fixture
def _sets(monkeypatch):
    made_up_tables(monkeypatch, 60)


class WithoutData(ReplicateExperiment):
    def plan(self, settings, nets):
        raise DataMissingError("it is not there")


WITHOUT_DATA = WithoutData(**{f.name: getattr(EXPERIMENT, f.name) for f in dataclasses.fields(EXPERIMENT)})


class Measured(Executor):
    """Workers that measure nothing, and remember the groups."""

    def __init__(self):
        self.titles = []

    def submit(self, fn, /, group, rows):
        assert fn is run_group
        self.titles.append(group.title)
        future = Future()
        future.set_result(measurements(rows, []))
        return future


@pytest.mark.usefixtures("_sets")
def test_the_shards_of_a_run_are_all_of_it(tmp_path):
    experiments = chosen(["iris-tv", "iris-std", "uci"])
    nets = nets_of(make_plan(TINY))
    whole = plan_of(experiments, SETTINGS, nets)
    executor = Measured()
    folders = [tmp_path / "1", tmp_path / "2", tmp_path / "3"]
    for part, folder in enumerate(folders, 1):
        request = Request(experiments, SETTINGS, nets, shard=(part, 3))
        run(folder, request, 1, lambda *_: executor, Screen(quiet=True))
    assert sorted(executor.titles) == sorted(group.title for group in whole.groups.values())
    stored = read(*folders)
    assert len(stored.runs) == 3
    plans = [read_plan(stored_run).astype(dict.fromkeys(CELL, object)) for stored_run in stored.runs.values()]
    names = ["experiment", "group", *CELL]
    shards = [set(plan[names].itertuples(index=False, name=None)) for plan in plans]
    assert sum(map(len, shards)) == len(whole.rows)
    assert set.union(*shards) == set(whole.rows[names].itertuples(index=False, name=None))
    groups = [set(plan["group"]) for plan in plans]
    assert sum(map(len, groups)) == len(set.union(*groups)) == len(whole.groups)


def test_one_without_its_data_is_left_out_where_there_is_other_work():
    with pytest.raises(DataMissingError):
        plan_of([WITHOUT_DATA], SETTINGS, [])
    nets = nets_of(make_plan(TINY, ["iris-std"]))
    plan = plan_of([experiment("iris-std"), WITHOUT_DATA], TINY, nets)
    assert plan.left_out == (LeftOut(None, "uci", "uci: it is not there"),)
    assert plan.groups
    assert set(plan.rows["experiment"]) == {"iris-std"}


def test_a_net_that_does_not_fit_its_data_set_is_refused_before_it_is_trained():
    other = dataclasses.replace(experiment("iris-std"), architectures=(Architecture(1, inputs=6, outputs=2),))
    with pytest.raises(
        UserError, match=r"takes 6 columns and distinguishes 2 classes, .* 'iris' has 4 and 3"
    ):
        other.check(preset("quick"))
    narrow = dataclasses.replace(experiment("iris-std"), architectures=(Architecture(1, width=20),))
    assert [kind.width for kind, _ in narrow.kinds(preset("quick"))] == [20]
    assert [kind.width for kind, _ in narrow.kinds(preset("quick", {"width": 30}))] == [30]


class Mistaken(Group):
    title = "mistaken"

    def seconds(self, rows):
        return 1.0

    def measure(self, rows):
        raise KeyError("a mistake of ours")


def test_a_mistake_of_the_project_is_not_a_failure_of_a_rule():
    with pytest.raises(KeyError, match="a mistake of ours"):
        run_group(Mistaken(), make_plan(TINY).rows)


def test_groups_have_one_order_whatever_the_order_of_experiments():
    plan = make_plan(TINY)
    backwards = make_plan(TINY, ("iris-std", "iris-w1", "iris-tv"))
    assert [*plan.groups] == [*backwards.groups]
    cells = [set(one.rows[CELL].itertuples(index=False)) for one in (plan, backwards)]
    assert cells[0] == cells[1]


def test_repeated_names_levels_and_depths_count_once():
    assert [each.name for each in chosen(["uci", "iris-tv", "uci"])] == ["uci", "iris-tv"]
    settings = preset("quick", {"sigmas": (1.0, 1.0), "depths": (1, 1), "samples": 10_000})
    assert (settings.design.sigmas, settings.design.depths) == ((1.0,), (1,))


def test_only_w1_needs_the_samples_of_w1():
    few = TINY.but(samples=1000)
    experiment("iris-tv").check(few)
    with pytest.raises(UserError, match="lower --w1-points"):
        experiment("iris-w1").check(few)


def test_an_experiment_has_fewer_samples_unless_they_are_requested():
    resnet = experiment("resnet-tv")
    assert resnet.samples(preset("paper")) == 5000
    assert resnet.samples(preset("quick")) == 500
    assert resnet.samples(preset("quick", {"samples": 20_000})) == 20_000
    with pytest.raises(UserError, match="30 bins of a slice need at least 120 samples, got 100"):
        resnet.check(preset("quick", {"samples": 100}))


def test_training_options_change_every_recipe_but_those_of_experiments_on_recipes():
    deep, recipes = experiment("iris-tv-deep"), experiment("iris-claims-recipe")
    epochs = preset("paper", {"epochs": 7})
    assert {recipe.epochs for each in (deep, recipes) for _, recipe in each.kinds(epochs)} == {7}
    sgd = preset("paper", {"optimizer": "sgd", "learning_rate": 0.1})
    assert {(recipe.optimizer, recipe.learning_rate) for _, recipe in deep.kinds(sgd)} == {("sgd", 0.1)}
    assert [recipe for _, recipe in recipes.kinds(sgd)] == list(recipes.recipes)


def test_an_oracle_of_more_samples_keeps_its_cells():
    settings = TINY.but(sizes={"iris-oracle": Size(1, 1), "iris-oracle-10x": Size(1, 1)}, rules=None)
    plan = make_plan(settings.but(sigmas=(1.0,)), ("iris-oracle", "iris-oracle-10x"))
    keys = [(group, key) for group in plan.groups.values() for key in group.keys]
    assert sorted(key.samples for _, key in keys) == [2048, 20480]
    oracles = [Oracle(group.net.build(), group.law[0], key, settings.sampling) for group, key in keys]
    trees = [HeadlineTotalVariation(cells=16, pilot_samples=1024).partition(oracle) for oracle in oracles]
    assert (trees[0].thresholds == trees[1].thresholds).all()
