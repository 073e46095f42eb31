"""What the kit prints of a failure, run: it shows that failure, on as few laws as it takes."""

import pytest
import torch

import sdp_ref as sr
from tests.sdp_ref.conformance.mutants import MUTANTS, Gated, Matched


@pytest.fixture(autouse=True)
def _print_options():
    yield
    torch.set_printoptions(profile="default")


def ran(result, rule):
    """Names that the lines of an example leave behind."""
    names = {"rule": rule}
    exec(result.example, names)
    return names


def values(law):
    return torch.cat([law.mean.flatten(), law.covariance.flatten()]).detach().double()


def has(law, number):
    got = values(law)
    if number != number:
        return bool(got.isnan().any())
    return bool(torch.isclose(got, torch.tensor(number, dtype=got.dtype), rtol=1e-9, atol=0).any())


def differ(a, b):
    return not torch.allclose(a.double(), b.double(), rtol=1e-6, atol=0)


def laws_differ(a, b):
    return differ(a.mean, b.mean) or differ(a.covariance, b.covariance)


def as_told(names, numbers, _printed):
    got = numbers["got"]
    return has(names["y"], got) and (got != got or not has(names["y"], numbers["expected"]))


def draws_are_of_another_law(names, numbers, _printed):
    second = torch.cov(names["drawn"].flatten(1).mT).flatten()
    told = names["y"].covariance.flatten()
    return (
        bool((second / numbers["got"] - 1).abs().min() < 1e-3)
        and has(names["y"], numbers["expected"])
        and (bool(((second - told).abs() > numbers["tolerance"]).any()))
    )


def not_finite(names, _numbers, _printed):
    return not bool(torch.isfinite(values(names["y"])).all())


def apart(names, _numbers, _printed):
    return laws_differ(names["y"], names["z"])


def rescaled(names, _numbers, _printed):
    y, z, c = names["y"], names["z"], names["c"]
    return differ(z.mean / c, y.mean) or differ(z.covariance / c**2, y.covariance)


def reordered(names, _numbers, _printed):
    y, z, o = names["y"], names["z"], names["o"]
    return differ(y.mean[:, o], z.mean) or differ(y.covariance[:, o][:, :, o], z.covariance)


def both_printed(names, numbers, printed):
    got, want = float(names["got"]), float(names["want"])
    assert got == pytest.approx(numbers["got"], rel=1e-9)
    assert want == pytest.approx(numbers["expected"], rel=1e-6)
    assert "finite differences" in printed
    return got != pytest.approx(want, rel=1e-4)


def errors_stay(_names, numbers, printed):
    shown = [float(line.split("tensor(")[1].split(",")[0].rstrip(")")) for line in printed.splitlines()]
    assert len(shown) == 3
    assert numbers["error_262144"] > 0.6 * numbers["error_16384"]
    return shown[2] > 0.6 * shown[1]


def limit_is_wrong(names, numbers, printed):
    return f"must tend to {numbers['expected']:.6g}" in printed and has_ratio(names, numbers["got"])


def has_ratio(names, got):
    ratio = (names["y"].mean - names["net"](names["x"].mean)) / names["t"]
    return bool(torch.isclose(ratio, torch.tensor(got, dtype=ratio.dtype)).any())


SHOWS = {
    **dict.fromkeys(
        ("affine", "small-noise", "zero-variance", "moments", "marginal-moments", "several"), as_told
    ),
    "diagonal": as_told,
    "scale": rescaled,
    "permutation": reordered,
    **dict.fromkeys(("batch", "determinism", "prepare", "threads"), apart),
    "global-rng": lambda _names, _numbers, printed: "False" in printed,
    "dtype": lambda _names, _numbers, printed: {"torch.float32", "torch.float64"} <= set(printed.split()),
    "precision": lambda names, _numbers, _printed: (
        names["y"].covariance.double().div(names["z"].covariance).allclose(torch.tensor(1.05).double(), 1e-5)
    ),
    "symmetry": lambda names, numbers, _printed: (
        float((names["y"].covariance - names["y"].covariance.mT).abs().max()) == numbers["error"] > 0
    ),
    "positive-semidefinite": lambda names, _numbers, _printed: (
        torch.linalg.eigvalsh(names["y"].covariance).min() < 0
    ),
    "mean-shift": lambda names, numbers, _printed: (
        has(names["y"], numbers["here"]) and has(names["z"], numbers["there"])
    ),
    **dict.fromkeys(("far-tails", "perfect-correlation", "rank-deficiency"), not_finite),
    "law": draws_are_of_another_law,
    "second-order": limit_is_wrong,
    "sampling-error": errors_stay,
    "gradients": both_printed,
    "inputs-kept": lambda names, _numbers, printed: names["kept"].requires_grad and "True" in printed,
    "net-kept": lambda names, _numbers, printed: names["before"].training and "True False" in printed,
}


@pytest.mark.parametrize("check", list(MUTANTS))
def test_an_example_shows_its_failure(check, capsys):
    mutant = MUTANTS[check]()
    found = sr.check_rule(mutant, only=check)[check]
    names = ran(found, mutant)
    assert SHOWS[check](names, found.numbers, capsys.readouterr().out)


class VarianceLeft(Gated):
    """The gradient in the variances is lost; that in the mean is right."""

    name = "variance-left"
    graph = True

    def propagate(self, net, x):
        if isinstance(x, sr.DiagonalGaussian):
            x = sr.DiagonalGaussian(x.mean, x.variance.detach())
        return super().propagate(net, x)


class WeightLeft(Gated):
    """The weights' gradient is halved."""

    name = "weight-left"
    graph = True

    def linear(self, net, w, b, mean, covariance):
        return super().linear(net, (w + w.detach()) / 2, b, mean, covariance)


class FactorLeft(Gated):
    """The covariance's gradient is halved where the inputs are correlated."""

    name = "factor-left"
    graph = True

    def propagate(self, net, x):
        if isinstance(x, sr.Gaussian):
            x = sr.Gaussian(x.mean, (x.covariance + x.covariance.detach()) / 2)
        return super().propagate(net, x)


@pytest.mark.parametrize(
    ("rule", "leaf"),
    [(VarianceLeft(), "variance"), (FactorLeft(), "factor of the covariance"), (WeightLeft(), "0.weight")],
)
def test_the_gradient_that_is_wrong_is_the_one_that_is_printed(rule, leaf, capsys):
    found = sr.check_rule(rule, only="gradients")["gradients"]
    assert f"in the {leaf} the gradient" in found.detail
    assert f"# the {leaf}" in found.example
    assert both_printed(ran(found, rule), found.numbers, capsys.readouterr().out)


class RootAtZero(Gated):
    """Right gradients, but not finite at a point mass."""

    name = "root-at-zero"
    graph = True

    def outer(self, d, covariance):
        v = covariance.diagonal(dim1=1, dim2=2)
        s = v.sqrt()
        return super().outer(d, covariance + torch.diag_embed(s * s - v))


def test_a_gradient_that_is_not_finite_is_printed(capsys):
    rule = RootAtZero()
    found = sr.check_rule(rule, only="gradients")["gradients"]
    assert found.detail.startswith("at a singular input the gradient in the ")
    assert not torch.isfinite(ran(found, rule)["got"]).all()
    assert "nan" in capsys.readouterr().out


class WiderInCompany(Matched):
    """Adds to the variance of each of several outputs."""

    name = "wider-in-company"

    def law(self, mean, covariance):
        n = mean.shape[1]
        return super().law(mean, covariance * (1 + 0.01 * (n - 1)))


def test_an_output_in_company_is_compared_with_it_alone():
    rule = WiderInCompany()
    found = sr.check_rule(rule, only="diagonal")["diagonal"]
    assert "beside the others, against alone" in found.detail
    names = ran(found, rule)
    y, z, i = names["y"], names["z"], names["i"]
    assert names["x"].batch == 1
    assert differ(y.covariance[:, i, i], z.covariance[:, 0, 0])


class Coupled(Matched):
    """Variances grow with the batch, by the same number for every law, from three laws on."""

    name = "coupled"

    def law(self, mean, covariance):
        return super().law(mean, covariance * (1 + 0.01 * max(0, len(mean) - 2)))


def test_only_the_laws_that_a_failure_needs_are_printed():
    rule = Coupled()
    report = sr.check_rule(rule, only=["diagonal", "batch"])
    for check in ("diagonal", "batch"):
        names = ran(report[check], rule)
        assert names["x"].batch == 3
    assert as_told(ran(report["diagonal"], rule), report["diagonal"].numbers, "")
    assert "of 3," in report["batch"].detail
