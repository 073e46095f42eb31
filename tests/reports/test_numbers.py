import math
import re
from dataclasses import replace

import pandas as pd
import pytest

from sdp_bench.reports.numbers import sheets, slug
from sdp_bench.reports.replication import page as replication
from sdp_bench.reports.replication.claims import numbers_of_claims
from sdp_bench.reports.statement import judged
from tests.reports import made_up
from tests.reports.made_up import TRAITS, Results, checked, page
from tests.reports.replication.helpers import TABLES, claims_frame
from tests.reports.sections.helpers import oracle_frame, sensitivity_frame


def listed(numbers, frame):
    """Anchors and what stands at them, by file."""
    by_file = {}
    for sheet in sheets(numbers, frame, {}, TRAITS):
        listings = [listing for _, part in sheet["parts"] for listing in part]
        by_file[sheet["page"].file] = {listing["anchor"]: listing for listing in listings}
    return by_file


def linked(text, section):
    start = text.index(f'<section id="{section}">')
    return re.findall('href="numbers/([^"#]*)#([^"]*)"', text[start : text.index("</section>", start)])


@pytest.fixture(scope="module")
def everything():
    tabled = made_up.frame(depths=(1, 2), nets=3, inputs=2, experiments=("iris-tv",))
    tabled = tabled[tabled["rule"].isin(made_up.FEW)]
    claims = claims_frame(3, depths=(4,), inputs=1)
    every = pd.concat([tabled, claims, sensitivity_frame(), oracle_frame()], ignore_index=True)
    frame = checked(every.assign(samples=10**6))
    with pytest.MonkeyPatch.context() as patch:
        few = replace(TABLES, statements=[s for s in TABLES.statements if s.key in replication.RIVALS])
        patch.setattr(replication, "topics", lambda: (few,))
        some = made_up.some("choice", "tables", "paper", "sensitivity", "oracle", "rules")
        text, numbers = page(Results(frame), some)
    return frame, numbers, text


@pytest.mark.parametrize(
    "section", ["choice", "topic-tables", "sensitivity", "oracle", "iris-tv", "rule-sdp"]
)
def test_every_section_leads_to_lists_that_are_there(everything, section):
    frame, numbers, text = everything
    files = listed(numbers, frame)
    found = linked(text, section)
    assert len(found) > 3
    for file, anchor in found:
        assert files[file][anchor]["rows"].count("<tr>") >= 1


def test_the_mean_of_a_list_is_the_number_that_leads_there(everything):
    frame, numbers, _ = everything
    values = frame["value"]
    for number in numbers:
        if math.isnan(number.mean) or number.group.metric.name not in ("tv_headline", "tv_paper"):
            continue
        assert number.mean == pytest.approx(1 - values[number.positions].mean(), abs=1e-12)
        assert len(frame.loc[number.positions].drop_duplicates(["rule", "sigma", "metric_spec"])) == 1


def test_numbers_that_rest_on_the_same_measurements_share_a_list(everything):
    _, numbers, text = everything
    rows = [number.rows for number in numbers]
    assert len(rows) == len(set(rows))
    # three nets of one depth in one experiment: "which rule when" has the tables' own means
    assert {file for file, _ in linked(text, "choice")} == {
        "iris-tv-relu-1-4-100-3.html",
        "iris-tv-relu-2-4-100-100-3.html",
    }


def test_effects_of_claims_lead_to_both_rules():
    frame = checked(claims_frame(3, depths=(4,), inputs=1))
    there = {number.address for number in numbers_of_claims(frame, TRAITS)}
    effects = 0
    for one in judged([TABLES], Results(frame))[0].statements:
        for answer in filter(None, (one.answer, one.regular)):
            for trial in answer.trials:
                for effect in trial.effects:
                    assert effect.sources
                    assert {address for _, address in effect.sources} <= there
                    effects += 1
    assert effects > 50


def test_nets_of_several_depths_that_are_judged_together_have_one_list():
    frame = checked(made_up.frame(depths=(1, 2), nets=1, inputs=3, experiments=("iris-tv",)))
    numbers = page(Results(frame), made_up.some("choice"))[1]
    own = [number for number in numbers if number.group.page.section == "choice"]
    assert {len(number.positions) for number in own} == {6}
    (sheet,) = sheets(own, frame, {}, TRAITS)
    listing = sheet["parts"][0][1][0]
    assert listing["rows"].count("1 layer<") == listing["rows"].count("2 layers<") == 3


def test_names_of_files_are_short_and_distinct():
    first, second = slug("rule", "é" * 300), slug("rule", "é" * 301)
    assert first != second
    assert max(len(name.encode()) for name in (first, second)) < 200
    assert slug("iris-tv", "", "4 100/3") == "iris-tv-4-100-3"
