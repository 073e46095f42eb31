"""A browser of this machine, pages in it, and a small report. Without a browser or its driver tests skip."""

import os
import shutil

import pytest

from sdp_bench.reports.page import build
from sdp_bench.reports.writing import environment
from tests.reports import made_up

BROWSERS = ("chromium", "chromium-browser", "google-chrome")


class Window:
    """A window of the browser, all that its page asked for and all that the browser complained of."""

    def __init__(self, browser, **settings):
        context = browser.new_context(reduced_motion="reduce", **settings)
        context.set_default_timeout(30_000)  # ms; pages load slowly on a busy machine
        self.page, self.asked, self.complaints = context.new_page(), [], []
        self.page.on("request", lambda request: self.asked.append(request.url))
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.on("console", lambda message: self.complaints.append(message.text))

    def open(self, path, width=1280, scheme="light", media="screen", query=""):
        """Show a file as it is on a window of some width."""
        self.asked.clear()
        self.complaints.clear()
        self.page.set_viewport_size({"width": width, "height": 900})
        self.page.emulate_media(color_scheme=scheme, media=media)
        self.page.goto(path.as_uri() + query)
        return self.page


@pytest.fixture(scope="session")
def browser():
    driver = pytest.importorskip(
        "playwright.sync_api", reason="playwright is not installed (the extra browser)"
    )
    found = next(filter(None, map(shutil.which, BROWSERS)), None)
    if found is None:
        pytest.skip(f"no browser: none of {', '.join(BROWSERS)}")
    with driver.sync_playwright() as playwright:
        arguments = ["--no-sandbox"] if os.geteuid() == 0 else []
        started = playwright.chromium.launch(executable_path=found, args=arguments)
        yield started
        started.close()


@pytest.fixture(scope="session")
def window(browser):
    return Window(browser)


@pytest.fixture(scope="session")
def plain_window(browser):
    return Window(browser, java_script_enabled=False)


def _report(folder, **measured):
    """All of a report on one page, beside the report."""
    results = made_up.results(made_up.frame(**measured), failures=made_up.FAILURES)
    build(results, folder, made_up.SECTIONS)
    return build(results, folder / "whole", made_up.SECTIONS, alone=True)


@pytest.fixture(scope="session")
def report(tmp_path_factory):
    measured = {"depths": (1,), "rules": made_up.FEW, "experiments": ("iris-tv",)}
    return _report(tmp_path_factory.mktemp("small"), **measured)


@pytest.fixture(scope="session")
def large_report(tmp_path_factory):
    """One of three experiments, with tables that are wider than some windows."""
    return _report(tmp_path_factory.mktemp("large"), depths=(1, 2))


@pytest.fixture(scope="session")
def suite(large_report):
    """Page of a suite with numbers of the paper."""
    return large_report.parent.parent / "suite-iris-tv.html"


@pytest.fixture(scope="session")
def charts(large_report):
    return large_report.parent.parent / "charts.html"


@pytest.fixture(scope="session")
def many(tmp_path_factory):
    """Charts of more rules than stand out."""
    rules = (*made_up.DETERMINISTIC, "unscented", "cubature", "second_order")
    frame = made_up.frame(depths=(1,), rules=rules, experiments=("iris-tv",))
    folder = tmp_path_factory.mktemp("many")
    return build(made_up.results(frame), folder, made_up.some("figures")).parent / "charts.html"


_PAGE = """
{% extends "base.html" %}
{% from "parts.html" import scrolled %}
{% block title %}tables{% endblock %}
{% block body %}<main><h1>Tables</h1><h2>First</h2>TABLES</main>{% endblock %}
"""


@pytest.fixture
def tables(tmp_path, window):
    """Opens a page of the package's own making around some tables, which are given as a template."""

    def opened(body, window=window, **shown):
        path = tmp_path / "tables.html"
        page = environment(made_up.TRAITS).from_string(_PAGE.replace("TABLES", body))
        path.write_text(page.render(), encoding="utf-8")
        return window.open(path, **shown)

    return opened


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
