"""Rates of W1's floors and of summaries of pairs, with very few trials: that they are found at all."""

from sdp_bench.reports.selfcheck.simulations.transport import rates


def test_a_single_trial_gives_every_rate_and_breaks_no_promise_by_the_noise_of_what_it_is_held_against():
    found = list(rates(1, seed=0))
    assert {rate.part for rate in found} == {"floors", "intervals"}
    assert all(rate.kept for rate in found)
    assert len({(rate.what, rate.condition) for rate in found}) == len(found)
    assert list(rates(1, seed=0)) == found


def test_a_floor_that_promises_too_little_is_seen(monkeypatch):
    from sdp_bench.oracles.transport import wasserstein

    monkeypatch.setattr(wasserstein, "_reach", lambda pairs: 0.0)  # the mean for the 95 % point
    first = next(rates(60))
    assert not first.kept
    assert first.rate < 0.8
