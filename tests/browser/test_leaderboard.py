"""The leaderboard in a browser: its filter, the front, and the address that keeps both."""

import pytest

from sdp_bench.reports.leaderboard import USES, build, read, table_of
from tests.browser.test_pages import SETTLED, violations
from tests.reports.test_leaderboard import entry_folder

SPEEDS = {"sdp": (0.2, 1e-2), "marginal_sdp": (0.3, 1e-4), "unscented": (0.25, 1e-3), "dvia": (0.35, 5e-3)}


@pytest.fixture(scope="module")
def entries(tmp_path_factory):
    folder = tmp_path_factory.mktemp("entries")
    return [
        entry_folder(folder / rule, {rule: mean}, seconds=seconds) for rule, (mean, seconds) in SPEEDS.items()
    ]


@pytest.fixture(scope="module")
def board(entries, tmp_path_factory):
    return build(entries, tmp_path_factory.mktemp("board"))


def front(page):
    """Rules with a mark in the first table of ranks."""
    marked = page.locator("table.ranks").first.locator(
        "tr:visible", has=page.locator("td.front", has_text="front")
    )
    return {row.locator("th").inner_text() for row in marked.all()}


def labels(entries, *rules):
    return {entry.label for entry in read(entries) if entry.rule in rules}


def test_the_front_follows_the_filter_and_the_address_keeps_it(board, entries, window):
    page = window.open(board)
    whole = labels(entries, "sdp", "marginal_sdp", "unscented")
    assert front(page) == whole
    page.get_by_label("rules for marginals").uncheck()
    assert front(page) == labels(entries, "sdp", "unscented")
    page.reload()
    assert not page.get_by_label("rules for marginals").is_checked()
    assert front(page) == labels(entries, "sdp", "unscented")
    page.get_by_label("rules for marginals").check()
    assert front(page) == whole
    assert "?" not in page.url
    assert window.complaints == []


def test_without_javascript_the_front_is_that_of_all_rules(board, entries, plain_window):
    page = plain_window.open(board)
    (table, *_) = (table_of(read(entries), use) for use in USES)
    assert front(page) == {row.entry.label for row in table.rows if row.is_on_front}
    assert not page.get_by_label("rules for marginals").is_visible()


@pytest.mark.slow
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 1280])
def test_the_leaderboard_is_accessible_and_fits(board, window, width, scheme):
    page = window.open(board, width, scheme)
    assert violations(page) == []
    assert page.evaluate(SETTLED) <= width
