import itertools
import operator
import tomllib
from dataclasses import dataclass
from importlib import metadata
from typing import ClassVar

import pytest
import torch
from torch import nn

import sdp_ref as sr
from sdp_bench.bench.errors import UserError
from sdp_bench.bench.peers import base
from sdp_bench.bench.peers.base import Peer
from sdp_bench.bench.rules import PEERS, resolve
from tests.project import ROOT


@dataclass(frozen=True)
class Echo(Peer):
    """An adapter of a package that is there wherever these tests run."""

    name: ClassVar[str] = "echo"
    package: ClassVar[str] = "click"
    module: ClassVar[str] = "click"
    tested: ClassVar[str] = "8.1"
    method: ClassVar[str] = "nothing"

    def prepare(self, net):
        return lambda x: x


class Broken(Echo):
    module: ClassVar[str] = "click.libmpi"


class Absent(Echo):
    package: ClassVar[str] = "no-such-package-anywhere"


@pytest.fixture
def nothing_installed(monkeypatch):
    def version(name):
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(base.metadata, "version", version)


def peer(name):
    """Rule of a peer, if its package is there and can be imported."""
    try:
        return PEERS[name]()
    except ValueError as error:
        pytest.skip(str(error))


def net(*widths, activation=nn.ReLU, bias=True):
    torch.manual_seed(0)
    layers = []
    for n, m in itertools.pairwise(widths):
        layers += [nn.Linear(n, m, bias=bias), activation()]
    return nn.Sequential(nn.Sequential(*layers[:2]), *layers[2:-1]).double()


def independent(batch, *event):
    torch.manual_seed(1)
    return sr.DiagonalGaussian(torch.randn(batch, *event).double(), torch.rand(batch, *event).double() + 0.1)


def correlated(batch, *event):
    mean = independent(batch, *event).mean
    n = mean[0].numel()
    factor = torch.randn(batch, n, n).double() / n**0.5
    return sr.Gaussian(mean, factor @ factor.mT)


CAUCHY = sr.Cauchy(torch.zeros(1, 4).double(), torch.ones(1, 4).double())
IMAGES = nn.Sequential(
    nn.Conv2d(2, 3, 3, padding=1), nn.ReLU(), nn.Conv2d(3, 2, 3, stride=2, bias=False), nn.Flatten(),
    nn.Linear(8, 3),
).double()  # fmt: skip


def assert_close(rule, ours, network, x, tolerance):
    with torch.no_grad():
        theirs, law = sr.propagate(network, x, rule), sr.propagate(network, x, ours)
    spread = operator.attrgetter("covariance" if isinstance(law, sr.Gaussian) else "variance")
    assert type(theirs) is type(law)
    for theirs_, ours_ in ((theirs.mean, law.mean), (spread(theirs), spread(law))):
        assert theirs_.dtype == ours_.dtype
        assert theirs_.shape == ours_.shape
        assert (theirs_ - ours_).abs().max() <= tolerance * ours_.abs().max()


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Echo(version="0.0.1"), r"click [\d.]+ is installed, not 0\.0\.1"),
        (Broken, r"the package click [\d.]+ cannot be imported: No module named 'click\.libmpi'"),
        (Absent, "which is not installed: pip install no-such-package-anywhere==8.1$"),
    ],
)
def test_what_cannot_run_is_one_line(make, message):
    with pytest.raises(ValueError, match=message) as caught:
        make()
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", PEERS)
@pytest.mark.usefixtures("nothing_installed")
def test_a_missing_package_is_reported_with_the_command_that_installs_it(name):
    package, version = PEERS[name].package, PEERS[name].tested
    with pytest.raises(UserError, match=f"pip install {package}=={version}$") as caught:
        resolve(["sdp", name])
    assert caught.value.exit_code == 2


def test_the_group_of_peers_lists_the_installed_packages(monkeypatch):
    here = peer("distprop").spec
    version = metadata.version

    def only_distprop(name):
        if name != "distprop":
            raise metadata.PackageNotFoundError(name)
        return version(name)

    monkeypatch.setattr(base.metadata, "version", only_distprop)
    names, plugins = resolve(["sdp", "peers", "distprop"])
    assert names == ("sdp", here)
    assert [plugin.options for plugin in plugins] == [here.partition(":")[2]]  # so that a replay asks for it


def test_the_version_is_part_of_the_rule():
    rule, here = Echo(), metadata.version("click")
    assert rule == Echo(version=here)
    assert rule.spec == f"echo:version={here}"
    assert rule.label == f"click {here} (nothing)"


@pytest.mark.usefixtures("nothing_installed")
def test_a_group_without_an_installed_package_is_refused_in_one_line():
    with pytest.raises(UserError, match=r"^none of the packages .* is installed: pip install .*\[peers\]'$"):
        resolve(["peers", "sdp"])


def test_the_extra_has_the_versions_that_the_adapters_were_written_for():
    extra = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    tested = {f"{peer.package}=={peer.tested}" for peer in PEERS.values()}
    assert set(extra["peers"]) == tested


@pytest.mark.parametrize("x", [independent(5, 4), correlated(3, 4)])
@pytest.mark.parametrize("activation", [nn.ReLU, nn.Tanh])
def test_distprop_is_our_sdp(x, activation):
    assert_close(peer("distprop"), "sdp", net(4, 9, 9, 3, activation=activation), x, 1e-14)


@pytest.mark.parametrize("x", [independent(2, 2, 6, 6), correlated(2, 2, 6, 6)])
def test_distprop_takes_images(x):
    assert_close(peer("distprop"), "sdp", IMAGES, x, 1e-14)


def test_nets_that_another_package_does_not_support_are_refused_by_name():
    with pytest.raises(sr.UnsupportedError, match="Cauchy input"):
        sr.propagate(net(4, 3), CAUCHY, peer("distprop"))


@pytest.mark.slow
@pytest.mark.parametrize("name", PEERS)
def test_the_kit_finds_the_faults_that_are_declared_and_no_others(name):
    report = sr.check_rule(peer(name))
    assert report.unexpected == ()
    assert {result.name for result in report.failed} == set(PEERS[name].known_faults)
