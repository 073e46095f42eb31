"""The command ``selfcheck``."""

import pytest

from sdp_bench.reports.selfcheck import checks
from tests.reports.selfcheck.test_page import BROKEN, KEPT, TOLD, findings
from tests.sdp_bench.test_cli import command


def test_the_command_fails_where_a_promise_is_broken(monkeypatch, tmp_path):
    page = tmp_path / "page.md"
    for rates, code in (([KEPT, TOLD], 0), ([KEPT, BROKEN], 1)):
        monkeypatch.setattr(checks, "run", lambda *_, rates=rates, **__: {"verdicts": rates})
        ended = command("selfcheck", "verdicts", "--markdown", "page.md", cwd=tmp_path)
        assert ended.returncode == code
        assert f"verdict: {findings(*rates).verdict}" in ended.stdout
        assert page.read_text().startswith("<!-- Made by `sdp-bench ")
    assert "not kept: a false <holds> (10 nets): 0.200, promised 0 to 0.05" in ended.stdout


def test_an_unknown_check_is_refused_with_those_there_are(tmp_path):
    ended = command("selfcheck", "nonsense", cwd=tmp_path)
    assert ended.returncode == 2
    assert "no check 'nonsense'; there are: cells, headline, " in ended.stderr


@pytest.mark.slow
def test_checks_run_side_by_side_and_give_the_same_rates_again(tmp_path):
    texts = []
    for jobs in ("1", "2"):
        words = ("intervals", "transport", "--trials", "1%", "--jobs", jobs, "--output", "page")
        ended = command("selfcheck", *words, cwd=tmp_path)
        assert ended.returncode == 0, ended.stderr
        texts.append((tmp_path / "page" / "rates.csv").read_text())
    assert texts[0] == texts[1]
    assert len(texts[0].splitlines()) > 20
