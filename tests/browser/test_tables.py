"""What a browser adds to tables: order, filters, columns, intervals and copies."""

import csv
import io

NETS = """
{% call scrolled("Nets", spread="standard deviation over 4 nets") %}
<thead><tr><th scope="col" class="text">net</th><th scope="col">σ</th>
<th scope="col" class="text">rule</th><th scope="col">1 − TV</th><th scope="col">time</th></tr></thead>
<tbody>
<tr><th scope="row" class="text">2 ReLU layers</th><td>10</td><td class="text">SDP</td>
<td><strong><a href="#a">0.95</a></strong>
<span class="small">± 0.02</span></td><td data-value="0.002">2 ms</td></tr>
<tr><th scope="row" class="text">10 ReLU layers</th><td>1</td><td class="text">DVIA</td><td>−1.20e−5</td>
<td data-value="60">1 min</td></tr>
<tr><th scope="row" class="text">1 GELU layer</th><td>10</td><td class="text">DVIA</td><td>–</td>
<td></td></tr>
<tr><th scope="row" class="text">10 ReLU layers</th><td>2,000</td><td class="text">=SUM(A1)|50 %</td>
<td>≈ 0.50 ± 0.25</td><td data-value="3">3 s</td></tr>
<tr><th scope="row" class="text">10 ReLU layers</th><td>0.5</td><td class="text">a_b & “c”</td><td>∞</td>
<td data-value="0.5">500 ms</td></tr>
</tbody>
{% endcall %}
"""
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
    """Cells of the rows that are shown, first lines only."""
    rows = page.locator("tbody tr:visible").all()
    return [row.locator("th, td").nth(place).inner_text().splitlines()[0:1] for row in rows]


def shown(page, place):
    return ["".join(lines) for lines in column(page, place)]


def sort(page, name):
    page.get_by_role("columnheader", name=name, exact=True).get_by_role("button").click()


def tools(page):
    page.get_by_role("button", name="Table tools").click()


def copied(page, name, *, small=False):
    """What a button puts where copies go."""
    kept = "{ writeText: async text => { window.copied = text; } }"
    page.evaluate(f'Object.defineProperty(navigator, "clipboard", {{ configurable: true, value: {kept} }})')
    if small:
        page.get_by_label("with the small print").check()
    page.get_by_role("button", name=name, exact=True).click()
    assert page.get_by_role("status").inner_text() == f"Copied as {name}."
    return page.evaluate("copied")


def test_numbers_are_sorted_as_numbers_and_what_has_none_comes_last(tables):
    page = tables(NETS)
    before = shown(page, 3)
    head = page.get_by_role("columnheader", name="1 − TV")
    assert head.get_attribute("aria-sort") == "none"
    sort(page, "1 − TV")
    assert head.get_attribute("aria-sort") == "ascending"
    assert shown(page, 3) == ["−1.20e−5", "≈ 0.50 ± 0.25", "0.95", "∞", "–"]
    sort(page, "1 − TV")
    assert head.get_attribute("aria-sort") == "descending"
    assert shown(page, 3) == ["∞", "0.95", "≈ 0.50 ± 0.25", "−1.20e−5", "–"]
    sort(page, "1 − TV")
    assert (head.get_attribute("aria-sort"), shown(page, 3)) == ("none", before)


def test_times_are_sorted_by_their_length_and_thousands_are_read(tables):
    page = tables(NETS)
    sort(page, "time")
    assert shown(page, 4) == ["2 ms", "500 ms", "3 s", "1 min", ""]
    sort(page, "σ")
    assert shown(page, 1) == ["0.5", "1", "10", "10", "2,000"]
    assert page.get_by_role("columnheader", name="time").get_attribute("aria-sort") == "none"


def test_order_is_stable_and_texts_are_in_natural_order(tables):
    page = tables(NETS)
    sort(page, "net")
    assert shown(page, 0) == ["1 GELU layer", "2 ReLU layers", *["10 ReLU layers"] * 3]
    assert shown(page, 1)[2:] == ["1", "2,000", "0.5"]
    sort(page, "net")
    assert shown(page, 1)[:3] == ["1", "2,000", "0.5"]


def test_rows_that_a_cell_spans_stay_together(tables):
    page = tables(SPANS)
    sort(page, "claim")
    assert page.locator("tbody th").all_inner_texts() == ["alpha", "mu", "zeta"]
    assert page.locator("tbody tr").all_inner_texts()[1:3] == ["mu\tadam\t0\t6", "sgd\t9\t7"]
    sort(page, "value")
    assert page.locator("tbody th").all_inner_texts() == ["mu", "zeta", "alpha"]


def test_groups_are_sorted_below_their_titles(tables):
    page = tables(GROUPS)
    sort(page, "nets, σ")
    assert shown(page, 0) == ["ReLU", "σ = 0.1", "σ = 0.2", "σ = 0.3", "GELU", "σ = 0.5", "σ = 0.6"]


def test_a_head_is_sorted_by_from_the_keyboard(tables):
    page = tables(NETS)
    page.get_by_role("button", name="σ", exact=True).focus()
    page.keyboard.press("Enter")
    assert shown(page, 1)[0] == "0.5"


def test_rows_are_chosen_by_net_scale_and_rule(tables):
    page = tables(NETS)
    assert page.get_by_role("combobox").count() == 0
    tools(page)
    assert page.get_by_role("combobox").count() == 3
    page.get_by_role("combobox", name="net", exact=True).select_option("10 ReLU layers")
    assert shown(page, 1) == ["1", "2,000", "0.5"]
    page.get_by_role("combobox", name="rule", exact=True).select_option("DVIA")
    assert shown(page, 1) == ["1"]
    assert page.get_by_role("status").inner_text() == "1 of 5 rows"
    for name in ("net", "rule"):
        page.get_by_role("combobox", name=name, exact=True).select_option("all")
    assert len(shown(page, 1)) == 5


def test_many_names_are_searched(tables):
    rows = "".join(f'<tr><th scope="row" class="text">net {k}</th><td>{k}</td></tr>' for k in range(20))
    head = '<thead><tr><th scope="col" class="text">net</th><th scope="col">seed</th></tr></thead>'
    page = tables(f'{{% call scrolled("Nets") %}}{head}<tbody>{rows}</tbody>{{% endcall %}}')
    tools(page)
    page.get_by_role("searchbox").fill("NET 1")
    assert shown(page, 1) == ["1", *map(str, range(10, 20))]


def test_columns_are_hidden_where_cells_span_them_too(tables):
    page = tables(SPANS)
    tools(page)
    page.get_by_label("value").uncheck()
    assert page.locator("tbody tr").all_inner_texts() == [
        "zeta\tadam\t5",
        "sgd\t2",
        "alpha\tsgd\t4",
        "mu\tadam\t6",
        "sgd\t7",
    ]
    assert page.get_by_role("status").inner_text() == "1 column hidden"
    page.get_by_label("more").uncheck()
    assert page.locator("tbody tr").all_inner_texts()[1] == "sgd"
    page.get_by_label("value").check()
    assert page.locator("tbody tr").all_inner_texts()[1] == "sgd\t2"


def test_intervals_are_told_at_the_pointer_and_at_the_focus(tables):
    page = tables(NETS)
    note = page.get_by_role("tooltip")
    page.get_by_role("link", name="0.95").hover()
    assert note.inner_text().splitlines() == [
        "1 − TV, 2 ReLU layers",
        "0.95 ± 0.02: from 0.93 to 0.97",
        "standard deviation over 4 nets",
    ]
    page.get_by_text("1 min").hover()
    assert note.count() == 0
    page.get_by_role("link", name="0.95").focus()
    assert "from 0.93 to 0.97" in note.inner_text()
    assert page.get_by_role("link", name="0.95").get_attribute("aria-describedby") == note.get_attribute("id")
    page.keyboard.press("Escape")
    assert note.count() == 0
    page.get_by_text("≈ 0.50").focus()  # which has no link
    assert "0.50 ± 0.25: from 0.25 to 0.75" in note.inner_text()


def test_csv_has_numbers_as_numbers_and_no_formula(tables):
    page = tables(NETS)
    tools(page)
    sort(page, "σ")
    assert list(csv.reader(io.StringIO(copied(page, "CSV")))) == [
        ["net", "σ", "rule", "1 − TV", "time"],
        ["10 ReLU layers", "0.5", "a_b & “c”", "inf", "500 ms"],
        ["10 ReLU layers", "1", "DVIA", "-1.20e-5", "1 min"],
        ["2 ReLU layers", "10", "SDP", "0.95", "2 ms"],
        ["1 GELU layer", "10", "DVIA", "", ""],
        ["10 ReLU layers", "2000", "'=SUM(A1)|50 %", "≈ 0.50 ± 0.25", "3 s"],
    ]


def test_fields_of_csv(tables):
    fields = {
        "+cmd": "'+cmd",
        "-cmd": "'-cmd",
        "@sum": "'@sum",
        '=a"b': '"\'=a""b"',
        "a, b": '"a, b"',
        "−3": "-3",
        "+0.5": "+0.5",
        "1,234.5": "1234.5",
        "1, 2, 4": '"1, 2, 4"',
    }
    rows = "".join(f'<tr><td class="text">{text}</td><td>{k}</td></tr>' for k, text in enumerate(fields))
    head = '<thead><tr><th scope="col">a</th><th scope="col">b</th></tr></thead>'
    page = tables(f"{{% call scrolled('T') %}}{head}<tbody>{rows}</tbody>{{% endcall %}}")
    tools(page)
    assert copied(page, "CSV").splitlines()[1:] == [f"{field},{k}" for k, field in enumerate(fields.values())]


def test_markdown_shows_texts_letter_by_letter(tables):
    page = tables(NETS)
    tools(page)
    assert copied(page, "Markdown", small=True).splitlines() == [
        "| net | σ | rule | 1 − TV | time |",
        "| --- | ---: | --- | ---: | ---: |",
        "| 2 ReLU layers | 10 | SDP | **0.95** ± 0.02 | 2 ms |",
        "| 10 ReLU layers | 1 | DVIA | −1.20e−5 | 1 min |",
        "| 1 GELU layer | 10 | DVIA | – |  |",
        r"| 10 ReLU layers | 2,000 | =SUM(A1)\|50 % | ≈ 0.50 ± 0.25 | 3 s |",
        r"| 10 ReLU layers | 0.5 | a_b \& “c” | ∞ | 500 ms |",
    ]


def test_latex_is_a_table_of_booktabs(tables):
    page = tables(NETS)
    tools(page)
    assert copied(page, "LaTeX").splitlines() == [
        r"% \usepackage{booktabs}",
        r"\begin{tabular}{lrlrr}",
        r"\toprule",
        r"net & $\sigma$ & rule & 1 $-$ TV & time \\",
        r"\midrule",
        r"2 ReLU layers & 10 & SDP & \textbf{0.95} & 2 ms \\",
        r"10 ReLU layers & 1 & DVIA & $-1.20\times10^{-5}$ & 1 min \\",
        r"1 GELU layer & 10 & DVIA & -- &  \\",
        r"10 ReLU layers & 2,000 & =SUM(A1)$|$50 \% & $\approx$ 0.50 $\pm$ 0.25 & 3 s \\",
        r"10 ReLU layers & 0.5 & a\_b \& ``c'' & $\infty$ & 500 ms \\",
        r"\bottomrule",
        r"\end{tabular}",
    ]


def test_copies_are_of_what_is_shown(tables):
    page = tables(NETS)
    tools(page)
    page.get_by_role("combobox", name="rule", exact=True).select_option("DVIA")
    for name in ("σ", "time"):
        page.get_by_role("checkbox", name=name, exact=True).uncheck()
    assert copied(page, "CSV").splitlines() == [
        "net,rule,1 − TV",
        "10 ReLU layers,DVIA,-1.20e-5",
        "1 GELU layer,DVIA,",
    ]


def test_copies_have_spanned_cells_once_or_in_each_row(tables):
    page = tables(SPANS)
    tools(page)
    assert copied(page, "CSV").splitlines()[1:4] == ["zeta,adam,1,5", "zeta,sgd,2,", "alpha,sgd,3,4"]
    assert copied(page, "LaTeX").splitlines()[5:8] == [
        r"zeta & adam & 1 & 5 \\",
        r" & sgd & 2 &  \\",
        r"alpha & sgd & 3 & 4 \\",
    ]
    page = tables(GROUPS)
    tools(page)
    assert r"\addlinespace\multicolumn{2}{l}{\emph{ReLU}} \\" in copied(page, "LaTeX")


def test_where_nothing_may_be_copied_the_text_is_shown(tables):
    page = tables(NETS)
    tools(page)
    page.evaluate('Object.defineProperty(navigator, "clipboard", { value: undefined })')
    page.get_by_role("button", name="CSV").click()
    box = page.get_by_label("The table as CSV")
    assert box.input_value().startswith("net,σ,rule")
    assert page.evaluate("getSelection().toString()").startswith("net,σ,rule")


def test_heads_stay_in_view(tables):
    rows = "".join(f'<tr><th scope="row">{k}</th>{"<td>0.12345</td>" * 30}</tr>' for k in range(80))
    heads = "".join(f'<th scope="col">column {k}</th>' for k in range(31))
    page = tables(
        f'{{% call scrolled("Wide") %}}<thead><tr>{heads}</tr></thead><tbody>{rows}</tbody>{{% endcall %}}'
    )
    scroll = page.locator(".scroll")
    scroll.evaluate("each => each.scrollTo(700, 900)")
    place, head, first = (
        page.locator(name).first.bounding_box()
        for name in (".scroll", "thead th", "tbody tr:nth-child(50) th")
    )
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


def test_without_javascript_tables_stand_as_they_are(tables, plain_window):
    page = tables(NETS, plain_window)
    assert page.locator("tbody tr:visible").count() == 5
    assert page.get_by_role("button").count() == 0
    assert page.locator("thead th").first.inner_text() == "net"
    assert page.locator("h2 .permalink").get_attribute("href") == "#first"


def test_small_tables_have_no_tools(tables):
    page = tables(
        '{% call scrolled("S") %}<thead><tr><th scope="col">a</th><th scope="col">b</th></tr></thead>'
        "<tbody><tr><td>1</td><td>2</td></tr></tbody>{% endcall %}"
    )
    assert page.get_by_role("button").count() == 0


def test_tools_are_opened_used_and_closed_by_keys(tables):
    page = tables(NETS)
    button = page.get_by_role("button", name="Table tools")
    button.focus()
    page.keyboard.press("Enter")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.tagName") == "SELECT"
    page.keyboard.press("ArrowDown")
    assert page.get_by_role("status").inner_text() == "1 of 5 rows"
    page.keyboard.press("Escape")
    assert button.get_attribute("aria-expanded") == "false"
    assert page.evaluate("document.activeElement.textContent") == "Table tools"
