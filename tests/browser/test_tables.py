"""What a browser adds to tables: order, and a filter where there are many rows."""

import csv

from tests.browser.conftest import NETS

SPANS = """
{% call scrolled("Claims") %}
<thead><tr><th scope="col" class="text">claim</th><th scope="col" class="text">recipe</th>
<th scope="col">value</th><th scope="col">more</th></tr></thead>
<tbody><tr><th scope="rowgroup" rowspan="2" class="text">zeta</th><td class="text">adam</td><td>1</td>
<td>5</td></tr>
<tr><td class="text">sgd</td><td colspan="2">2</td></tr></tbody>
<tbody><tr><th scope="rowgroup" rowspan="1" class="text">alpha</th><td class="text">sgd</td><td>3</td>
<td>4</td></tr></tbody>
<tbody><tr><th scope="rowgroup" rowspan="2" class="text">mu</th><td class="text">adam</td><td>0</td>
<td>6</td></tr>
<tr><td class="text">sgd</td><td>9</td><td>7</td></tr></tbody>
{% endcall %}
"""
GROUPS = """
{% call scrolled("Which rule") %}
<thead><tr><th scope="col">nets, σ</th><th scope="col">value</th></tr></thead>
{% for name, values in (("ReLU", (3, 1, 2)), ("GELU", (6, 5))) %}
<tbody><tr><th scope="rowgroup" colspan="2">{{ name }}</th></tr>
{% for value in values %}<tr><th scope="row">σ = {{ value / 10 }}</th>
<td>{{ value }}</td></tr>{% endfor %}</tbody>
{% endfor %}
{% endcall %}
"""


def column(page, place):
    """First lines of a column's cells in the visible rows."""
    rows = page.locator("tbody tr:visible").all()
    return ["".join(row.locator("th, td").nth(place).inner_text().splitlines()[0:1]) for row in rows]


def sort(page, name):
    page.get_by_role("columnheader", name=name, exact=True).get_by_role("button").click()


def test_numbers_are_sorted_as_numbers_and_missing_ones_come_last(tables):
    page = tables(NETS)
    sort(page, "1 − TV")
    assert page.get_by_role("columnheader", name="1 − TV").get_attribute("aria-sort") == "ascending"
    assert column(page, 3) == ["−1.20e−5", "≈ 0.50 ± 0.25", "0.95", "∞", "–"]
    sort(page, "1 − TV")
    assert page.get_by_role("columnheader", name="1 − TV").get_attribute("aria-sort") == "descending"
    assert column(page, 3) == ["∞", "0.95", "≈ 0.50 ± 0.25", "−1.20e−5", "–"]


def test_times_are_sorted_by_their_length_and_thousands_are_read(tables):
    page = tables(NETS)
    sort(page, "time")
    assert column(page, 4) == ["2 ms", "500 ms", "3 s", "1 min", ""]
    sort(page, "σ")
    assert column(page, 1) == ["0.5", "1", "10", "10", "2,000"]


def test_order_is_stable_and_texts_are_in_natural_order(tables):
    page = tables(NETS)
    sort(page, "net")
    assert column(page, 0) == ["1 GELU layer", "2 ReLU layers", *["10 ReLU layers"] * 3]
    assert column(page, 1)[2:] == ["1", "2,000", "0.5"]


def test_tables_with_cells_over_several_rows_are_left_alone(tables):
    page = tables(SPANS)
    assert page.locator(".sort").count() == 0


def test_groups_are_sorted_below_their_titles(tables):
    page = tables(GROUPS)
    sort(page, "nets, σ")
    assert column(page, 0) == ["ReLU", "σ = 0.1", "σ = 0.2", "σ = 0.3", "GELU", "σ = 0.5", "σ = 0.6"]


def test_rows_are_filtered_by_words(tables):
    rows = "".join(f'<tr><th scope="row" class="text">net {k}</th><td>{k}</td></tr>' for k in range(20))
    head = '<thead><tr><th scope="col" class="text">net</th><th scope="col">seed</th></tr></thead>'
    page = tables(f'{{% call scrolled("Nets") %}}{head}<tbody>{rows}</tbody>{{% endcall %}}')
    page.get_by_role("searchbox").fill("NET 1")
    assert column(page, 1) == ["1", *map(str, range(10, 20))]
    assert "11" in page.get_by_role("status").inner_text()
    page.get_by_role("searchbox").fill("")
    assert len(column(page, 1)) == 20


def test_rows_are_filtered_by_the_heading_of_their_group_too(tables):
    page = tables(GROUPS.replace("(3, 1, 2)", "range(6)"))
    search = page.get_by_role("searchbox")
    search.fill("gelu")
    assert column(page, 0) == ["GELU", "σ = 0.6", "σ = 0.5"]
    search.fill("relu 0.3")
    assert column(page, 0) == ["ReLU", "σ = 0.3"]
    search.fill("tanh")
    assert column(page, 0) == []
    assert page.get_by_role("status").inner_text() == "0 rows"
    search.fill("")
    assert len(column(page, 0)) == 10


def test_one_search_box_filters_all_tables_of_its_class(tables):
    table = GROUPS.replace('scrolled("Which rule")', 'scrolled("t", "by-net")')
    search = """<div class="tools" hidden>
    <input type="search" name="net" data-tables="by-net" aria-label="nets">
    <span role="status"></span></div>"""
    page = tables(search + table + table)
    box = page.get_by_role("searchbox")
    box.fill("gelu")
    page.reload()
    assert page.url.endswith("?net=gelu")
    assert column(page, 0) == ["GELU", "σ = 0.6", "σ = 0.5"] * 2


def test_a_table_without_a_matching_row_names_the_tables_that_have_one(tables):
    table = """{% call scrolled(label, "by-net") %}<thead><tr><th>net</th><th>error</th></tr></thead>
        <tbody><tr><th>NET</th><td>1</td></tr></tbody>{% endcall %}"""
    page = tables(
        '<div><input type="search" name="net" data-tables="by-net"><span class="state"></span></div>'
        + table.replace("label", "'Class'").replace("NET", "resnet")
        + table.replace("label", "'Tails'").replace("NET", "sonar")
    )
    page.get_by_role("searchbox").fill("sonar")
    assert page.locator("p.key:visible").all_inner_texts() == ["Not measured in this table, but in: Tails."]
    page.get_by_role("searchbox").fill("vgg")
    assert page.locator("p.key:visible").all_inner_texts() == ["No row matches."] * 2
    page.get_by_role("searchbox").fill("")
    assert page.locator("p.key:visible").count() == 0


def test_order_and_filter_are_in_the_address_and_survive_a_reload(tables):
    rows = "".join(f'<tr><th scope="row" class="text">net {k}</th><td>{k}</td></tr>' for k in range(20))
    head = '<thead><tr><th scope="col" class="text">net</th><th scope="col">seed</th></tr></thead>'
    page = tables(f'{{% call scrolled("Nets") %}}{head}<tbody>{rows}</tbody>{{% endcall %}}')
    sort(page, "seed")
    sort(page, "seed")
    page.get_by_role("searchbox").fill("net 1")
    page.reload()
    assert page.get_by_role("searchbox").input_value() == "net 1"
    assert column(page, 1) == [*map(str, range(19, 9, -1)), "1"]
    page.get_by_role("searchbox").fill("")
    sort(page, "net")
    assert page.url.partition("?")[2] == "sort0=0"


def test_titles_of_cells_are_shown_on_hover_and_focus(tables):
    page = tables(
        """{% call scrolled("t") %}<thead><tr><th scope="col">a</th><th scope="col">b</th></tr></thead>
        <tbody><tr><th scope="row">1</th><td title="± 0.5"><a href="#x">2</a></td></tr></tbody>
        {% endcall %}"""
    )
    tip = page.get_by_role("tooltip")
    page.get_by_role("cell", name="2").hover()
    assert tip.inner_text() == "± 0.5"
    page.get_by_role("heading", name="Tables").hover()
    assert not tip.is_visible()
    page.get_by_role("link", name="2").focus()
    assert tip.inner_text() == "± 0.5"
    page.keyboard.press("Escape")
    assert not tip.is_visible()


def test_the_meaning_of_spreads_is_written_below(tables, plain_window):
    page = tables(NETS, plain_window)
    assert "standard deviation over 4 nets" in page.locator("caption").inner_text()


def saved(page, path):
    """Rows of the file that the page saves of its first table."""
    with page.expect_download() as download:
        page.get_by_role("button", name="Save table as CSV").first.click()
    download.value.save_as(path)
    with path.open(encoding="utf-8", newline="") as file:
        return download.value.suggested_filename, list(csv.reader(file))


def test_a_table_is_saved_with_further_lines_of_its_cells_in_their_own_column(tables, tmp_path):
    name, (head, *rows) = saved(tables(NETS), tmp_path / "nets.csv")
    assert name == "nets.csv"
    assert head == ["net", "σ", "rule", "1 − TV", "1 − TV, notes", "time"]
    assert rows[0] == ["2 ReLU layers", "10", "SDP", "0.95", "± 0.02", "2 ms"]
    assert rows[1] == ["10 ReLU layers", "1", "DVIA", "-1.20e-5", "", "1 min"]
    assert [row[2] for row in rows[3:]] == ["'=SUM(A1)|50 %", "a_b & “c”"]
    assert [row[3] for row in rows[2:]] == ["", "≈ 0.50 ± 0.25", "∞"]


def test_ends_of_intervals_are_columns_of_the_file(tables, tmp_path):
    table = """{% call scrolled("Times", range="quartile") %}
        <thead><tr><th>rule</th><th>ratio</th></tr></thead>
        <tbody><tr><th>SDP</th><td>3<span class="small">2.5 to 3.5</span></td></tr>
        <tr><th>DVIA</th><td>–</td></tr></tbody>{% endcall %}"""
    rows = saved(tables(table), tmp_path / "times.csv")[1]
    assert rows[0] == ["rule", "ratio", "ratio, lower quartile", "ratio, upper quartile"]
    assert rows[1:] == [["SDP", "3", "2.5", "3.5"], ["DVIA", "", "", ""]]
    hovered = """{% call scrolled("Scores") %}<thead><tr><th>rule</th><th>score</th></tr></thead><tbody>
        <tr><th>SDP</th><td title="95 % interval −1.5 to 3; tied with DVIA">1</td></tr></tbody>
        {% endcall %}"""
    page = tables(hovered)
    page.get_by_role("cell", name="1").hover()
    head, row = saved(page, tmp_path / "scores.csv")[1]
    ends = [f"score, {end} end of the 95 % interval" for end in ("lower", "upper")]
    assert head[2:] == [*ends, "score, notes"]
    assert row == ["SDP", "1", "-1.5", "3", "tied with DVIA"]


def test_cells_over_several_rows_are_in_each_row_of_the_file(tables, tmp_path):
    _, (head, *rows) = saved(tables(SPANS), tmp_path / "spans.csv")
    assert all(len(row) == len(head) == 4 for row in rows)
    assert rows[:3] == [["zeta", "adam", "1", "5"], ["zeta", "sgd", "2", ""], ["alpha", "sgd", "3", "4"]]


def test_the_file_has_the_rows_that_are_shown(tables, tmp_path):
    rows = "".join(f'<tr><th scope="row" class="text">net {k}</th><td>{k}</td></tr>' for k in range(20))
    head = '<thead><tr><th scope="col" class="text">net</th><th scope="col">seed</th></tr></thead>'
    page = tables(f'{{% call scrolled("Nets") %}}{head}<tbody>{rows}</tbody>{{% endcall %}}')
    page.get_by_role("searchbox").fill("net 19")
    assert saved(page, tmp_path / "nets.csv")[1] == [["net", "seed"], ["net 19", "19"]]


def test_a_wide_table_on_a_phone_keeps_its_first_column_and_says_that_it_scrolls(tables):
    heads = "".join(f'<th scope="col">column {k}</th>' for k in range(8))
    cells = "<td>0.12345</td>" * 7
    rows = "".join(f'<tr><th scope="row">rule {k}</th>{cells}</tr>' for k in range(13))
    body = f'{{% call scrolled("Wide") %}}<thead><tr>{heads}</tr></thead><tbody>{rows}</tbody>{{% endcall %}}'
    hint = "each => getComputedStyle(each, '::before').content"
    page = tables(body, width=390)
    scroll = page.locator(".scroll")
    assert "scroll sideways" in scroll.evaluate(hint)
    assert scroll.evaluate("each => each.scrollHeight - each.clientHeight") == 0  # no row is cut
    scroll.evaluate("each => each.scrollTo(200, 0)")
    assert page.locator("tbody th").first.bounding_box()["x"] == scroll.bounding_box()["x"]
    page = tables(body, width=1280)
    assert "scroll" not in page.locator(".scroll").evaluate(hint)


def test_heads_stay_in_view(tables):
    rows = "".join(f'<tr><th scope="row">{k}</th>{"<td>0.12345</td>" * 30}</tr>' for k in range(80))
    heads = "".join(f'<th scope="col">column {k}</th>' for k in range(31))
    page = tables(
        f'{{% call scrolled("Wide") %}}<thead><tr>{heads}</tr></thead><tbody>{rows}</tbody>{{% endcall %}}'
    )
    scroll = page.locator(".scroll")
    scroll.evaluate("each => each.scrollTo(700, 900)")
    place = page.locator(".scroll").first.bounding_box()
    head = page.locator("thead th").first.bounding_box()
    first = page.locator("tbody tr:nth-child(50) th").first.bounding_box()
    assert (head["y"], head["x"]) == (place["y"], place["x"])
    assert first["x"] == place["x"]
    narrow = rows.replace("<td>0.12345</td>" * 30, "<td>1</td>")
    page = tables(
        '{% call scrolled("Tall") %}<thead><tr><th scope="col">a</th><th scope="col">b</th></tr></thead>'
        f"<tbody>{narrow}</tbody>{{% endcall %}}"
    )
    page.locator(".scroll.fits").wait_for()
    page.evaluate("scrollTo(0, 1000)")
    assert page.locator("thead th").first.bounding_box()["y"] == 0
    assert page.locator(".scroll").get_attribute("tabindex") is None
