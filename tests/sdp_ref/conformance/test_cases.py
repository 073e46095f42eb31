"""What the kit's cases reach: events, wide layers, batches, nested nets, rules that end the process."""

import pytest
import torch
from click.testing import CliRunner
from torch import nn

import sdp_ref as sr
from sdp_bench.bench.errors import UserError
from sdp_bench.commands.check_rule import check_rule as command
from sdp_ref.conformance.checks import moments
from tests.sdp_ref.conformance.mutants import Gated, Marginal

ROOT_EXAMPLE = "docs/examples/second_order.py"


class OfSdp:
    """Sound, but for what a subclass spoils."""

    name = "of-sdp"

    def propagate(self, net, x):
        return sr.propagate(net, x, "sdp")


class ImagesBack(OfSdp):
    """Returns the input where events are images."""

    def propagate(self, net, x):
        return x if x.mean.ndim > 2 else super().propagate(net, x)


class TurnedIfWide(Gated):
    """Transposes a square weight of more than four units."""

    def linear(self, net, w, b, mean, covariance):
        return super().linear(net, w.T if w.shape[0] == w.shape[1] > 4 else w, b, mean, covariance)


class BlocksOf(Gated):
    """Laws beyond the first few get the covariance of the first."""

    def __init__(self, size):
        self.size = size

    def law(self, mean, covariance):
        rows = torch.arange(len(mean))
        return super().law(mean, covariance[torch.where(rows < self.size, rows, 0)])


class FirstOfNested(OfSdp):
    """Of a Sequential in a Sequential it takes the last module only."""

    def propagate(self, net, x):
        if isinstance(net, nn.Sequential):
            net = nn.Sequential(*(m[-1] if isinstance(m, nn.Sequential) else m for m in net))
        return super().propagate(net, x)


class BranchAlone(OfSdp):
    """Forgets what goes past the branch."""

    def propagate(self, net, x):
        if isinstance(net, nn.Sequential):
            net = nn.Sequential(*(getattr(m, "branch", m) for m in net))
        return super().propagate(net, x)


@pytest.mark.parametrize(
    ("rule", "checks"),
    [
        (ImagesBack(), {"affine", "small-noise"}),
        (TurnedIfWide(), {"affine", "small-noise"}),
        (FirstOfNested(), {"affine", "small-noise"}),
        (BranchAlone(), {"affine", "small-noise"}),
        (BlocksOf(3), {"batch"}),
        (BlocksOf(4), {"batch"}),
        (BlocksOf(16), {"batch"}),
        (OfSdp(), set()),
    ],
)
def test_a_wrong_rule_fails_where_it_must(rule, checks):
    report = sr.check_rule(rule, only=["affine", "small-noise", "batch", "dtype", "symmetry"])
    assert {result.name for result in report.failed} == checks
    for result in report.failed:
        names = {"rule": rule}
        exec(result.example, names)
        assert isinstance(names["net"], nn.Module)


def test_a_case_that_is_refused_is_told_with_its_reason():
    detail = sr.check_rule(Gated(), only="affine")["affine"].detail
    assert detail.startswith("24 cases")
    assert detail.count("does not support") == 11
    kinds = ("Flatten", "Conv2d", "Sequential", "Residual", "BatchNorm1d", "Conv1d", "ConvTranspose2d")
    for module in (*kinds, "Conv3d", "AvgPool2d", "PixelShuffle", "Upsample"):
        assert f"does not support {module}" in detail


def test_a_marginal_rule_is_judged_on_a_flattened_image():
    class Flattens(Marginal):
        def propagate(self, net, x):
            flat = sr.DiagonalGaussian(x.mean.flatten(1), x.variance.flatten(1))
            return super().propagate(nn.Sequential(*(m for m in net if not isinstance(m, nn.Flatten))), flat)

    detail = sr.check_rule(Flattens(), only="affine")["affine"].detail
    assert detail.startswith("7 cases")


# The claim "second order" ---------------------------------------------------------------------------


def second_order_rule(source):
    names = {"__name__": "second_order_example"}
    exec(source, names)
    return names["SecondOrder"]()


@pytest.fixture
def source(request):
    return (request.config.rootpath / ROOT_EXAMPLE).read_text(encoding="utf-8")


def test_the_tutorials_rule_is_told_from_one_without_its_halves(source):
    assert sr.check_rule(second_order_rule(source), only="second-order").passed
    assert source.count(".sum(2) / 2") == source.count("curved, curved) / 2") == 1
    wrong = source.replace(".sum(2) / 2", ".sum(2)").replace("curved, curved) / 2", "curved, curved)")
    found = sr.check_rule(second_order_rule(wrong), only="second-order")["second-order"]
    assert found.status == "failed"
    assert found.numbers["got"] == pytest.approx(2 * found.numbers["expected"], rel=1e-3)
    slightly = source.replace(".sum(2) / 2", ".sum(2) / 1.98")
    assert not sr.check_rule(second_order_rule(slightly), only="second-order").passed


@pytest.mark.parametrize(
    ("spec", "status"),
    [("moment_matching", "passed"), ("unscented", "passed"), ("sdp", "failed"), ("dvia", "skipped")],
)
def test_rules_that_do_and_do_not_keep_the_second_order(spec, status):
    class Claims:
        name = spec
        claims = ("second order",)

        def propagate(self, net, x):
            return sr.propagate(net, x, spec)

    assert sr.check_rule(Claims(), only="second-order")["second-order"].status == status


def test_half_the_trace_is_that_of_a_quadratic_net():
    matrix = torch.tensor([[2.0, 0.5], [0.5, -1.0]], dtype=torch.float64)
    covariance = torch.tensor([[[1.0, 0.3], [0.3, 2.0]]], dtype=torch.float64)
    x = sr.Gaussian(torch.tensor([[0.7, -0.2]], dtype=torch.float64), covariance)
    half, scale = moments.half_trace(lambda v: torch.einsum("bi,ij,bj->b", v, matrix, v).unsqueeze(1), x)
    # H = 2 A, so 1/2 tr(H S) = tr(A S)
    assert float(half) == pytest.approx(float((matrix @ covariance[0]).trace()), rel=1e-8)
    assert float(scale) >= abs(float(half))


# Rules that end the process, and what is told before any check runs ---------------------------------


class Exits(OfSdp):
    """Ends the process, from the start or for kinked nets."""

    name = "exits"

    def __init__(self, kind):
        self.kind, self.seed = kind, 0

    def propagate(self, net, x):
        if any(isinstance(module, self.kind) for module in net.modules()):
            raise SystemExit(7)
        return super().propagate(net, x)


def test_a_rule_that_ends_the_process_fails_instead():
    report = sr.check_rule(Exits(nn.ReLU), only=["affine", "scale"])
    assert report["affine"].status == "passed"
    assert report["scale"].status == "failed"
    assert report["scale"].detail == "raised SystemExit, which would end the process: 7"
    assert "nn.ReLU()" in report["scale"].example
    whole = sr.check_rule(Exits(nn.Module))
    assert {r.detail for r in whole.failed} == {"raised SystemExit, which would end the process: 7"}
    assert "affine" in {r.name for r in whole.failed}


STRING_CLAIM = """
class Mine:
    name = "mine"
    claims = "moments"

    def propagate(self, net, x):
        return x
"""


def test_bad_claims_are_told_before_anything_is_printed(tmp_path):
    path = tmp_path / "mine.py"
    path.write_text(STRING_CLAIM)
    for arguments in ((f"{path}:Mine",), ("sdp", "--only", "afine")):
        result = CliRunner().invoke(command, list(arguments))
        assert isinstance(result.exception, UserError)
        assert result.exception.exit_code == 2
        assert "\n" not in str(result.exception)
        assert result.output == ""
