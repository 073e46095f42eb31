import pytest
import torch
from torch import nn

import sdp_ref as sr
from tests.sdp_ref.conformance.mutants import Gated

ROOT_EXAMPLE = "docs/examples/second_order.py"


class OfSdp:
    """Sound, but for what a subclass spoils."""

    name = "of-sdp"

    def propagate(self, net, x):
        return sr.propagate(net, x, "sdp")


class BlocksOf(Gated):
    """Laws beyond the first few get the covariance of the first."""

    def __init__(self, size):
        self.size = size

    def law(self, mean, covariance):
        rows = torch.arange(len(mean))
        return super().law(mean, covariance[torch.where(rows < self.size, rows, 0)])


class BranchAlone(OfSdp):
    """Forgets what goes past the branch."""

    def propagate(self, net, x):
        if isinstance(net, nn.Sequential):
            net = nn.Sequential(*(getattr(m, "branch", m) for m in net))
        return super().propagate(net, x)


@pytest.mark.parametrize(
    ("rule", "checks"), [(BranchAlone(), {"affine", "small-noise"}), (BlocksOf(16), {"batch"})]
)
def test_a_wrong_rule_fails_where_it_must(rule, checks):
    report = sr.check_rule(rule, only=["affine", "small-noise", "batch"])
    assert {result.name for result in report.failed} == checks
    for result in report.failed:
        names = {"rule": rule}
        exec(result.example, names)
        assert isinstance(names["net"], nn.Module)


def test_a_rejected_case_is_reported_with_its_reason():
    detail = sr.check_rule(Gated(), only="affine")["affine"].detail
    for module in ("Flatten", "Conv2d", "Sequential", "Residual", "BatchNorm1d", "Conv1d", "PixelShuffle"):
        assert f"does not support {module}" in detail


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


class Exits(OfSdp):
    """Ends the process for kinked nets."""

    name = "exits"

    def propagate(self, net, x):
        if any(isinstance(module, nn.ReLU) for module in net.modules()):
            raise SystemExit(7)
        return super().propagate(net, x)


def test_a_rule_that_ends_the_process_fails_instead():
    report = sr.check_rule(Exits(), only=["affine", "scale"])
    assert report["affine"].status == "passed"
    assert report["scale"].status == "failed"
    assert "SystemExit" in report["scale"].detail
    assert "nn.ReLU()" in report["scale"].example
