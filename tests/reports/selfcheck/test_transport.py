"""Rates of W1's floors and of summaries of pairs, with very few trials: that they are found at all."""

from sdp_bench.reports.selfcheck.simulations.transport import rates


def test_few_trials_give_every_rate_and_the_same_seed_gives_the_same():
    found = list(rates(3, seed=1))
    assert {rate.part for rate in found} == {"floors", "intervals"}
    assert all(rate.trials == 3 and rate.kept for rate in found)
    assert len({(rate.what, rate.condition) for rate in found}) == len(found)
    assert list(rates(3, seed=1)) == found


def test_a_floor_that_promises_too_little_is_seen(monkeypatch):
    from sdp_bench.oracles.transport import wasserstein

    monkeypatch.setattr(wasserstein, "_reach", lambda pairs: 0.0)  # the mean for the 95 % point
    first = next(rates(60))
    assert not first.kept
    assert first.rate < 0.8
