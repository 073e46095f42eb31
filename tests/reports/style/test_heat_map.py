import re

import numpy as np
import pytest

from sdp_bench.reports.style.colours import CIVIDIS, Colours
from sdp_bench.reports.style.heat_map import HeatMap
from sdp_bench.reports.style.svg import FONT

CELL = re.compile(r'<path fill="[^"]*" d="M([\d.]+) ([\d.]+)h([\d.]+)v([\d.]+)')
TEXT = re.compile(r'<text x="([\d.]+)" y="([\d.]+)"[^>]*>([^<]*)<')


def heat_map(values, rows, size=10.0):
    values = np.array(values)
    texts = [[f"{value:.2f}" for value in row] for row in values]
    columns = [str(column) for column in range(values.shape[1])]
    colours = Colours(0, 1, CIVIDIS)
    made = HeatMap(values, texts, rows, columns, "across", "along", colours, "#8a8a8a", 0.8, size)
    return made.svg


@pytest.mark.parametrize("size", [6.5, 10.0])
def test_texts_stand_in_the_middle_in_every_browser(size):
    """Digits reach from the baseline to some 0.73 of their size, and Safari inherits no other baseline."""
    svg = heat_map([[0.1, 0.9], [0.4, 0.6]], [["first"], ["second"]], size)
    assert "baseline" not in svg
    cells = [tuple(map(float, found)) for found in CELL.findall(svg)]
    texts = [(float(x), float(y), text) for x, y, text in TEXT.findall(svg)]
    for (left, top, wide, tall), (x, y, _) in zip(cells, texts[:4], strict=True):
        assert x == pytest.approx(left + wide / 2, abs=0.15)
        assert y - 0.365 * size == pytest.approx(top + tall / 2, abs=0.2)
    downs = {text: y for _, y, text in texts}
    for name, (_, top, _, tall) in zip(("first", "second"), cells[::2], strict=True):
        assert downs[name] - 0.365 * FONT == pytest.approx(top + tall / 2, abs=0.2)


def test_cells_without_a_value_are_left_blank_and_names_are_text():
    svg = heat_map([[np.nan, 0.9], [np.inf, 0.6]], [["<a> &"], ["b"]])
    assert len(CELL.findall(svg)) == 2
    assert [text for _, _, text in TEXT.findall(svg)][:2] == ["0.90", "0.60"]
    assert "&lt;a&gt; &amp;" in svg
