"""The conformance kit as pytest tests, one test per check.

>>> from sdp_ref.testing import conformance_tests
>>> test_my_rule = conformance_tests("sdp")
"""

from __future__ import annotations

from collections.abc import Callable, Collection

from sdp_ref.conformance import CheckResult, check_rule
from sdp_ref.conformance.kit import named_checks
from sdp_ref.rules import Propagator

_ANY = "any-check-ran"


def conformance_tests(
    rule: str | Propagator, *, only: Collection[str] | None = None, seed: int = 0
) -> Callable[[str], None]:
    """Return a test function for a rule, parametrized over the checks of :func:`sdp_ref.check_rule`.

    A skipped check becomes a skipped test, and a fault that the rule declares in ``known_faults`` becomes an
    expected failure, both with their reasons. A last test fails if no check ran, so that the tests cannot
    pass without testing anything. Assign the result to a name that starts with ``test``. The parameters are
    those of :func:`sdp_ref.check_rule`, which raises a ValueError for an invalid rule or an unknown check.
    """
    import pytest

    check_rule(rule, only=[], seed=seed)  # reports an invalid rule when the tests are collected
    names = [check.name for check in named_checks(only)]
    results: dict[str, CheckResult] = {}

    def result(name: str) -> CheckResult:
        if name not in results:
            (results[name],) = check_rule(rule, only=[name], seed=seed).checks
        return results[name]

    @pytest.mark.parametrize("check", [*names, _ANY])
    def test_conformance(check: str) -> None:
        if check == _ANY:
            # one check that ran is enough; checks that were selected are already known
            order = sorted(names, key=lambda name: name not in results)
            if all(result(name).status == "skipped" for name in order):
                pytest.fail("no check ran: nothing is shown of this rule", pytrace=False)
            return
        outcome = result(check)
        if outcome.status == "skipped":
            pytest.skip(outcome.detail)
        if outcome.known is not None:
            pytest.xfail(f"known: {outcome.known}")
        if outcome.status == "failed":
            pytest.fail(str(outcome), pytrace=False)

    return test_conformance
