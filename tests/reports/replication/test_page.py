import csv
import io
import re

import pytest

from sdp_bench.reports.replication import page
from sdp_bench.reports.replication.page import topics
from sdp_bench.reports.site import PAPER
from tests.reports import made_up
from tests.reports.helpers import outline, plain_text


@pytest.fixture(scope="module")
def made():
    places = {"iris-tv": "suite-iris-tv.html", "choice": "choice.html"}
    part, files = page.shown(page.Rulings.of(made_up.results(made_up.frame(depths=(4,)))), places)
    return {PAPER.file: part.html} | files


def test_the_page_is_whole_and_fetches_nothing(made):
    found = outline(made[PAPER.file])
    assert set(found.fetched) <= {"data:,", ""}  # no icon; a script of its own
    anchors = {target[1:] for target in found.targets if target.startswith("#")}
    assert anchors <= {*found.ids, "iris-tv", "choice"}


def test_the_main_answer_is_brief_and_counts_every_statement():
    rulings = page.Rulings.of(made_up.results(made_up.frame(depths=(4,))))
    supported, refuted, neither = map(int, re.findall(r"(\d+) (?:are|refuted|neither)", rulings.answer))
    assert supported + refuted + neither == len(rulings.statements)
    assert len(rulings.answer.split()) <= 40


def test_counts_and_filters_are_of_the_statements(made):
    total = sum(len(topic.statements) for topic in topics())
    text = made[PAPER.file]
    outcomes = re.findall(r'data-outcome="(\w+)"', text)
    assert len(outcomes) == total
    assert f"Of {total} statements" in plain_text(text)
    for value, count in re.findall(r'value="(\w+)"> [^(<]* \((\d+)\)', text):
        assert outcomes.count(value) == int(count)


def test_tables_have_a_row_for_each_statement(made):
    rows = list(csv.DictReader(io.StringIO(made[page.TABLE])))
    quotes = [one.quote for topic in topics() for one in topic.statements]
    assert [row["quote"] for row in rows] == quotes
    addresses = {row["address"] for row in rows}
    assert addresses <= {"", "suite-iris-tv.html#iris-tv", "choice.html#choice"}
