"""The table of checks, and the function that runs them on a rule."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from typing import Any

from sdp_ref.conformance.checks import form, gradients, invariance, limits, moments, order
from sdp_ref.conformance.report import CheckResult, ConformanceReport
from sdp_ref.conformance.subject import Subject
from sdp_ref.conformance.trial import Check, run
from sdp_ref.errors import not_found
from sdp_ref.registry import spelled
from sdp_ref.rules import Propagator
from sdp_ref.rules import rule as built_in

CHECKS: tuple[Check, ...] = (
    Check("affine", "Is it exact on affine nets?", limits.affine),
    Check("small-noise", "Does it tend to f(x) and J S J^T as the noise goes to 0?", limits.small_noise),
    Check("zero-variance", "Is a point mass mapped to f(x), without variance?", limits.point_masses),
    Check("scale", "Does c X give c f(X) for homogeneous nets, c from 1e-6 to 1e6?", invariance.scale),
    Check("permutation", "Does it follow the order of inputs, units, outputs?", invariance.permutation),
    Check("batch", "Is a law's result independent of the rest of the batch?", invariance.batch),
    Check("determinism", "Does the same call give the same numbers?", invariance.determinism),
    Check("prepare", "Does `prepare`, if it exists, equal `propagate`?", invariance.prepare),
    Check("threads", "Is the result independent of the number of threads?", invariance.threads),
    Check("global-rng", "Does it leave global random generators unchanged?", invariance.global_generators),
    Check("dtype", "Does the result have the dtype of the input?", form.dtype),
    Check("precision", "Do results in float32 and float64 agree?", form.precision),
    Check("symmetry", "Is the covariance symmetric?", form.symmetry),
    Check("positive-semidefinite", "Is the covariance positive semi-definite?", form.semidefinite),
    Check("diagonal", "Is a unit's variance consistent with its mean?", moments.diagonal),
    Check("mean-shift", "Do covariances respond to the mean?", moments.mean_shift),
    Check("far-tails", "Is it finite at abs(mean / std) = 40?", form.far_tails),
    Check("perfect-correlation", "Is it finite at correlations of +-1?", form.perfect_correlation),
    Check("rank-deficiency", "Is it finite at singular covariances?", form.deficient_rank),
    Check("moments", "Claimed: are mean and covariance exact after one layer?", moments.joint_moments),
    Check("marginal-moments", "Claimed: are mean and variance of a unit exact?", moments.marginal_moments),
    Check("several", "Claimed: are products, maxima, norms, softmax as accurate as stated?", moments.several),
    Check("second-order", "Claimed: is the mean correct to second order in noise?", moments.second_order),
    Check("class", "Claimed: are classes correct to first order in noise?", moments.class_probabilities),
    Check("order", "Claimed: do errors fall with the noise as fast as stated?", order.orders),
    Check("sampling-error", "Does the error of a sampling rule fall with samples?", gradients.sampling_error),
    Check("law", "Do samples and density match the reported moments?", form.law),
    Check("gradients", "Are gradients finite and equal to finite differences?", gradients.gradients),
    Check("inputs-kept", "Is the input law unchanged?", form.inputs_kept),
    Check("net-kept", "Is the net unchanged?", form.net_kept),
)


def check_rule(
    rule: str | Propagator,
    *,
    only: str | Collection[str] | None = None,
    seed: int = 0,
    progress: Callable[[CheckResult], None] | None = None,
) -> ConformanceReport:
    """Test general properties of a propagation rule, and its own claims.

    The rule may be a built-in one as text, ``"monte_carlo:samples=100"``, or any object with a `name` and
    ``propagate(net, x)`` that returns a law with mean and covariance: a `Gaussian`, a `DiagonalGaussian` or a
    `Mixture`. These attributes of the rule are optional:

    - claims (collection of str): ``"moments"``: mean and covariance after one hidden layer are those of the
      true law; ``"marginal moments"``: mean and variance of a unit are; ``"second order"``: the mean is
      f(m) + 1/2 tr(H S) + o(S); ``"class"``: the law's `class_probabilities` of equal classes are correct to
      first order in the noise.
    - orders (mapping of str to float): the error of a quantity for a kind of net is proportional to the noise
      to this power, for example ``{"smooth mean": 4}``; the names are ``{affine, smooth, kinked} {mean,
      covariance, law}``.
    - known_faults (mapping of str to str): names of checks that the published rule fails, and why. They are
      reported as known.
    - samples (int): the rule draws so many samples; tolerances are then statistical.
    - tolerance (float): error of moments that the rule admits, if that exceeds the kit's.
    - create_graph (bool): set for the check of gradients.
    - differentiable (bool): False if results carry no meaningful gradients, True if they do.

    Parameters
    ----------
    rule : str or object
    only : str or collection of str, optional
        Names of checks; all by default.
    seed : int
        Seed of the nets and laws of the test cases.
    progress : callable, optional
        Called with each result.

    Notes
    -----
    Cases for which a rule raises `UnsupportedError` are not judged. A check without any judged case is
    skipped, and a rule without any judged check has not passed. Any other error fails the check. Global
    generators, default dtype, grad mode and thread count are restored after every check.
    """
    chosen = built_in(rule) if isinstance(rule, str) else _valid(rule)
    if isinstance(seed, bool) or not isinstance(seed, int) or seed < 0:
        raise ValueError(f"seed must be an integer of at least 0, got {seed!r}")
    checks, subject = named_checks(only), Subject(chosen, seed)
    unknown = _unknown(subject) if only is None else ()
    results, reasons = [], dict[str, str]()
    for outcome in itertools.chain((run(check, subject, seed) for check in checks), unknown):
        result = outcome
        if outcome.status == "failed" and outcome.known is None:
            first = reasons.setdefault(outcome.detail, outcome.name)
            result = outcome if first == outcome.name else replace(outcome, same_as=first)
        results.append(result)
        if progress is not None:
            progress(result)
    return ConformanceReport(str(getattr(chosen, "spec", chosen.name)), tuple(results), seed)


def named_checks(only: str | Collection[str] | None) -> list[Check]:
    """Checks of these names, or all for None, in the kit's order."""
    if only is None:
        return list(CHECKS)
    names = [only] if isinstance(only, str) else list(only)
    known = {check.name: check for check in CHECKS}
    names = [spelled(str(name), known) for name in names]
    for name in names:
        if name not in known:
            raise ValueError(not_found("check", str(name), known))
    return [check for check in CHECKS if check.name in names]


def _valid(rule: Any) -> Any:
    if isinstance(rule, type):
        raise ValueError(f"{rule.__name__} is a class; check an instance: check_rule({rule.__name__}())")
    for attribute in ("name", "propagate"):
        if not hasattr(rule, attribute):
            raise ValueError(
                f"a rule is a name such as 'sdp' or an object with `name` and `propagate(net, x)`; "
                f"{type(rule).__name__} {_short(rule)} has no `{attribute}`"
            )
    if not isinstance(rule.name, str) or not rule.name:
        raise ValueError(f"a rule's name is a string such as 'sdp', got {_short(rule.name)}")
    if not callable(rule.propagate):
        raise ValueError(f"rule '{rule.name}': propagate must be a function of (net, x)")
    claims, known = getattr(rule, "claims", None) or (), getattr(rule, "known_faults", None) or {}
    differentiable, orders = getattr(rule, "differentiable", True), getattr(rule, "orders", None) or {}
    is_list = isinstance(claims, Collection) and not isinstance(claims, str)
    if not is_list or not all(isinstance(claim, str) for claim in claims):
        text, value = "claims must be a collection of strings such as frozenset({'moments'})", claims
    elif not isinstance(known, Mapping) or not all(
        isinstance(t, str) for pair in known.items() for t in pair
    ):
        text, value = "known_faults must map names of checks to reasons", known
    elif not isinstance(orders, Mapping) or not all(isinstance(k, int | float) for k in orders.values()):
        text, value = "orders must map names such as 'smooth mean' to numbers", orders
    elif not isinstance(differentiable, bool):
        text, value = "differentiable must be True or False", differentiable
    else:
        return rule
    raise ValueError(f"rule '{rule.name}': {text}, got {_short(value)}")


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


def _unknown(subject: Subject) -> list[CheckResult]:
    """Claims and known faults of the rule that do not match any check."""
    results = []
    claims = sorted(set(subject.claims) - set(moments.CLAIMS))
    if claims:
        text = f"no check knows {_listed(claims)}; known claims: {_listed(moments.CLAIMS)}"
        results.append(CheckResult("claims", "Is every claim one that can be checked?", "skipped", text))
    orders = sorted(set(map(str, getattr(subject.rule, "orders", None) or ())) - set(order.ORDERS))
    if orders:
        text = f"no check knows {_listed(orders)}; known orders: {_listed(order.ORDERS)}"
        results.append(CheckResult("orders", "Is every order one that can be checked?", "skipped", text))
    faults = sorted(set(subject.known_faults) - {check.name for check in CHECKS})
    if faults:
        text = f"known_faults names no check: {_listed(faults)}"
        results.append(CheckResult("known-faults", "Is every known fault that of a check?", "skipped", text))
    return results


def _listed(names: Collection[str]) -> str:
    return ", ".join(f'"{name}"' for name in names)
