"""The leaderboard: who stands where, what a wrong guarantee costs, and files that need nothing else."""

import json
import re
from dataclasses import replace
from xml.etree import ElementTree

import numpy as np
import pytest

from sdp_bench.bench.errors import UserError
from sdp_bench.bench.problems.problem_set import problem_set
from sdp_bench.bench.submissions.submission import Guarantee, read
from sdp_bench.reports.leaderboard.page import build
from sdp_bench.reports.leaderboard.standings import USES, entries, standings
from tests.project import ROOT

HOSTILE = '<script>alert(1)</script>"&\x1b[31m'


@pytest.fixture(scope="module")
def problems():
    return problem_set()


@pytest.fixture(scope="module")
def submissions():
    return [read(path) for path in sorted((ROOT / "submissions").glob("*.json"))]


@pytest.fixture(scope="module")
def page(problems, submissions, tmp_path_factory):
    folder = tmp_path_factory.mktemp("leaderboard")
    hostile = replace(submissions[0].rule, name="hostile", label=HOSTILE, authors=[HOSTILE], version=HOSTILE)
    build([*submissions, replace(submissions[0], rule=hostile)], problems, folder)
    return folder


def use(name):
    return next(each for each in USES if each.name == name)


def only(submission, taken, name="partial"):
    """A submission of another name with the problems alone of which a function says so."""
    kept = {problem: each for problem, each in submission.measurements.items() if taken(problem)}
    return replace(submission, rule=replace(submission.rule, name=name, label=name), measurements=kept)


def ranks(table):
    return {each.entry.submission.rule.name: each.rank for each in table}


def test_whole_entries_are_ranked_from_the_best(problems, submissions):
    found = entries(submissions, problems)
    for each in USES:
        table = standings(found, each)
        assert [standing.rank for standing in table] == sorted(standing.rank for standing in table)
        whole = [standing for standing in table if standing.score.whole]
        means = [standing.score.mean for standing in whole]
        assert means == sorted(means)
        assert [standing.rank for standing in whole] == [1 + means.index(mean) for mean in means]
        assert {standing.among for standing in whole} == {len(whole)}
        assert whole[0].level


def test_what_took_some_problems_is_ranked_by_these_among_those_that_took_them(problems, submissions):
    (sdp,) = (each for each in submissions if each.rule.name == "sdp")
    before = standings(entries(submissions, problems), use("decision"))
    partial = only(sdp, lambda problem: problem.startswith("iris-gelu-4/gaussian-1"))
    table = standings(entries([*submissions, partial], problems), use("decision"))
    (mine,) = (each for each in table if each.entry.submission.rule.name == "partial")
    took = [each for each in submissions if set(partial.measurements) <= set(each.measurements)]
    assert 1 < len(took) < len(submissions)
    assert mine.among == len(took) + 1
    better = [
        each
        for each in took
        if np.mean([each.measurements[name]["tv_class"][""][0] for name in partial.measurements])
        < mine.score.mean
    ]
    assert mine.rank == 1 + len(better) > 1
    assert (mine.score.measured, mine.score.asked) == (6, 54)
    assert {name: rank for name, rank in ranks(table).items() if name != "partial"} == ranks(before)


def test_the_best_without_its_hardest_places_stands_behind_its_whole_self(problems, submissions):
    (best,) = (each for each in submissions if each.rule.name == "monte_carlo:samples=100")
    partial = only(best, lambda problem: not problem.startswith("iris-relu-9"))
    table = standings(entries([*submissions, partial], problems), use("law"))
    assert [each.rank for each in table[:2]] == [1, 1]
    assert [each.score.whole for each in table[:2]] == [True, False]


def test_how_many_problems_it_took_stands_beside_its_rank(problems, submissions, tmp_path):
    (sdp,) = (each for each in submissions if each.rule.name == "sdp")
    partial = only(sdp, lambda problem: problem.startswith("iris-relu-1/"))
    text = build([*submissions, partial], problems, tmp_path).read_text(encoding="utf-8")
    (part,) = re.findall(r'<section id="use_law">.*?</section>', text, re.DOTALL)
    (row,) = (each for each in re.findall(r"<tr>.*?</tr>", part, re.DOTALL) if "#partial" in each)
    assert "9/54 problems" in row
    assert re.search(rf'class="rank" data-value="\d">\d<span class="small">of {len(submissions) + 1}<', row)
    assert " at 9/54, " in (tmp_path / "badges/partial.svg").read_text(encoding="utf-8")
    assert "/54" not in (tmp_path / "badges/sdp.svg").read_text(encoding="utf-8")


def test_more_samples_are_better(problems, submissions):
    table = standings(entries(submissions, problems), use("law"))
    means = {standing.entry.submission.rule.name: standing.score.mean for standing in table}
    assert means["monte_carlo:samples=100"] < means["monte_carlo:samples=10"]


def test_the_score_is_the_mean_over_places(problems, submissions):
    (sdp,) = (each for each in entries(submissions, problems) if each.submission.rule.name == "sdp")
    values = []
    for place in problems.places:
        spec = next(
            (spec for spec in place.metrics if spec.startswith(("tv_headline", "tv_principal"))), None
        )
        if spec:
            own = [sdp.submission.measurements[problem][spec][""][0] for problem in place.problems]
            values.append(sum(own) / len(own))
    score = sdp.scores["law"]
    assert score.value == pytest.approx(sum(values) / len(values))
    assert score.interval[0] < score.value < score.interval[1]


def test_a_violated_guarantee_is_shown_first_and_ranked_nowhere(problems, submissions, tmp_path):
    claimed = [
        replace(each, guarantees=[Guarantee.of("coverage 90% >= 0.9")]) if each.rule.name == "sdp" else each
        for each in submissions
    ]
    found = entries(claimed, problems)
    for each in USES:
        (mine,) = (one for one in standings(found, each) if one.entry.submission.rule.name == "sdp")
        assert mine.rank is None
    text = build(claimed, problems, tmp_path).read_text(encoding="utf-8")
    (article,) = re.findall(r'<article class="entry" id="sdp">.*?</article>', text, re.DOTALL)
    assert article.index("Violates its guarantee “coverage 90% &gt;= 0.9”") < article.index("<dl>")
    assert "guarantee violated" in (tmp_path / "badges/sdp.svg").read_text(encoding="utf-8")


def test_what_a_submission_says_is_text(page):
    for path in page.rglob("*.*"):
        text = path.read_text(encoding="utf-8")
        assert "\x1b" not in text
        if path.suffix in (".html", ".svg"):
            assert text.count("<script") == (path.suffix == ".html")  # our own


def test_it_loads_nothing_and_its_links_lead_somewhere(page):
    text = (page / "index.html").read_text(encoding="utf-8")
    assert not re.search(r"<link[^>]+https?:|@import|src=\"https?:", text)
    anchors = set(re.findall(r'id="([^"]+)"', text))
    for address in re.findall(r'(?:href|src)="([^"]+)"', text):
        if address.startswith("#"):
            assert address[1:] in anchors
        elif not address.startswith(("data:", "https://")):
            assert (page / address).is_file(), address


def test_badges_are_pictures_and_tables_are_data(page, submissions):
    for path in (page / "badges").iterdir():
        assert ElementTree.parse(path).getroot().tag.endswith("svg")
    data = json.loads((page / "leaderboard.json").read_text(encoding="utf-8"))
    assert len(data["rules"]) == len(submissions) + 1
    assert {each["rule"] for table in data["standings"].values() for each in table} <= set(data["rules"])


def test_it_is_written_again_but_not_over_files_of_others(problems, submissions, tmp_path):
    for _ in range(2):
        build(submissions[:1], problems, tmp_path)
    (tmp_path / "leaderboard.json").write_text('{"mine": 1}')
    with pytest.raises(UserError, match="was not written by sdp-bench"):
        build(submissions[:1], problems, tmp_path)


def test_two_submissions_of_one_rule_are_refused(problems, submissions):
    with pytest.raises(UserError, match="two submissions"):
        entries([submissions[0], submissions[0]], problems)


def test_equal_scores_have_equal_ranks(problems, submissions):
    (sdp,) = (each for each in submissions if each.rule.name == "sdp")
    twin = replace(sdp, rule=replace(sdp.rule, name="twin"))
    table = standings(entries([*submissions, twin], problems), use("decision"))
    found = ranks(table)
    equal = [name for name, rank in found.items() if rank == found["sdp"]]
    assert {"sdp", "twin"} <= set(equal)
    assert found["marginal_moment_matching"] == found["sdp"] + len(equal)


def test_a_rule_of_heavy_tails_alone_is_on_the_page(problems, submissions, tmp_path):
    (sdp,) = (each for each in submissions if each.rule.name == "sdp")
    cauchy = only(sdp, lambda name: problems.place_of(name).heavy, "for Cauchy")
    text = build([sdp, cauchy], problems, tmp_path).read_text(encoding="utf-8")
    for section in ("all_uses", "all_costs"):
        (part,) = re.findall(rf'<section id="{section}">.*?</section>', text, re.DOTALL)
        assert "for Cauchy" in part


def test_a_column_is_there_for_each_place_that_any_rule_took(problems, submissions, tmp_path):
    (sdp,) = (each for each in submissions if each.rule.name == "sdp")
    one, other = (
        only(sdp, lambda problem, name=name: problem.startswith(f"{name}/"), name)
        for name in ("iris-relu-1", "iris-gelu-4")
    )
    text = build([one, other], problems, tmp_path).read_text(encoding="utf-8")
    (part,) = re.findall(r'<section id="use_decision">.*?</section>', text, re.DOTALL)
    for name in ("iris-relu-1", "iris-gelu-4"):
        assert f'<th scope="col">{name}<' in part


@pytest.mark.parametrize("name", ["all", "cost", "rules", "made", "use_law"])
def test_a_rule_may_be_called_as_a_section(name, problems, submissions, tmp_path):
    called = replace(submissions[0], rule=replace(submissions[0].rule, name=name))
    text = build([called], problems, tmp_path).read_text(encoding="utf-8")
    ids = re.findall(r' id="([^"]+)"', text)
    assert len(ids) == len(set(ids))
