import importlib.metadata
import sys

import pytest
import torch

import sdp_ref as sr
from sdp_bench.bench.errors import UserError
from sdp_bench.bench.executors.local import LocalProcesses
from sdp_bench.bench.experiments import predict, preset
from sdp_bench.bench.experiments.plan import traits_of
from sdp_bench.bench.identity import OracleKey
from sdp_bench.bench.plugins.plugin import ENTRY_POINTS
from sdp_bench.bench.results.columns import MEASURED
from sdp_bench.bench.rules import find, resolve
from sdp_ref import registry
from tests.bench.conftest import TINY, make_plan, run_all, statuses

SOURCE = '''
import sys
from dataclasses import dataclass
from typing import ClassVar

import sdp_ref as sr


@dataclass(frozen=True)
class Wider(sr.Rule):
    """SDP with a factor on its covariance."""

    name: ClassVar[str] = "wider"
    factor: float = 2.0

    def prepare(self, net):
        inner = sr.rule("sdp").prepare(net)

        def propagate(x):
            law = inner(x)
            return sr.Gaussian(law.mean, self.factor * law.covariance)

        return propagate


class Plain:
    name = "plain"

    def propagate(self, net, x):
        return sr.propagate(net, x, "sdp")


class Noisy:
    """Draws with the one seed that it is given."""

    name = "noisy"
    seed = 0

    def propagate(self, net, x):
        return sr.propagate(net, x, sr.rule("monte_carlo", samples=5, seed=self.seed))


class Needy:
    name = "needy"

    def __init__(self, order):
        self.order = order


class Spaced(Plain):
    name = "two words"


class Taken(Plain):
    name = "sdp"


class Nameless(Plain):
    @property
    def name(self):
        raise OSError("no\\nname")


class Leaving(Plain):
    name = "leaving"

    def propagate(self, net, x):
        sys.exit(0)


def make():
    return Wider(4.0)


def leave():
    sys.exit()


rule = Plain()
nothing = 3
'''


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "outside.py"
    path.write_text(SOURCE)
    return path


@pytest.fixture
def x():
    return sr.DiagonalGaussian(torch.zeros(2, 4), torch.ones(2, 4))


@pytest.fixture
def net():
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(4, 5), torch.nn.ReLU(), torch.nn.Linear(5, 3))


@pytest.mark.parametrize(
    ("attribute", "name", "factor"),
    [
        ("Wider", "wider", 2.0),
        ("Wider:factor=3", "wider:factor=3", 3.0),
        ("make", "wider:factor=4.0", 4.0),
        ("Plain", "plain", 1.0),
        ("rule", "plain", 1.0),
    ],
)
def test_a_class_a_factory_or_an_object_in_a_file(file, net, x, attribute, name, factor):
    plugin = find(f"{file}:{attribute}")
    assert plugin.name == name
    covariance = sr.propagate(net, x, plugin.load()).covariance
    assert torch.allclose(covariance, factor * sr.propagate(net, x, "sdp").covariance)


def test_a_module_and_an_installed_entry_point(file, monkeypatch):
    monkeypatch.chdir(file.parent)
    monkeypatch.delitem(sys.modules, "outside", raising=False)
    assert find("outside:Wider").name == "wider"
    point = importlib.metadata.EntryPoint("theirs", "outside:Wider", ENTRY_POINTS)
    monkeypatch.setattr(registry, "entry_points", lambda group: [point])
    assert find("theirs:factor=3").name == "wider:factor=3"
    with pytest.raises(UserError, match=r"rule 'others' not found; did you mean 'theirs'"):
        find("others")


@pytest.mark.parametrize(
    ("address", "message"),
    [
        ("absent.py:Rule", "cannot read absent.py: No such file"),
        ("{file}", "names a file and no rule in it"),
        ("{file}:Absent", "there is no Absent"),
        ("{file}:Needy", "cannot make the rule: TypeError: .*order"),
        ("{file}:Wider:width=1", "cannot make the rule: .*width"),
        ("{file}:Wider:3", "parameters are written key=value"),
        ("{file}:nothing", "neither a rule nor makes one"),
        ("{file}:Spaced", "one word"),
        ("{file}:Taken", "the name of a built-in rule"),
        ("no_such_module:Rule", "cannot load no_such_module:Rule: ModuleNotFoundError"),
        ("{broken}:Rule", r"cannot load .*: SyntaxError: .*, line 2"),
        ("{exiting}:Rule", r"cannot load .*: RuntimeError: it calls sys.exit\('no GPU'\)"),
        ("{file}:Nameless", "the rule's name cannot be read: OSError: no name"),
        ("{file}:leave", r"cannot make the rule: RuntimeError: it calls sys.exit\(\)"),
    ],
)
def test_an_invalid_rule_is_refused_in_one_line(file, tmp_path, address, message):
    broken, exiting = tmp_path / "broken.py", tmp_path / "exiting.py"
    broken.write_text("x = 1\ndef f(:\n")
    exiting.write_text("import sys\nsys.exit('no GPU')\n")
    with pytest.raises(UserError, match=message) as caught:
        find(address.format(file=file, broken=broken, exiting=exiting))
    assert "\n" not in str(caught.value)


def test_two_rules_with_one_name_are_refused(file, tmp_path):
    other = tmp_path / "other.py"
    other.write_text(SOURCE.replace("factor: float = 2.0", "factor: float = 9.0"))
    with pytest.raises(UserError, match="two rules have the name 'wider'"):
        resolve([f"{file}:Wider", f"{other}:Wider"])
    assert find(f"{file}:Wider").load().factor == 2
    assert find(f"{other}:Wider").load().factor == 9


def test_specs_of_built_in_rules_stay_as_they_are():
    names = ("sdp", "monte_carlo:samples=100", "oracle_moments")
    assert resolve(names) == (names, ())
    with pytest.raises(UserError, match="rule 'spd' not found"):
        resolve((*names, "spd:a=1"))


@pytest.mark.rounding
def test_a_sampling_rule_has_a_seed_for_each_input(file, net, x):
    noisy = find(f"{file}:Noisy").load()
    oracles = [OracleKey("net", f"input {i}", "gaussian:sigma=1.0", "mc", 100) for i in range(2)]
    both = predict.prepared(noisy, net, predict.seeds_of(noisy, oracles))(x)
    alone = predict.prepared(noisy, net, predict.seeds_of(noisy, oracles[1:]))(x[1])
    assert torch.equal(both.mean[1:], alone.mean)
    assert not torch.equal(both.mean[0], both.mean[1])
    assert noisy.seed == 0


def test_a_rule_that_predicts_marginals_need_not_declare_it(file, tmp_path):
    (tmp_path / "marginal.py").write_text(
        """
import sdp_ref as sr

class Own:
    name = "own"

    def propagate(self, net, x):
        law = sr.propagate(net, x, "sdp")
        return sr.DiagonalGaussian(law.mean, law.variance)
"""
    )
    plugins = [find(address) for address in (f"{tmp_path}/marginal.py:Own", f"{file}:Plain")]
    assert [traits_of(plugin.name, plugins).marginal for plugin in plugins] == [True, False]


def test_the_first_call_of_a_rule_is_not_its_time(net, x):
    class Counting:
        name = "counting"
        calls = 0

        def propagate(self, net, x):
            self.calls += 1
            return sr.propagate(net, x, "marginal_sdp")

    keys = [OracleKey("net", f"input {i}", "gaussian:sigma=1.0", "mc", 100) for i in range(x.batch)]
    rule = Counting()
    _, seconds, _ = predict.predict(rule, net, x, keys)
    assert rule.calls == len(seconds) + 1


def outside_settings(file, *rules):
    specs = ["sdp"] + [f"{file}:{rule}" for rule in rules]
    settings = preset("quick", {"rules": tuple(specs)})
    return TINY.but(rules=settings.rules, plugins=settings.plugins)


def test_workers_run_it_without_the_file(file, tmp_path):
    settings = outside_settings(file, "Wider", "Plain", "Noisy")
    assert settings.rules == ("sdp", "wider", "plain", "noisy")
    plan = make_plan(settings, ["iris-std"])
    file.unlink()
    with LocalProcesses(2, 1) as executor:
        frame = run_all(tmp_path / "r", plan, executor=executor, settings=settings)
    assert set(statuses(tmp_path / "r")["status"]) == {MEASURED}
    values = frame[frame.metric == "std_ratio"].pivot_table("value", ["unit", "component"], "rule")
    assert values["plain"].tolist() == values["sdp"].tolist()
    assert (values["wider"] / values["sdp"]).tolist() == pytest.approx([2**0.5] * len(values))
