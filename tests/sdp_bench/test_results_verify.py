"""The command ``sdp-bench results verify``: what it stamps, what it refuses to, and its exit codes."""

import re

import pytest
from click.testing import CliRunner

from sdp_bench.bench.datasets.base import ImageClassification
from sdp_bench.bench.errors import RunFailedError, UserError
from sdp_bench.bench.results import exchange
from sdp_bench.bench.results.store import Store
from sdp_bench.bench.rules import resolve
from sdp_bench.commands.exchange import results
from sdp_bench.reports.page import build
from sdp_bench.reports.results import results_of
from sdp_bench.reports.site import MEASURED
from tests.bench import conftest
from tests.bench.conftest import TINY, make_plan, run_all
from tests.bench.experiments import test_selective as selective

SMALL = TINY.but(rules=("sdp", "monte_carlo:samples=10"))
SUITES = ("iris-tv", "iris-w1")

FRAGILE = """
from pathlib import Path
from sdp_ref.laws import DiagonalGaussian

class Fragile:
    name = "fragile"
    def propagate(self, net, law):
        if Path({broken!r}).exists():
            raise ValueError("it broke")
        mean = net(law.mean)
        return DiagonalGaussian(mean, mean**2 + 1)
"""


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    path = tmp_path_factory.mktemp("whole") / "r.sqlite"
    run_all(path, make_plan(SMALL, SUITES))
    return path


@pytest.fixture
def file(whole, tmp_path):
    """A copy whose records are by other code."""
    copy = tmp_path / "results.sqlite"
    copy.write_bytes(whole.read_bytes())
    change(copy, "fingerprint = 'old'")
    return copy


def change(path, assignment, where="TRUE", table="records"):
    conftest.change(path, f"UPDATE {table} SET {assignment} WHERE {where}")


def records(path):
    with Store(path) as store:
        return store.tables()["records"]


def fingerprints(path):
    """Distinct ones, by metric."""
    frame = records(path)
    return frame.groupby(frame.metric.str.partition(":")[0])["fingerprint"].agg(set).to_dict()


def call(*arguments):
    """Run the command in this process: exit code, output, and the error that it raises."""
    result = CliRunner().invoke(results, ["verify", *map(str, arguments)])
    if result.exception and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result.exit_code, result.output


def test_where_all_agree_the_rest_is_stamped_and_the_evidence_travels(whole, file, tmp_path):
    code, output = call(file, "--share", "10%", "--seed", "7", "--jobs", "1")
    assert code == 0
    assert f"{len(records(whole))} have today's fingerprints now" in output
    kept = ["value", "floor", "stderr", "seconds", "fingerprint"]
    assert records(file)[kept].equals(records(whole)[kept])  # seconds too: what was stored stays
    with Store(file) as store:
        (made,) = store.verifications()
        exchange.export(store, tmp_path / "out")
    assert (made.share, made.seed, made.experiments) == (0.1, 7, SUITES)
    assert (made.unrepeatable, made.remaining, made.stamped) == (0, 0, len(records(whole)))
    assert 0 < made.measured < 0.5 * made.stamped
    assert f"all {made.measured} records measured again agree" in output
    assert {"cpu", "torch", "sdp-bench", "commit"} <= made.environment.keys()
    with Store(tmp_path / "imported.sqlite", writing=True) as store:
        exchange.import_(tmp_path / "out", store)
        exchange.import_(tmp_path / "out", store)
        assert store.verifications() == [made]
    exchange.merge([file, tmp_path / "imported.sqlite"], tmp_path / "merged.sqlite")
    with Store(tmp_path / "merged.sqlite") as store:
        assert store.verifications() == [made]
        build(results_of(store), tmp_path / "page")
    page = (tmp_path / "page" / MEASURED.file).read_text(encoding="utf-8")
    assert re.search("<h3[^>]*>Measured again", page)
    assert f"all agree, rounding apart; {made.stamped:,} records stamped, 0 not" in page


def test_what_is_of_todays_code_needs_no_stamp(whole):
    before = whole.read_bytes()
    code, output = call(whole)
    assert code == 0
    assert "0 of other code" in output
    assert output.endswith("nothing to stamp\n")
    assert whole.read_bytes() == before


def test_models_are_of_todays_code_each_by_its_own_objective(monkeypatch, tmp_path):
    made = {
        ("mnist", "train"): selective.TRAIN,
        ("mnist", "test"): selective.DIGITS,
        ("emnist-letters", "test"): selective.LETTERS,
    }
    monkeypatch.setenv("SDP_BENCH_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(ImageClassification, "load", lambda self, split: made[self.name, split])
    plan, path = make_plan(selective.SMALL, ("selective",)), tmp_path / "r.sqlite"
    two = [g for g in plan.groups if g.units[0].objective in ("pairwise_marginal", "pairwise_cauchy")]
    run_all(path, plan, two)
    assert records(path)["fingerprint"].nunique() == 2
    code, output = call(path)
    assert code == 0
    assert "0 of other code" in output


def test_one_disagreement_stamps_nothing_and_is_named(file):
    change(file, "value = 1.01 * value", "metric LIKE 'w1%' AND rule = 'sdp'")
    change(file, 'environment = replace(environment, \'"cpu": "\', \'"cpu": "another \')', table="runs")
    code, output = call(file, "--share", "1e-6", "--jobs", "1")
    assert code == 1
    (line,) = (line for line in output.splitlines() if line.startswith("DIFFERENT"))
    assert line.startswith("DIFFERENT iris-w1: relu 4-8-3 seed ")
    assert ", sdp, w1:w1_points=100,w1_pairs=8: value stored " in line
    assert "some were made on another " in output
    assert output.endswith("1 numbers differ, 0 failures: nothing is stamped\n")
    assert set(records(file)["fingerprint"]) == {"old"}
    with Store(file) as store:
        assert store.verifications() == []


def test_only_the_experiments_that_are_named_are_looked_at(file):
    code, output = call(file, "--only", "iris-w1", "--jobs", "1")
    assert code == 0
    assert "iris-tv" not in output
    found = fingerprints(file)
    assert "old" not in found.pop("w1")
    assert set.union(*found.values()) == {"old"}


def test_a_dry_run_changes_nothing(file):
    before = file.read_bytes()
    code, output = call(file, "--dry-run", "--share", "100%")
    assert code == 0
    total = len(records(file))
    assert f"{total} records in 4 groups: about " in output
    assert "min on one core" in output
    assert file.read_bytes() == before


@pytest.mark.slow
def test_nets_without_weights_are_trained_again_and_others_stay_as_they_are(file, monkeypatch, tmp_path):
    monkeypatch.setenv("SDP_BENCH_CACHE", str(tmp_path / "cache"))
    change(file, "weights = NULL", table="nets")
    change(file, """recipe = replace(recipe, '"epochs": 100', '"epochs": 99')""", "seed = 1", "nets")
    code, output = call(file, "--jobs", "1", "--share", "1e-6")
    assert code == 0
    with Store(file) as store:
        (made,) = store.verifications()
    assert made.unrepeatable > 0
    assert made.remaining == 0  # the other net speaks for them: the same rules on the same kind of net
    change(file, "fingerprint = 'old'")
    change(file, """recipe = replace(recipe, '"epochs": 100', '"epochs": 99')""", table="nets")
    code, output = call(file, "--jobs", "1")
    assert code == 3
    assert output.endswith("nothing can be measured again\n")
    assert "trained again by its recipe it comes out otherwise here" in output
    assert set(records(file)["fingerprint"]) == {"old"}


def test_a_verification_that_was_stopped_goes_on_from_where_it_was(file, monkeypatch):
    def stop(*_):
        raise RunFailedError("the disk is full")

    with monkeypatch.context() as patch:
        patch.setattr(Store, "stamp", stop)
        with pytest.raises(RunFailedError, match="full"):
            call(file, "--only", "iris-w1", "--share", "50%", "--jobs", "1")
    assert set(records(file)["fingerprint"]) == {"old"}
    code, output = call(file, "--only", "iris-w1", "--share", "100%", "--jobs", "1")
    assert code == 0
    assert "4 records were measured again already, before an interruption" in output
    assert not list(file.parent.glob("*.unfinished"))


def test_stored_code_runs_only_if_trusted_and_a_failure_stamps_nothing(tmp_path):
    broken = tmp_path / "broken"
    (tmp_path / "fragile.py").write_text(FRAGILE.format(broken=str(broken)))
    rules, plugins = resolve(("sdp", f"{tmp_path}/fragile.py:Fragile"))
    settings = SMALL.but(rules=rules, plugins=plugins)
    path = tmp_path / "r.sqlite"
    run_all(path, make_plan(settings, ("iris-w1",)))
    change(path, "fingerprint = 'old'")
    broken.touch()
    code, output = call(path, "--trust-code", "--jobs", "1")
    assert code == 3
    assert "fragile: ValueError: it broke" in output
    assert "0 numbers differ" in output
    assert set(records(path)["fingerprint"]) == {"old"}
    code, output = call(path, "--jobs", "1")
    assert code == 0
    assert "left as it is: 4 of iris-w1 relu: rule 'fragile'" in output
    marks = records(path).groupby("rule")["fingerprint"].agg(set)
    assert marks["fragile"] == {"old"}
    assert "old" not in marks["sdp"]
    broken.unlink()
    assert call(path, "--trust-code", "--jobs", "1")[0] == 0
    assert "old" not in set(records(path)["fingerprint"])


@pytest.mark.parametrize("share", ["0", "0%", "-1%", "101%", "1.5", "nan", "some", "", "2%%"])
def test_what_is_no_share_is_told(file, share):
    code, output = call(file, "--share", share)
    assert code == 2
    assert output.splitlines()[-1].startswith(f"Error: Invalid value for '--share': '{share}' is no share")


@pytest.mark.parametrize("share", ["50%", "50 %", "0.5", ".5"])
def test_a_share_is_written_as_a_number_or_in_per_cent(file, share):
    code, output = call(file, "--dry-run", "--share", share)
    assert code == 0
    assert output == call(file, "--dry-run", "--share", "0.5")[1]


def test_what_is_no_results_file_is_told(file, tmp_path):
    with pytest.raises(UserError, match="no results at"):
        call(tmp_path / "absent.sqlite")
    assert not list(tmp_path.glob("absent*"))
    assert call(tmp_path)[0] == 2
    other = tmp_path / "other.sqlite"
    other.write_text("something else")
    with pytest.raises(UserError, match="is not a results file"):
        call(other)
    with pytest.raises(UserError, match=r"no experiment 'iris-w2' in .*; it has iris-tv, iris-w1"):
        call(file, "--only", "iris-w2")
