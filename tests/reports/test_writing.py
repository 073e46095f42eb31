"""Pages as text."""

import re

import pytest

from sdp_bench.reports.writing import permalinked


def links(page):
    return re.findall(r'<a class="permalink" href="#([^"]+)" aria-label="[^"]+"></a>', permalinked(page))


@pytest.mark.parametrize(
    ("page", "anchors"),
    [
        ('<section id="nets">\n<h2>Nets</h2></section>', ["nets"]),
        ('<article id="a" tabindex="-1"><h3 class="b">A</h3></article>', []),
        ('<h2 id="own">Own</h2>', ["own"]),
        ('<section id="a"><h2 class="unseen">A</h2><h3>B</h3></section>', ["a-b"]),
        ("<h2>Which <em>rule</em> when? <small>choice</small></h2>", ["which-rule-when"]),
        (
            "<h2>One</h2><h4>Cells</h4><h3>A</h3><h4>Cells</h4><h2>Two</h2><h4>Cells</h4>",
            ["one", "one-cells", "one-a", "one-a-cells", "two", "two-cells"],
        ),
        ('<h2>Nets</h2><h2>Nets</h2><p id="nets-3"></p><h2>Nets</h2>', ["nets", "nets-2", "nets-4"]),
        ("<h2>1 &lt; 2 σ</h2>", ["1-2-σ"]),
        ("<h2>?</h2>", ["heading"]),
        ("<h1>Page</h1><h5>Small</h5>", []),
    ],
)
def test_headings_lead_to_themselves(page, anchors):
    assert links(page) == anchors
    made = permalinked(page)
    assert all(f'id="{anchor}"' in made for anchor in anchors)


def test_a_summary_has_no_link_in_it():
    made = permalinked("<details><summary><h3>All</h3></summary>text</details>")
    assert '<h3 id="all">All</h3></summary><a class="permalink" href="#all"' in made
