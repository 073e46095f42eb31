"""The conformance kit as pytest tests, one test for each check.

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
    """Make a test function for a rule, parametrized by the checks of :func:`sdp_ref.check_rule`.

    A skipped check is a skipped test, a fault that the rule declares in ``known_faults`` an expected
    failure, each with its reason. A last test fails if no check ran, so that green cannot mean nothing.

    Parameters
    ----------
    rule, only, seed
        See :func:`sdp_ref.check_rule`.

    Returns
    -------
    callable
        To be kept in a test module under a name that starts with ``test``.

    Raises
    ------
    ValueError
        If that is no rule, or there is no such check.
    """
    import pytest

    check_rule(rule, only=[], seed=seed)  # a bad rule is told where the tests are made
    names = [check.name for check in named_checks(only)]
    results: dict[str, CheckResult] = {}

    def result(name: str) -> CheckResult:
        if name not in results:
            (results[name],) = check_rule(rule, only=[name], seed=seed).checks
        return results[name]

    @pytest.mark.parametrize("check", [*names, _ANY])
    def test_conformance(check: str) -> None:
        if check == _ANY:
            # one that ran is enough, and those that were selected are known already
            order = sorted(names, key=lambda name: name not in results)
            if all(result(name).status == "skipped" for name in order):
                pytest.fail("no check ran: nothing is shown of this rule", pytrace=False)
            return
        found = result(check)
        if found.status == "skipped":
            pytest.skip(found.detail)
        if found.known is not None:
            pytest.xfail(f"known: {found.known}")
        if found.status == "failed":
            pytest.fail(str(found), pytrace=False)

    return test_conformance
