"""Whole pages and their figures: accessibility, width, network requests, saved files and print."""

import re
from importlib.metadata import version
from itertools import pairwise
from xml.etree import ElementTree as ET

import pytest

from sdp_bench.bench.replay.replay import stored_measurement
from sdp_bench.bench.results.folder import read
from sdp_bench.bench.settings import Size
from sdp_bench.reports import drilldown
from sdp_bench.reports.page import build
from sdp_bench.reports.style.theme import contrast
from tests.bench.conftest import TINY, make_plan, run_all
from tests.browser.conftest import NETS
from tests.reports import made_up

WIDTHS = (390, 768, 1280)
ADDED = ".tools, .save, .permalink, #tip, [data-legend]"
SETTLED = """(async () => {
    for (const _ of [1, 2, 3]) await new Promise(requestAnimationFrame);
    return document.documentElement.scrollWidth; })()"""
"""Width of a page once its tables are as tight as they need to be."""
OPEN = "document.querySelectorAll('details').forEach(each => { each.open = true; })"


def violations(page):
    """What axe finds, with one place each."""
    audit = pytest.importorskip("axe_playwright_python.sync_playwright", reason="axe is not installed").Axe()
    page.evaluate(OPEN)
    found = audit.run(page).response["violations"]
    return [(each["id"], each["nodes"][0]["html"], each["nodes"][0]["failureSummary"]) for each in found]


def lists_of(report):
    """The shortest page of lists of a report."""
    return min((report.parent.parent / "numbers").glob("*.html"), key=lambda path: path.stat().st_size)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_table_with_its_tools_is_accessible(tables, scheme):
    page = tables(NETS, scheme=scheme)
    page.get_by_role("button", name="rule", exact=True).click()
    page.get_by_role("link", name="0.95").focus()
    assert violations(page) == []


@pytest.mark.slow
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", WIDTHS)
def test_pages_are_accessible(large_report, window, width, scheme):
    site = large_report.parent.parent
    for path in (large_report, lists_of(large_report), site / "index.html", site / "rule-sdp.html"):
        page = window.open(path, width, scheme)
        page.evaluate(OPEN)
        assert violations(page) == []


@pytest.mark.slow
def test_a_drill_down_page_is_accessible_and_fits(tmp_path, window):
    path = tmp_path / "results"
    settings = TINY.but(rules=("marginal_sdp",), sizes={"iris-tv": Size(1, 1)}, sigmas=(10.0,))
    frame = run_all(path, make_plan(settings, ("iris-tv",)), settings=settings)
    text = drilldown.page(stored_measurement(read(path), frame["key"].iloc[0]), made_up.TRAITS)
    file = tmp_path / "page.html"
    file.write_text(text, encoding="utf-8")
    for width in WIDTHS:
        for scheme in ("light", "dark"):
            page = window.open(file, width, scheme)
            assert page.evaluate(SETTLED) <= width
            assert page.locator("figure svg").is_visible()
            assert violations(page) == []
            assert window.complaints == []


def test_pages_make_no_network_requests_and_raise_no_errors(report, window):
    for path in (report, lists_of(report)):
        page = window.open(path)
        page.evaluate(OPEN)
        page.locator(".sort").first.click()
        assert {address.partition(":")[0] for address in window.asked} <= {"file", "data"}
        assert window.asked[0] == path.as_uri()
        assert window.complaints == []


@pytest.mark.parametrize("width", [*WIDTHS, 1920])
def test_no_table_is_cut_at_its_last_column(report, window, width):
    page = window.open(report, width)
    page.evaluate(OPEN)
    assert page.evaluate(SETTLED) <= width
    cut = page.evaluate("""() => [...document.querySelectorAll(".scroll")].filter(scroll => {
        scroll.scrollLeft = 1e6;
        const cells = [...scroll.querySelector("tbody tr").cells].filter(cell => cell.offsetWidth);
        const last = cells.at(-1).getBoundingClientRect();
        const place = scroll.getBoundingClientRect();
        return last.right > Math.min(innerWidth, place.right + 1) || last.left < place.left;
    }).map(scroll => scroll.getAttribute("aria-label"))""")
    assert page.locator(".scroll").count() > 5
    assert cut == []


def too_wide(site, window, width):
    """Names of the pages of a site that can be scrolled sideways, also with all that opens on them open."""
    wide = []
    for path in [*site.glob("*.html"), *site.glob("numbers/*.html")]:
        page = window.open(path, width)
        page.evaluate(OPEN)
        if page.evaluate(SETTLED) > width:
            wide.append(path.name)
    return wide


@pytest.mark.slow
@pytest.mark.parametrize("width", [390, 1280])
def test_no_page_of_a_site_scrolls_sideways(large_report, window, width):
    assert too_wide(large_report.parent.parent, window, width) == []


@pytest.mark.slow
def test_names_of_any_length_leave_pages_as_wide_as_they_are(tmp_path, window):
    rules = ("sdp", "a_rule_of_mine_" + "x" * 120, "é" * 301, "é" * 300)
    frame = made_up.frame(depths=(1,), nets=3, inputs=1, rules=rules, experiments=("iris-tv",))
    frame = frame.assign(network="n" * 300, activation="own:" + "my_net_" * 14)
    failures = made_up.FAILURES.assign(rule=rules[1], group="g" * 200)
    build(made_up.results(frame, failures=failures), tmp_path, made_up.SECTIONS)
    assert len(list(tmp_path.glob("rule-*.html"))) == len(rules)
    assert too_wide(tmp_path, window, 390) == []


def test_a_table_that_is_a_little_too_wide_is_set_tighter_and_one_that_is_not_stays(tables):
    page = tables(
        """{% for count in (12, 17, 60) %}{% call scrolled("t", "results") %}
        <thead><tr><th>σ</th>{% for _ in range(count) %}<th>moment matching</th>{% endfor %}</tr></thead>
        <tbody><tr><th>1</th>
        {% for _ in range(count) %}<td>0.1234<span class="small">± 0.123</span></td>{% endfor %}</tr></tbody>
        {% endcall %}{% endfor %}"""
    )
    page.evaluate(SETTLED)
    found = [set(each.get_attribute("class").split()) for each in page.locator(".scroll").all()]
    assert found[0] == {"scroll", "fits"}
    assert found[1] >= {"tight", "fits"}
    assert found[2] == {"scroll", "wide", "whole"}


@pytest.mark.parametrize("motion", ["reduce", "no-preference"])
def test_a_page_is_opened_at_the_anchor_of_its_address(tables, window, motion):
    tall = """{% for _ in range(6) %}{% call scrolled("t") %}<thead><tr><th>σ</th></tr></thead>
        <tbody>{% for row in range(80) %}<tr><th>{{ row }}</th></tr>{% endfor %}</tbody>
        {% endcall %}{% endfor %}"""
    window.page.emulate_media(reduced_motion=motion)
    for anchor, edge in (("here", "top"), ("end", "bottom")):
        window.page.goto("about:blank")  # otherwise only the anchor would change
        page = tables(f'{tall}<h2 id="here">Here</h2>{tall}<p id="end">End</p>', query=f"#{anchor}")
        page.wait_for_timeout(1000)
        box = page.evaluate("id => document.getElementById(id).getBoundingClientRect()", anchor)
        assert 0 <= box[edge] <= 900
    window.page.emulate_media(reduced_motion="reduce")


def test_a_menu_is_opened_by_keys_and_closed_by_escape(report, window):
    page = window.open(report.parent.parent / "index.html")
    menu = page.locator("details.menu").first
    links = menu.locator("a")
    menu.locator("summary").focus()
    page.keyboard.press("Enter")
    assert links.first.is_visible()
    page.keyboard.press("Escape")
    assert not links.first.is_visible()
    assert page.evaluate("document.activeElement.tagName") == "SUMMARY"
    page.keyboard.press("Enter")
    page.locator("main a, main [tabindex]").first.focus()
    assert not links.first.is_visible()


def test_headings_of_sections_and_figures_lead_to_themselves(report, window):
    page = window.open(report)
    headings = page.locator("section[id] > h2, h3[id]:not(summary *), figure[id] h3")
    links = page.locator(".permalink")
    assert links.count() >= headings.count() > 3
    ids = set(page.locator("[id]").evaluate_all("found => found.map(each => each.id)"))
    assert {link.get_attribute("href").removeprefix("#") for link in links.all()} <= ids
    assert {link.get_attribute("aria-label") for link in links.all()} == {"Link to this heading"}


def test_without_javascript_a_page_is_read_as_with_it(report, window, plain_window):
    texts = []
    for one in (window, plain_window):
        page = one.open(report, query="?paper=on")
        page.evaluate(f"document.querySelectorAll('{ADDED}').forEach(each => each.remove())")
        texts.append(re.sub(r"\s+", " ", page.locator("main").inner_text()))
    with_script, plain = texts
    assert len(plain) > 1000
    assert with_script == plain


def test_the_numbers_of_the_paper_are_switched_and_rules_filtered_in_all_tables(suite, window):
    page = window.open(suite)
    printed = page.locator("td.paper:visible")
    assert printed.count() == 0
    page.get_by_label("numbers of the paper").check()
    assert "0.8555" in printed.all_inner_texts()
    page.get_by_label("Filter the rules").fill("dvia")
    page.reload()
    assert "0.8555" in printed.all_inner_texts()
    names = page.locator("table.results tbody tr:visible > th:first-child").all_inner_texts()
    assert set(names) == {"exact law", "DVIA"}
    page.get_by_label("numbers of the paper").uncheck()
    page.get_by_label("Filter the rules").fill("")
    assert "?" not in page.url
    assert page.locator("table.results tbody tr:visible").count() > len(names)


def test_series_are_switched_in_all_figures_and_stay_so_after_a_reload(charts, window):
    page = window.open(charts)
    figure = page.locator("#figure-sigma")
    button = figure.get_by_role("button", name="DVIA", exact=True)
    lines = page.locator('[data-series="DVIA"]')
    faint = page.locator('[data-series="DVIA"].faint')
    assert (button.get_attribute("aria-pressed"), faint.count()) == ("true", 0)
    button.click()
    assert button.get_attribute("aria-pressed") == "false"
    assert faint.count() == lines.count() > 1
    page.reload()
    assert faint.count() == lines.count()
    button.focus()
    page.keyboard.press("Enter")
    assert faint.count() == 0
    page.reload()
    assert button.get_attribute("aria-pressed") == "true"


def test_at_most_six_lines_stand_out_at_first(many, window, plain_window):
    for one in (window, plain_window):
        page = one.open(many)
        groups = page.locator("#figure-sigma [data-series]:not(.faint, [data-legend] *)")
        lines = groups.evaluate_all(
            "all => all.filter(g => g.querySelector('use')).map(g => g.dataset.series)"
        )
        assert len(set(lines)) == 6
        assert page.locator("#figure-sigma .faint").count() > 0


BOXES = """svg => [...svg.querySelectorAll("[data-panel]")].map(panel => {
    const box = panel.getBoundingClientRect();
    return [box.left, box.top, box.right, box.bottom]; })"""


def test_panels_are_below_each_other_on_a_phone_with_the_names_of_their_rows(charts, window):
    page = window.open(charts, 390)
    for figure in ("#figure-sigma", "#figure-depth"):
        boxes = page.locator(f"{figure} svg.chart").evaluate(BOXES)
        assert len(boxes) > 1
        assert all(left >= 0 and right <= 390 for left, _, right, _ in boxes)
        assert all(top >= bottom - 1 for (*_, bottom), (_, top, *_) in pairwise(boxes))
    for panel in page.locator("#figure-depth [data-panel]").all():
        assert panel.locator("text", has_text="ReLU 1").count() == 1
    page.set_viewport_size({"width": 1280, "height": 900})
    page.wait_for_function("document.querySelectorAll('svg.stacked').length === 0")
    boxes = page.locator("#figure-sigma svg.chart").evaluate(BOXES)
    assert boxes[1][0] > boxes[0][2] - 30
    assert page.locator(".copy").count() == 0


OVERLAPS = """svg => {
    const texts = [...svg.querySelectorAll("text")];
    const boxes = texts.map(text => [text.textContent, text.getBoundingClientRect()]);
    const meet = (a, b) => Math.min(a.right, b.right) - Math.max(a.left, b.left) > 0.5
        && Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top) > a.height / 2;
    return boxes.flatMap(([name, a], k) => boxes.slice(k + 1)
        .filter(([, b]) => meet(a, b)).map(([other]) => [name, other]));
}"""


@pytest.mark.parametrize("width", [390, 1280])
def test_labels_of_charts_do_not_overlap_and_titles_are_whole(charts, window, width):
    page = window.open(charts, width)
    for figure in ("#figure-sigma", "#figure-depth", "#figure-metrics", "#figure-summary"):
        svg = page.locator(f"{figure} svg.chart")
        assert svg.evaluate(OVERLAPS) == []
        texts = svg.evaluate("svg => [...svg.querySelectorAll('text')].map(text => text.textContent)")
        assert not [text for text in texts if "…" in text]
        right = svg.bounding_box()["x"] + svg.bounding_box()["width"]
        ends = svg.evaluate(
            "svg => [...svg.querySelectorAll('text')].map(t => t.getBoundingClientRect().right)"
        )
        assert max(ends) <= right + 1


def test_statements_are_folded_and_the_address_keeps_those_that_are_open(tables, window):
    articles = "".join(
        f"""<article id="says-{key}" data-outcome="{outcome}"><details class="fold">
        <summary><span>{key}</span><span>{outcome}</span></summary><p>finding {key}</p></details></article>"""
        for key, outcome in (("a", "refuted"), ("b", "supported"), ("c", "refuted"))
    )
    page = tables(f"""
    <div class="tools" hidden><button type="button" class="unfold">all</button></div>
    <fieldset class="filter" hidden><legend>Show</legend>
    <label><input type="radio" name="outcome" value="" checked>every</label>
    <label><input type="radio" name="outcome" value="refuted">refuted</label></fieldset>
    <div class="statements"><section>{articles}</section></div>""")
    finding = page.locator("article p:visible")
    assert finding.count() == 0
    page.locator("#says-b summary").click()
    page.wait_for_url("**open=says-b")
    page.reload()
    assert finding.all_inner_texts() == ["finding b"]
    page.get_by_label("refuted").check()
    page.get_by_role("button", name="all").click()
    page.wait_for_function("location.search.includes('open=all')")
    page.reload()
    assert finding.all_inner_texts() == ["finding a", "finding c"]
    page.evaluate("location.href = location.pathname + '#says-c'")
    page.locator("#says-c p").wait_for()
    assert finding.all_inner_texts() == ["finding c"]


def test_points_name_their_series_value_and_spread(charts, window):
    page = window.open(charts)
    point = page.locator('#figure-sigma [data-series="SDP"] use').first
    point.scroll_into_view_if_needed()
    box = point.bounding_box()
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    text = page.get_by_role("tooltip").inner_text()
    assert re.fullmatch(r"\S+ at σ = 0.1: \S+ ± \S+ \(standard deviation\)", text)


def test_every_control_of_every_page_can_be_used(large_report, window):
    """Each button, box and field is used once; nothing fails, and the address restores the page."""
    for path in sorted(large_report.parent.parent.glob("*.html")):
        page = window.open(path)
        page.evaluate(OPEN)
        for control in page.locator("main :is(.tools, .filter) :is(button, input):visible").all()[:40]:
            if control.get_attribute("type") == "search":
                control.fill("d")
                control.fill("")
            else:
                control.click()
        for head in page.locator("th .sort:visible").all()[:20]:
            head.click()
        shown = page.locator("main").inner_text()
        page.reload()
        page.evaluate(OPEN)
        assert page.locator("main").inner_text() == shown, path.name
        assert window.complaints == []


def mixed(colour, ground, share):
    """Mixture of two colours, as the shade of the best cells."""
    pairs = zip(bytes.fromhex(colour[1:]), bytes.fromhex(ground[1:]), strict=True)
    return "#" + "".join(f"{round(share * a + (1 - share) * b):02x}" for a, b in pairs)


def test_the_opening_fits_a_laptop_and_three_screens_of_a_phone(large_report, window):
    for width, height in ((1280, 800), (390, 3 * 844)):
        page = window.open(large_report.parent.parent / "index.html", width)
        answers = page.locator(".answers").bounding_box()
        assert answers["y"] + answers["height"] <= height


def test_colours_of_text_and_of_lines_with_a_meaning_stand_out(report, window):
    """By the contrast of WCAG 2: 4.5 of text, 3 of edges of controls and of the line below a head."""
    wanted = {"ink": 4.5, "quiet": 4.5, "accent": 4.5, "warn": 4.5, "edge": 3}
    for scheme in ("light", "dark"):
        page = window.open(report, scheme=scheme)
        colours = page.evaluate(
            """names => Object.fromEntries(names.map(name => [
            name, getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim()]))""",
            ["page", "tint", *wanted],
        )
        for ground in ("page", "tint"):
            found = {name: contrast(colours[name], colours[ground]) for name in wanted}
            assert {name: ratio for name, ratio in found.items() if ratio < wanted[name]} == {}
        darkest = mixed(colours["accent"], colours["page"], 0.29)
        assert contrast(colours["ink"], darkest) >= 4.5


A4_LANDSCAPE = 1032  # CSS pixels between margins of 12 mm


@pytest.mark.slow
def test_nothing_is_cut_in_print(large_report, window):
    page = window.open(large_report, A4_LANDSCAPE, media="print")
    page.evaluate(OPEN)
    assert page.evaluate("document.documentElement.scrollWidth") <= A4_LANDSCAPE
    hidden = page.evaluate("""() => [...document.querySelectorAll("main *:not(svg *, .unseen)")].filter(
        each => ["auto", "scroll", "hidden"].includes(getComputedStyle(each).overflowX)
        && each.scrollWidth > each.clientWidth + 1).map(each => each.outerHTML.slice(0, 80))""")
    assert hidden == []
    assert not page.locator(".tools").first.is_visible()
    for path in large_report.parent.parent.glob("*.html"):
        page = window.open(path, media="print")
        assert 0 < len(re.findall(rb"/Type\s*/Page\b", page.pdf(prefer_css_page_size=True))) < 20


FIGURE = "#figure-sigma"
SVG = "{http://www.w3.org/2000/svg}"


def colours(page):
    """Computed colours of texts and lines of the figure."""
    return page.evaluate(f"""() => [...document.querySelectorAll("{FIGURE} .chart :is(text, path)")].map(
        each => {{ const style = getComputedStyle(each); return `${{style.fill}} ${{style.stroke}}`; }})""")


def test_one_drawing_serves_light_and_dark_pages(report, window):
    light = colours(window.open(report, scheme="light"))
    dark = colours(window.open(report, scheme="dark"))
    assert len(light) == len(dark) > 30
    assert "rgb(31, 35, 40) none" in light
    assert "rgb(227, 229, 232) none" in dark
    assert not [each for each in dark if "rgb(31, 35, 40)" in each]


def test_a_figure_is_saved_with_colours_that_other_programs_know(report, window, tmp_path):
    page = window.open(report)
    with page.expect_download() as download:
        page.locator(FIGURE).get_by_role("button", name="SVG").click()
    assert download.value.suggested_filename == "figure-sigma.svg"
    download.value.save_as(tmp_path / "saved.svg")
    text = (tmp_path / "saved.svg").read_text(encoding="utf-8")
    assert not [name for name in ("var(", "light-dark", "currentColor") if name in text]
    svg = ET.fromstring(text)
    names = [each.text for each in svg.iter(f"{SVG}text")]
    assert {"SDP", "DVIA", "noise level σ"} <= set(names)
    (title,), (desc,) = svg.iter(f"{SVG}title"), svg.iter(f"{SVG}desc")
    assert title.text == desc.text
    assert title.text in names
    assert title.text.startswith("Over input noise. 1 ReLU layer; Gaussian noise at σ = 0.1")
    assert title.text.endswith(f"sdp-bench {version('sdp-bench')}")


@pytest.mark.parametrize("width", [390, 1280])
def test_texts_of_figures_can_be_read(report, window, width):
    page = window.open(report, width)
    sizes = page.evaluate(f"""() => [...document.querySelectorAll("{FIGURE} text")].map(
        each => each.getBoundingClientRect().height)""")
    assert min(sizes) >= 7
