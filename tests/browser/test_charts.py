"""Figures on pages: saved files, dark pages, narrow windows, and pages without JavaScript."""

from xml.etree import ElementTree as ET

import pytest

FIGURE = "#figure-sigma"


def colours(page):
    """Computed colours of texts and lines of the figure."""
    return page.evaluate(f"""() => [...document.querySelectorAll("{FIGURE} .chart :is(text, path)")].map(
        each => {{ const style = getComputedStyle(each); return `${{style.fill}} ${{style.stroke}}`; }})""")


def test_one_drawing_serves_light_and_dark_pages(large_report, window):
    light, dark = (colours(window.open(large_report, scheme=scheme)) for scheme in ("light", "dark"))
    assert len(light) == len(dark) > 50
    assert "rgb(31, 35, 40) none" in light
    assert "rgb(227, 229, 232) none" in dark
    assert not [each for each in dark if "rgb(31, 35, 40)" in each]


def test_a_figure_is_saved_with_colours_that_other_programs_know(large_report, window, tmp_path):
    page = window.open(large_report)
    with page.expect_download() as download:
        page.locator(FIGURE).get_by_role("button", name="SVG").click()
    assert download.value.suggested_filename == "figure-sigma.svg"
    download.value.save_as(tmp_path / "saved.svg")
    text = (tmp_path / "saved.svg").read_text(encoding="utf-8")
    assert not [name for name in ("var(", "light-dark", "currentColor") if name in text]
    names = {each.text for each in ET.fromstring(text).iter("{http://www.w3.org/2000/svg}text")}
    assert {"SDP", "DVIA", "noise level σ"} <= names


@pytest.mark.parametrize("width", [390, 1280])
def test_texts_of_figures_can_be_read(large_report, window, width):
    page = window.open(large_report, width)
    sizes = page.evaluate(f"""() => [...document.querySelectorAll("{FIGURE} text")].map(
        each => each.getBoundingClientRect().height)""")
    assert min(sizes) >= 7
