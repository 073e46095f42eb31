import dataclasses

import pytest

from sdp_bench.bench.datasets.download import DataMissingError
from sdp_bench.bench.errors import UserError
from sdp_bench.bench.experiments import chosen, experiment, preset
from sdp_bench.bench.experiments.replicates import ReplicateExperiment
from sdp_bench.bench.nets.architectures import Architecture
from sdp_bench.bench.results.record import LeftOut
from sdp_bench.bench.runs.plan import plan_of
from sdp_bench.bench.studies.uci import EXPERIMENT
from tests.bench.conftest import TINY, made_up_tables, make_plan

SETTINGS = TINY.but(nets=2, datasets=("yacht", "boston"))


@pytest.fixture
def _sets(monkeypatch):
    made_up_tables(monkeypatch, 60)


class WithoutData(ReplicateExperiment):
    def expand(self, scope):
        raise DataMissingError("it is not there")


WITHOUT_DATA = WithoutData(**{f.name: getattr(EXPERIMENT, f.name) for f in dataclasses.fields(EXPERIMENT)})


def nets_of(plan):
    return list({group.net.digest: group.net for group in plan.groups}.values())


@pytest.mark.usefixtures("_sets")
def test_the_shards_of_a_run_are_all_of_it():
    experiments = chosen(["iris-tv", "iris-std", "uci"])
    whole = plan_of(experiments, SETTINGS, nets_of(make_plan(TINY)))
    shards = [whole.shard(part, 3) for part in (1, 2, 3)]
    titles = [group.title for shard in shards for group in shard.groups]
    assert sorted(titles) == sorted(group.title for group in whole.groups)
    assert {m for shard in shards for m in shard.members} == set(whole.members)
    for shard in shards:
        assert {key for _, key in shard.members} == {unit.key for unit in shard.units}


def test_one_without_its_data_is_left_out_where_there_is_other_work():
    with pytest.raises(DataMissingError):
        plan_of([WITHOUT_DATA], SETTINGS, [])
    nets = nets_of(make_plan(TINY, ["iris-std"]))
    plan = plan_of([experiment("iris-std"), WITHOUT_DATA], TINY, nets)
    assert plan.left_out == (LeftOut(None, "uci", "uci: it is not there"),)
    assert plan.groups
    assert list(plan.experiments) == ["iris-std"]


def test_a_net_that_does_not_fit_its_data_set_is_refused_before_it_is_trained():
    other = dataclasses.replace(experiment("iris-std"), architectures=(Architecture(1, inputs=6, outputs=2),))
    with pytest.raises(UserError, match=r"takes 6 columns and tells 2 classes apart, .* 'iris' has 4 and 3"):
        other.check(preset("quick"))
    narrow = dataclasses.replace(experiment("iris-std"), architectures=(Architecture(1, width=20),))
    assert [kind.width for kind, _ in narrow.kinds(preset("quick"))] == [20]
    assert [kind.width for kind, _ in narrow.kinds(preset("quick", {"width": 30}))] == [30]
