import csv
import dataclasses
import io
import re

import pytest

from sdp_bench.reports.page import build
from sdp_bench.reports.replication import exact, page
from sdp_bench.reports.replication.statement import Answer
from sdp_bench.reports.replication.statements import topics
from tests.reports import made_up
from tests.reports.test_page import outline, told


@pytest.fixture(scope="module")
def made():
    """The page of made-up measurements, without the ten seconds of quadrature."""
    with pytest.MonkeyPatch.context() as patch:
        quick = {key: lambda _: Answer.certain(holds=True, found="exactly") for key in exact.RULES}
        read = tuple(
            dataclasses.replace(
                topic,
                statements=tuple(
                    dataclasses.replace(one, rule=quick.get(one.key, one.rule)) for one in topic.statements
                ),
            )
            for topic in topics()
        )
        patch.setattr(page, "statements", lambda: read)
        return {one.name: one for one in page.files(made_up.results(made_up.frame()), {"iris-tv", "choice"})}


def test_the_page_is_whole_and_fetches_nothing(made):
    found = outline(made[page.PAGE].text)
    assert not found.open
    assert not found.wrong
    assert set(found.fetched) <= {"data:,", ""}  # no icon; a script of its own
    assert len(set(found.ids)) == len(found.ids)
    anchors = {target[1:] for target in found.targets if target.startswith("#")}
    assert anchors <= set(found.ids)


def test_links_lead_to_what_the_report_has(made):
    targets = outline(made[page.PAGE].text).targets
    assert {target for target in targets if target.startswith("index.html#")} == {
        "index.html#iris-tv",
        "index.html#choice",
    }
    rows = csv.DictReader(io.StringIO(made[page.TABLE].text))
    assert {row["address"] for row in rows} <= {"", "index.html#iris-tv", "index.html#choice"}


def test_counts_and_filters_are_of_the_statements(made):
    total = sum(len(topic.statements) for topic in topics())
    text = made[page.PAGE].text
    outcomes = re.findall(r'data-outcome="(\w+)"', text)
    assert len(outcomes) == total
    assert f"{total} statements" in told(text)
    for value, count in re.findall(r'value="(\w+)"> [^(<]* \((\d+)\)', text):
        assert outcomes.count(value) == int(count)


def test_tables_have_a_row_for_each_statement(made):
    rows = list(csv.DictReader(io.StringIO(made[page.TABLE].text)))
    quotes = [one.quote for topic in topics() for one in topic.statements]
    assert [row["quote"] for row in rows] == quotes
    latex = made[page.LATEX].text
    assert latex.count(r" \\") == len(rows) + len(topics()) + 1  # topics, and the head
    unescaped = re.sub(r"\\[\\&%$#_{}~^]|\\[a-zA-Z]+", "", latex.split("\n", 1)[1])
    assert unescaped.count("&") == 2 * (len(rows) + 1)
    assert latex.isascii()
    assert not re.search(r"[%$#_^]", re.sub(r"\$[^$]*\$", "", unescaped))  # but in formulas


def test_a_report_of_the_papers_size_has_it_beside(made, tmp_path, monkeypatch):
    monkeypatch.setattr(page, "files", lambda *_: list(made.values()))
    results = made_up.results(made_up.frame())
    build(results, tmp_path / "quick", sections=[])
    assert not (tmp_path / "quick" / page.PAGE).exists()
    paper = dataclasses.replace(results, meta={**results.meta, "preset": "paper"})
    for _ in range(2):  # the second in the place of the first
        index = build(paper, tmp_path / "paper", sections=[])
        assert all(
            (tmp_path / "paper" / name).read_text(encoding="utf-8") == made[name].text for name in made
        )
    assert f'href="{page.PAGE}"' in index.read_text(encoding="utf-8")
