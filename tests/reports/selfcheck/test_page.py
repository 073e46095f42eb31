"""What the command says of rates, and the pages that it writes."""

import csv
from dataclasses import replace

from sdp_bench.reports.selfcheck.page import Findings, promised
from sdp_bench.reports.selfcheck.rate import NOTHING, Rate

KEPT = Rate("floors", "a floor covers", "Gaussian | 3 outputs", (0.94, 0.96), 950, 1000)
BROKEN = Rate("verdicts", "a false <holds>", "10 nets", (0.0, 0.05), 200, 1000)
TOLD = Rate("verdicts", "a single part", "10 nets", NOTHING, 70, 1000)


def findings(*rates):
    return Findings(rates, "sdp-bench selfcheck", "a processor", 61.0)


def test_words():
    assert findings(KEPT).verdict == "1 of 1 promise kept"
    both = findings(KEPT, BROKEN, TOLD)
    assert both.verdict == "1 of 2 promises kept; 1 rate told of which nothing is promised"
    assert both.broken == [BROKEN]
    assert [promised(rate) for rate in (KEPT, BROKEN, TOLD)] == ["0.94 to 0.96", "at most 0.05", "–"]
    assert promised(Rate("gate", "", "", (0.9, 1.0), 1, 1)) == "at least 0.9"
    assert promised(Rate("kit", "", "", (1.0, 1.0), 1, 1)) == "1"


def test_page_and_data(tmp_path):
    page = findings(KEPT, BROKEN, TOLD).write(tmp_path).read_text()
    assert "a false &lt;holds&gt;" in page
    assert page.count(">not kept<") == 1
    with (tmp_path / "rates.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [(row["what"], row["hits"], row["trials"]) for row in rows] == [
        (rate.what, str(rate.hits), str(rate.trials)) for rate in (KEPT, BROKEN, TOLD)
    ]


def test_markdown_has_a_table_a_part():
    again = replace(TOLD, condition="20 nets")
    lines = findings(KEPT, BROKEN, TOLD, again).markdown().splitlines()
    assert [line for line in lines if line.startswith("## ")] == [
        "## Floors: how often the 95 % point covers an exact rule",
        "## Verdicts: how often a claim is judged wrongly",
    ]
    assert sum("a single part" in line for line in lines) == 1
    rows = [line for line in lines if line.startswith(("| Gaussian", "| 10 nets", "| 20 nets"))]
    assert [row.count("not kept") for row in rows] == [0, 1, 0, 0]
    assert all(row.replace("\\|", "").count("|") == 7 for row in rows)
