import re

import numpy as np
import pytest

import sdp_ref
from sdp_bench.oracles.exact.theorem import RATIOS, check_theorem
from sdp_bench.reports.page import build
from sdp_bench.reports.replication.computed import estimate_errors
from sdp_bench.reports.results import facts
from sdp_bench.reports.sections.choice import bands_of, choices
from sdp_bench.reports.sections.relu.relu import theorem
from sdp_bench.reports.sections.rules import Rules
from sdp_ref.conformance.report import VERSION
from tests.reports import made_up
from tests.reports.helpers import outline, plain_text
from tests.reports.made_up import TRAITS
from tests.reports.record_facts import ask, descriptions

BEST_SAMPLED = "monte_carlo:samples=1000"
META = {
    "runs": {
        "1": {"finished": "2025-11-20T09:00:00+00:00", "commit": "0123456"},
        "2": {"finished": None, "commit": None},
    }
}


@pytest.fixture(scope="module")
def results():
    frame = made_up.frame(depths=(1, 2), nets=3, inputs=3, experiments=("iris-tv",))
    frame = frame.assign(run=[1] + [2] * (len(frame) - 1))
    made = made_up.results(frame)
    made.meta.update(META)
    return made


@pytest.fixture(scope="module")
def pages(results, tmp_path_factory):
    folder = tmp_path_factory.mktemp("rules")
    build(results, folder, [Rules()])
    return {path.name: path.read_text(encoding="utf-8") for path in folder.glob("rule-*.html")}


def test_every_rule_that_can_be_chosen_has_a_page(results, pages):
    context = Rules().build(results)
    ranked = {rule for rule in results.frame["rule"].unique() if not TRAITS.is_reference(rule)}
    assert {one["rule"] for one in context["rules"]} == ranked
    assert set(pages) == {one["page"].file for one in context["rules"]}


def test_a_page_says_when_the_rule_was_measured(results, pages):
    counts = results.frame[results.frame["rule"] == "sdp"]["run"].value_counts()
    text = plain_text(pages["rule-sdp.html"])
    assert f"1 2025-11-20 09:00 UTC 0123456 {counts[1]:,}" in text
    assert f"2 – – {counts[2]:,}" in text


def test_settings_are_those_of_the_choice(results):
    sdp = next(context for context in Rules().build(results)["rules"] if context["rule"] == "sdp")
    conditions = [condition for band in bands_of(choices(results)) for condition in band.conditions]
    rankings = [condition.rankings[-1].deterministic for condition in conditions]
    settings = sdp["settings"]
    assert len(settings) == len(conditions)
    assert sum(setting["leads"] for setting in settings) == sum(one.leader == "sdp" for one in rankings)
    assert sum(setting["tied"] for setting in settings) == sum("sdp" in one.best for one in rankings)
    means = results.frame[(results.frame["metric"] == "tv_headline") & (results.frame["rule"] == "sdp")]
    mean = 1 - means[(means["depth"] == 1) & (means["sigma"] == 10)]["value"].mean()
    all_nets = [nets for _, nets_of_block in sdp["blocks"] for nets in nets_of_block]
    shallow = next(nets for nets in all_nets if nets["band"].depths == (1,))
    assert shallow["settings"][10.0]["standing"].value == pytest.approx(mean)
    assert 0.5 not in shallow["settings"]


def test_one_page_explains_the_names_that_all_pages_use(results, pages, tmp_path):
    folder = build(results, tmp_path, [Rules()]).parent
    text = (folder / "rules.html").read_text(encoding="utf-8")
    rows = dict(re.findall(r'<a href="(rule-[^"#]+)#[^"]*">([^<]+)</a>', text))
    assert set(rows) == set(pages)
    for name, label in rows.items():
        assert re.search(r"<h1[^>]*>([^<]*)</h1>", pages[name])[1] == label
    for rule in results.frame["rule"].unique():
        assert f"<code>{rule}</code>" in text
    plain = plain_text(text)
    assert "MC 100" in plain
    assert "MC estimate" not in plain


def test_bold_and_underlined_mean_on_the_page_of_a_rule_what_they_mean_in_tables(results, pages):
    conditions = [condition for band in bands_of(choices(results)) for condition in band.conditions]
    for rule, name in (("sdp", "rule-sdp.html"), (BEST_SAMPLED, "rule-monte_carlo-samples-1000.html")):
        best = [condition.rankings[-1].best.marked for condition in conditions if condition.standing(rule)]
        others = [condition.rankings[-1].deterministic.marked for condition in conditions]
        bold = sum(rule in marked for marked in best)
        underlined = sum(rule in both for both in others) - sum(
            rule in both and rule in marked for both, marked in zip(others, best, strict=True)
        )
        table = pages[name].partition("<tbody>")[2].partition("</tbody>")[0]
        assert (table.count("<strong>"), table.count("<u>")) == (bold, underlined)
        assert "±" not in table
        assert table.count("95 % interval".replace(" %", "\u00a0%")) == len(conditions)


def test_a_rule_of_a_users_is_named_and_no_more(tmp_path):
    frame = made_up.frame(depths=(1,), rules=("sdp", "<b>:k=1"), experiments=("iris-tv",))
    build(made_up.results(frame), tmp_path, [Rules()])
    text = (tmp_path / "rule-b-k-1.html").read_text(encoding="utf-8")
    assert "The conformance kit was not run" in plain_text(text)
    assert "<b>:k" not in text
    outline(text)


def test_what_is_kept_of_docstrings_is_what_they_say():
    assert facts()["described"] == descriptions()
    assert set(facts()["described"]) == set(sdp_ref.rules())


def test_verdicts_are_of_this_kit():
    assert {kit["version"] for kit in facts()["kit"].values()} == {VERSION}
    assert {"sdp", "dvia", "unscented", "monte_carlo:samples=100"} <= set(facts()["kit"])


@pytest.mark.slow
def test_committed_computations_are_those_of_this_code():
    for new, kept in zip(check_theorem(), theorem(), strict=True):
        known = ("family", "alpha", "ratio", "verdict")
        assert [getattr(new, name) for name in known] == [getattr(kept, name) for name in known]
        for one, other in ((new.theorem, kept.theorem), (new.density, kept.density), (new.point, kept.point)):
            assert one.tv == pytest.approx(other.tv, abs=1e-9)
    assert len(theorem()) == 6 * len(RATIOS)
    np.testing.assert_allclose(estimate_errors(), facts()["estimate_errors"], rtol=1e-6)


@pytest.mark.slow
def test_verdicts_of_the_kit_are_recorded_and_reported():
    said = []
    (answer,) = ask(["marginal_sdp"], said.append).values()
    assert said == [f"marginal_sdp {answer['verdict']}"]
    assert answer == facts()["kit"]["marginal_sdp"]
