"""Charts: values are read by pointer and keys, lines shown and hidden, one panel is picked and saved."""

from xml.etree import ElementTree as ET

import pytest

FIGURE = "#figure-sigma"
READING = ".reading"


@pytest.fixture
def page(large_report, window):
    return window.open(large_report)


def seen(page, inside=FIGURE):
    """Points that can be read, in order."""
    return page.locator(f"{inside} .panel:not([hidden]) .series:not([hidden]) .point")


def test_a_pointer_reads_the_nearest_point(page):
    point = seen(page).nth(1)
    point.scroll_into_view_if_needed()
    box = point.bounding_box()
    page.mouse.move(box["x"] + box["width"] / 2 + 2, box["y"] + box["height"] / 2)
    assert page.locator(READING).inner_text() == point.get_attribute("aria-label")
    page.mouse.move(0, 0)
    assert not page.locator(READING).is_visible()


def test_keys_lead_from_point_to_point_and_from_line_to_line(page):
    points = seen(page)
    assert page.locator(f"{FIGURE} .panel").first.locator('.point[tabindex="0"]').count() == 1
    points.first.focus()
    said = []
    for key in ("ArrowRight", "ArrowDown", "ArrowUp", "ArrowLeft"):
        page.keyboard.press(key)
        said.append(page.locator(READING).inner_text())
        assert said[-1] == page.evaluate("document.activeElement.getAttribute('aria-label')")
    first = points.first.get_attribute("aria-label")
    assert said[0] == said[2] != said[1]
    assert said[3] == first
    assert first.startswith("SDP, σ = 0.1: ")
    assert " ± " in first
    page.keyboard.press("Escape")
    assert not page.locator(READING).is_visible()


def test_a_name_in_the_legend_shows_and_hides_its_lines(page):
    button = page.locator(f"{FIGURE} .legend").get_by_role("button", name="DVIA")
    lines = page.locator(f"{FIGURE} .series[data-of='DVIA']")
    shown = lines.count()
    assert shown >= 2
    button.click()
    assert button.get_attribute("aria-pressed") == "false"
    assert [lines.nth(place).is_visible() for place in range(shown)] == [False] * shown
    button.click()
    assert [lines.nth(place).is_visible() for place in range(shown)] == [True] * shown


def test_a_pointer_reads_nothing_where_all_lines_are_hidden(page, window):
    for button in page.locator(f"{FIGURE} .legend button").all():
        button.click()
    chart = page.locator(f"{FIGURE} .panel .chart").first
    chart.hover()
    assert not page.locator(READING).is_visible()
    assert window.complaints == []


def test_a_net_is_picked_and_all_come_back(page):
    pick, panels = page.locator(f"{FIGURE} select[name=net]"), page.locator(f"{FIGURE} .panel")
    titles = panels.locator("h4").all_inner_texts()
    small = panels.first.bounding_box()["width"]
    pick.select_option(index=1)
    assert [panels.nth(place).is_visible() for place in range(len(titles))] == [
        place == 0 for place in range(len(titles))
    ]
    assert panels.first.bounding_box()["width"] > small
    pick.select_option("")
    assert all(panels.nth(place).is_visible() for place in range(len(titles)))


def test_a_metric_is_picked_by_keys_and_its_values_are_read(page):
    metric, output = (page.locator(f"{FIGURE} select[name={name}]") for name in ("metric", "output"))
    assert not output.is_visible()
    names = metric.locator("option").all_inner_texts()
    assert names[:2] == ["all", "1 − TV, equal-mass cells (headline)"]
    metric.focus()
    page.keyboard.press("End")
    page.wait_for_function(
        f"document.querySelector('{FIGURE} .panel:not([hidden])').dataset.metric === '{names[-1]}'"
    )
    assert metric.locator("option").all_inner_texts() == names
    metric.select_option("Ratio of standard deviations, predicted over true")
    output.wait_for()
    assert page.locator(f"{FIGURE} .panel:not([hidden]) h4").all_inner_texts() == [
        "1 ReLU layer, output 0",
        "2 ReLU layers, output 0",
    ]
    output.select_option("2")
    page.locator(f"{FIGURE} select[name=net]").select_option("1 ReLU layer")
    point = seen(page).first
    point.focus()
    said = page.locator(READING).inner_text()
    assert said.startswith("SDP, σ = 0.1: ")
    assert page.locator(f"{FIGURE} .panel:not([hidden])").count() == 1
    page.locator(f"{FIGURE} .legend").get_by_role("button", name="DVIA").click()
    metric.select_option("Wasserstein distance W1")
    page.wait_for_function(
        f"document.querySelector('{FIGURE} .panel:not([hidden])').dataset.metric.startsWith('W')"
    )
    assert not page.locator(f"{FIGURE} .panel:not([hidden]) .series[data-of='DVIA']").first.is_visible()
    metric.select_option("")
    page.wait_for_function(f"!document.querySelector('{FIGURE} template')")
    assert page.locator(f"{FIGURE} .panel:not([hidden])").count() > 5


def test_a_metric_shows_the_same_again_after_one_that_has_fewer_lists(page):
    metric = page.locator(f"{FIGURE} select[name=metric]")
    ratio, headline = "Ratio of standard deviations, predicted over true", metric.input_value()
    shown = []
    for name in (ratio, headline, ratio):
        metric.select_option(name)
        page.wait_for_function(
            f"document.querySelector('{FIGURE} .panel:not([hidden])').dataset.metric === '{name}'"
        )
        shown.append(page.locator(f"{FIGURE} .panel:not([hidden]) h4").all_inner_texts())
    assert shown[0] == shown[2] != shown[1]


def test_a_chart_is_saved_with_the_colours_and_the_names_that_are_seen(page, tmp_path):
    page.locator(f"{FIGURE} .legend").get_by_role("button", name="DVIA").click()
    with page.expect_download() as download:
        page.locator(f"{FIGURE} .panel").first.get_by_role("button", name="SVG").click()
    assert download.value.suggested_filename == "figure-sigma-1.svg"
    download.value.save_as(tmp_path / "saved.svg")
    text = (tmp_path / "saved.svg").read_text(encoding="utf-8")
    assert "var(" not in text
    assert "light-dark" not in text
    names = {each.text for each in ET.fromstring(text).iter("{http://www.w3.org/2000/svg}text")}
    assert {"SDP", "input noise σ"} <= names
    assert "DVIA" not in names


def test_without_javascript_every_panel_stands_there_and_lines_have_their_values(report, plain_window):
    page = plain_window.open(report)
    panels = page.locator(f"{FIGURE} .panel")
    assert all(panels.nth(place).is_visible() for place in range(panels.count()))
    assert page.locator(f"{FIGURE} button, {FIGURE} select").count() == 0
    title = page.locator(f"{FIGURE} .series title").first.text_content()
    assert title.startswith("SDP\nσ = 0.1: ")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_charts_are_accessible(report, window, scheme):
    audit = pytest.importorskip("axe_playwright_python.sync_playwright", reason="axe is not installed").Axe()
    page = window.open(report, 390, scheme)
    found = audit.run(page, context={"include": [["figure.charts"]]}).response["violations"]
    assert [(each["id"], each["nodes"][0]["html"]) for each in found] == []
