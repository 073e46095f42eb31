from sdp_bench.bench.errors import NOT_DEFINED, RefusedError
from sdp_bench.bench.results.record import Failure
from sdp_bench.bench.runs.reasons import reasons

LACKS = f"{NOT_DEFINED}a covariance is needed, which a law of quantiles of single outputs has not"


def test_what_many_metrics_lack_is_told_once():
    found = reasons(
        ("mine", metric, LACKS, place, seconds)
        for place, seconds in (("here", 1.0), ("there", 2.0))
        for metric in ("bures", "gaussian_kl")
    )
    (one,) = found
    assert one.line == (
        "Bures, Gaussian KL: a covariance is needed, which a law of quantiles of single outputs has not"
    )
    assert (one.rule, one.places, one.seconds) == ("mine", ("here", "there"), 2.0)


def test_other_rules_and_other_errors_stand_alone():
    told = [
        ("mine", "bures", LACKS, "", 0.0),
        ("theirs", "bures", LACKS, "", 0.0),
        ("mine", "", "ValueError: no", "", 0.0),
    ]
    assert [(each.rule, each.line) for each in reasons(told)][2] == ("mine", "ValueError: no")
    assert len(reasons(told)) == 3


def test_a_refusal_is_known_by_its_words():
    assert Failure("unit", "mine", "bures", str(RefusedError("of no use")), 0.0).refused
    assert not Failure("unit", "mine", "bures", "ValueError: of no use", 0.0).refused
