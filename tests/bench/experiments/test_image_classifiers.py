import dataclasses

import pytest
import torch

from sdp_bench.bench.datasets.base import ImageClassification
from sdp_bench.bench.experiments import experiment, preset
from sdp_bench.bench.experiments.plan import plan_of
from sdp_bench.bench.metrics.oracle import Oracle
from sdp_bench.bench.nets.net import best_classifier, inputs_of
from sdp_bench.bench.replay import replay
from sdp_bench.bench.replay import replay as stored_measurements
from sdp_bench.bench.results.columns import records
from sdp_bench.bench.results.folder import read
from sdp_bench.bench.results.joined import failures, nets
from sdp_bench.bench.runs import driver as run
from sdp_bench.bench.settings import Settings, Size
from sdp_bench.reports.page import build
from tests.bench.conftest import run_all
from tests.bench.nets.helpers import RECIPE, RESNET, TEST, classifier
from tests.reports.made_up import Results

SETTINGS = Settings().but(inputs=12, sizes={"resnet-tv": Size(samples=200)}, sigmas=(0.01, 0.1))
SMALL = dataclasses.replace(experiment("resnet-tv"), classifiers=(RESNET,))
METRICS = {"tv_class", "tv_margin", "tv_pairs", "tv_sliced", "energy", "bures_logits"}


@pytest.fixture
def net(monkeypatch):
    monkeypatch.setattr(ImageClassification, "load", lambda *_: TEST)
    return classifier(0.5)


@pytest.fixture
def plan(net):
    return plan_of([SMALL], SETTINGS, [net])


def test_a_group_holds_ten_images_and_keeps_the_samples_of_its_experiment(plan, net):
    groups = [*plan.groups.values()]
    assert [len(group.inputs) for group in groups] == [10, 2, 10, 2]
    assert {key.samples for group in groups for key in group.keys} == {200}
    assert len({key.hex for group in groups for key in group.keys}) == 24
    for name, group in plan.groups.items():
        units = plan.rows.loc[plan.rows["group"] == name, "unit"]
        assert set(units) == {key.hex for key in group.keys}
    first = groups[0]
    assert first.locations.shape == (10, 1, 8, 8)
    assert (first.locations == inputs_of(net).batch([item.row for item in first.inputs])).all()


@pytest.mark.slow
def test_a_run_is_stored_replayed_and_shown_next_to_the_paper(tmp_path, plan, monkeypatch):
    monkeypatch.setattr(stored_measurements, "chosen", lambda _: [SMALL])  # of another architecture's nets
    path = tmp_path / "r"
    frame = run_all(path, plan, groups=[*plan.groups][1:2], settings=SETTINGS)
    assert set(frame.metric) == METRICS
    assert set(frame[frame.metric == "tv_pairs"].component) == {"largest", "mean"}
    assert frame[frame.metric.str.contains("tv")].value.between(0, 1).all()
    assert (frame.floor95 >= frame.floor).all()
    assert set(frame.recipe) == {RECIPE.label}
    stored = read(path)
    assert failures(stored, [stored.run()]).empty
    key = frame[(frame.rule == "sdp") & (frame.metric == "tv_sliced")].key.iloc[0]
    said = []
    for before, again in replay.replay(stored, key, said.append):
        assert replay.identical(before, again)
    assert "resnet18 1x8x8 to 3" in said[0]
    meta = {"nets": records(nets(stored, [stored.run()]))}
    results = Results(frame, meta, failures(stored, [stored.run()]))
    page = build(results, tmp_path / "page", alone=True).read_text("utf-8")
    assert "ResNet-18 on CIFAR-10" in page
    assert "paper 0.00073" in page  # SDP at sigma 0.01 in Table 37
    assert "For image classifiers" in page


def test_the_best_of_the_cached_classifiers_is_taken(tmp_path, monkeypatch):
    monkeypatch.setenv("SDP_BENCH_CACHE", str(tmp_path))
    assert best_classifier(RESNET) is None
    folder = tmp_path / "nets"
    folder.mkdir()
    for number, accuracy in enumerate((0.3, 0.7, 0.5)):
        (folder / f"mnist-resnet18-{number}.safetensors").write_bytes(classifier(accuracy).to_bytes())
    (folder / "mnist-resnet18-damaged.safetensors").write_bytes(b"damaged")
    with pytest.warns(UserWarning, match=r"mnist-resnet18-damaged.safetensors is damaged .*: it is left out"):
        assert best_classifier(RESNET).accuracy == 0.7
    (folder / "mnist-resnet18-damaged.safetensors").unlink()
    assert best_classifier(dataclasses.replace(RESNET, width=8)) is None


SEQUENCE = experiment("sequence")


@pytest.fixture(scope="module")
def sequence_nets():
    return [best_classifier(architecture, "committed") for architecture in SEQUENCE.classifiers]


@pytest.fixture(scope="module")
def sequence_plan(sequence_nets):
    return plan_of([SEQUENCE], preset("smoke", {"samples": 2000, "rules": ("sdp", "dvia")}), sequence_nets)


def test_a_ratio_is_what_a_direct_computation_gives(sequence_plan, sequence_nets):
    name, group = [*sequence_plan.groups.items()][1]
    rows = sequence_plan.rows[sequence_plan.rows["group"] == name]
    measured = run.run_group(group, rows[(rows["rule"] == "sdp") & (rows["metric_spec"] == "std_ratio")])
    net = sequence_nets[0].build()
    x = inputs_of(sequence_nets[0]).batch([group.inputs[0].row])
    oracle = Oracle(net, group.law[0], group.keys[0], group.settings.sampling)
    jacobian = torch.autograd.functional.jacobian(
        net.double(), x.double()
    )  # (1, 10, 1, 8, 2): the noise is independent and equal
    predicted = group.sigma * jacobian.flatten(2).square().sum(2).sqrt().squeeze()
    ratios = predicted / oracle.samples.double().std(0)
    assert torch.tensor(measured["value"].tolist(), dtype=torch.float64) == pytest.approx(ratios, rel=2e-3)
