"""Published nets: what is expected of an installed package, and what the nets compute."""

import hashlib
import importlib.metadata
from dataclasses import replace

import numpy as np
import pytest
import torch

from sdp_bench.bench.errors import UserError
from sdp_bench.bench.experiments import experiment, preset
from sdp_bench.bench.nets.own.net import find
from sdp_bench.bench.nets.own.programs import PublishedProgram
from sdp_bench.bench.published import install_command, published_net, published_nets


def net_of(name):
    published = published_net(name)
    try:
        importlib.metadata.distribution(published.package)
    except importlib.metadata.PackageNotFoundError:
        pytest.skip(f"needs pip install --no-deps {published.requirement}")
    return PublishedProgram.find(name).load().double()


def inputs_of(name):
    return torch.from_numpy(published_net(name).inputs()).double()


@pytest.fixture
def package(tmp_path, monkeypatch):
    """A published net of a package, version 1.2, that is installed in a temporary folder."""
    info = tmp_path / "someones_net-1.2.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: someones-net\nVersion: 1.2\n")
    (tmp_path / "someones_net").mkdir()
    (tmp_path / "someones_net/weights.bin").write_bytes(b"weights")
    monkeypatch.syspath_prepend(tmp_path)
    return replace(
        published_net("vehicle"),
        package="someones-net",
        version="1.2",
        weights="someones_net/weights.bin",
        sha256=hashlib.sha256(b"weights").hexdigest(),
    )


def test_the_weights_are_found_in_the_installed_package(package, tmp_path):
    assert package.path() == tmp_path / "someones_net/weights.bin"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"package": "no-such-package"}, "no-such-package is not installed: pip install --no-deps no-such"),
        ({"version": "1.3"}, "has version 1.2, .* of 1.3: pip install --no-deps someones-net==1.3"),
        ({"sha256": "0" * 64}, "differs from the file of someones-net==1.2"),
        ({"weights": "someones_net/none.bin"}, "cannot read .*none.bin"),
    ],
)
def test_another_package_is_an_error_with_the_install_command(package, changes, message):
    with pytest.raises(UserError, match=message):
        replace(package, **changes).path()


def test_one_command_installs_all_packages():
    command = install_command(published_nets())
    assert command.startswith("pip install --no-deps brainmaze-eeg-models==0.1.0 cosmopower-jax==0.5.8 ")
    assert command.count("facenet-pytorch") == 1


@pytest.mark.parametrize("name", published_nets())
def test_a_published_net_has_ten_different_finite_inputs(name):
    values = published_net(name).inputs()
    assert values.dtype == np.float32
    assert len(np.unique(values, axis=0)) == 10
    assert np.isfinite(values).all()


def test_without_any_package_the_install_command_is_the_error(monkeypatch):
    missing = {name: replace(net, package=f"no-such-{name}") for name, net in published_nets().items()}
    monkeypatch.setattr("sdp_bench.bench.published.published_nets", lambda: missing)
    with pytest.raises(
        UserError, match=r"no published net can be measured: .* of another version; pip install --no-deps no-"
    ):
        experiment("published").plan(preset("smoke"), [])


def small_net():
    return torch.nn.Sequential(torch.nn.Linear(5, 4), torch.nn.ReLU(), torch.nn.Linear(4, 1)).eval()


@pytest.fixture
def installed_one(package, monkeypatch):
    """Three published nets; one is installed, and the packages of the others are missing or older."""
    torch.manual_seed(0)
    net = small_net()
    nets = {
        "vehicle": replace(package, build=lambda _: net, is_slow=True),
        "rnet": replace(published_net("rnet"), package="no-such-package"),
        "plasma": replace(published_net("plasma"), package="someones-net", version="2.0"),
    }
    monkeypatch.setattr("sdp_bench.bench.published.published_nets", lambda: nets)
    monkeypatch.setattr("sdp_bench.bench.nets.own.programs.published_net", nets.__getitem__)


@pytest.mark.usefixtures("installed_one")
def test_packages_that_are_missing_or_differ_are_one_line_and_the_others_are_measured():
    plan = experiment("published").plan(preset("quick"), [])
    assert {line.where for line in plan.left_out} == {"published:rnet", "published:plasma"}
    assert {line.reason for line in plan.left_out} == {
        "rnet, plasma: packages missing or of another version; pip install --no-deps no-such-package==2.6.0 "
        "someones-net==2.0"
    }
    assert set(plan.rows["network"]) == {"published:vehicle 5 to 1"}


@pytest.mark.usefixtures("installed_one")
@pytest.mark.parametrize(("overrides", "inputs"), [({}, 5), ({"inputs": 4}, 4)])
def test_a_slow_net_has_half_as_many_inputs_unless_a_number_is_given(overrides, inputs):
    plan = experiment("published").plan(preset("paper", overrides), [])
    assert plan.rows["input"].nunique() == inputs


@pytest.mark.usefixtures("installed_one")
def test_a_pilot_is_not_larger_than_the_oracle():
    plan = experiment("published").plan(preset("quick"), [])
    assert set(plan.rows["samples"]) == {1000}
    assert {group.settings.sampling.pilot_samples for group in plan.groups.values()} == {1000}


@pytest.mark.usefixtures("installed_one")
def test_a_net_without_classes_has_none_unless_the_user_says_so():
    arguments = "published:vehicle", {"0": published_net("vehicle").inputs()}, 1
    assert not find(*arguments).has_class
    assert find(*arguments, has_class=True).has_class


def test_crepe_hears_the_pitches_of_tones():
    activations = net_of("crepe")(inputs_of("crepe"))[:8]
    cents = 20 * activations.argmax(1).double()
    pitches = torch.tensor([82.4, 110.0, 146.8, 220.0, 330.0, 440.0, 659.3, 880.0]).double()
    expected = 1200 * torch.log2(pitches / pitches[0])
    # A pitch bin is 20 cents wide.
    assert (cents - cents[0] - expected).abs().max() <= 20


def test_pesto_hears_the_pitches_of_tones():
    probabilities = net_of("pesto")(inputs_of("pesto"))
    semitones = probabilities.argmax(1).double() / 3
    pitches = torch.tensor([65.4, 82.4, 110.0, 146.8, 196.0, 261.6, 330.0, 440.0, 587.3, 880.0]).double()
    expected = 12 * torch.log2(pitches / pitches[0])
    assert (semitones - semitones[0] - expected).abs().max() <= 0.5


def test_r_net_sees_a_face_in_every_drawing():
    assert bool((net_of("rnet")(inputs_of("rnet"))[:, 1] > 0.9).all())


def test_neuralfoil_has_no_lift_and_no_moment_on_a_symmetric_airfoil_at_rest():
    x = inputs_of("airfoil")[:1]
    x[0, 16] = x[0, 18] = 0  # leading edge and angle of attack
    lift, _, moment = net_of("airfoil")(x)[0]
    assert abs(lift) < 1e-12
    assert abs(moment) < 1e-12


def test_the_fluxes_of_qlknn_are_those_of_the_package():
    net = net_of("plasma")
    distribution = importlib.metadata.distribution("fusion-surrogates")
    path = distribution.locate_file("fusion_surrogates/qlknn/models/qlknn_7_11_test_data.npz")
    with np.load(path) as data:
        assert data["inputs"].shape[1] == 10
        outputs = net(torch.from_numpy(data["inputs"]).double())
    assert outputs.shape == (25, 8)
    assert bool(torch.isfinite(outputs).all())
