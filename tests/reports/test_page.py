import math
import re
from pathlib import Path

import pandas as pd
import pytest

from sdp_bench.bench.errors import RunFailedError, UserError
from sdp_bench.reports.folder import MARKER
from sdp_bench.reports.page import SHARED, build
from sdp_bench.reports.results import COMMITTED_TITLE
from sdp_bench.reports.sections.tables import file_of
from sdp_bench.reports.tables.frame import COLUMNS
from tests.reports import made_up
from tests.reports.helpers import outline, plain_text
from tests.reports.made_up import Results
from tests.reports.sections.helpers import intervals_frame


def built(folder, frame, failures=made_up.NO_FAILURES, meta=None, sections=made_up.SECTIONS):
    results = Results(frame, made_up.meta(frame) if meta is None else meta, failures)
    path = build(results, folder, sections, alone=True)
    return path.read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    folder = tmp_path_factory.mktemp("site")
    frame = made_up.frame(depths=(4,), nets=1, rules=made_up.FEW, experiments=("iris-tv", "iris-w1"))
    build(Results(frame, made_up.meta(frame), made_up.FAILURES), folder, made_up.SECTIONS)
    return frame, folder, {path.name: path.read_text(encoding="utf-8") for path in folder.glob("*.html")}


@pytest.fixture(scope="module")
def quick(tmp_path_factory):
    folder = tmp_path_factory.mktemp("report")
    frame = made_up.frame(depths=(4,))
    return frame, built(folder, frame, made_up.FAILURES), folder


def test_pages_and_data_are_where_they_should_be(site):
    frame, folder, pages = site
    names = {path.name for path in folder.iterdir()}
    assert names == {*pages, "numbers", "tables", "results.csv", MARKER, *SHARED}
    assert {"index.html", "choice.html", "charts.html", "suite-iris-tv.html", "nets.html"} <= set(pages)
    assert max(len(text) for text in pages.values()) < 1_000_000
    assert sum(len(text) for text in pages.values()) < 10_000_000
    data = pd.read_csv(folder / "results.csv", keep_default_na=False, na_values={"value": [""]})
    assert len(data) == len(frame)
    assert data["value"].sum() == pytest.approx(frame["value"].sum())
    assert (data["rule"] == frame["rule"]).all()


def test_pages_are_well_formed_and_their_links_lead_somewhere(site):
    _, folder, pages = site
    parsed = {name: outline(text) for name, text in pages.items()}
    for name, page in parsed.items():
        assert set(pages) <= set(page.targets)
        assert pages[name].count('aria-current="page"') == 1
        for target in page.targets:
            file, _, anchor = target.partition("#")
            if file.startswith("numbers/"):
                assert f'id="{anchor}"' in (folder / file).read_text(encoding="utf-8")
            elif file.startswith("tables/"):
                assert (folder / file).is_file()
            elif file != "results.csv":
                assert not anchor or anchor in parsed[file or name].ids


def test_long_pages_list_their_figures_and_kinds_of_nets(site):
    _, _, pages = site
    for name, title in (("charts.html", "Over input noise"), ("suite-iris-tv.html", "4 ReLU layers")):
        (contents,) = re.findall(r'<nav aria-label="On this page">.*?</nav>', pages[name], re.DOTALL)
        assert title in contents
    assert "On this page" not in pages["index.html"]


def test_pages_and_lists_share_style_and_script(site):
    _, folder, pages = site
    lists = {f"numbers/{path.name}": path.read_text("utf-8") for path in (folder / "numbers").glob("*.html")}
    for name, text in {**pages, **lists}.items():
        asked = [address for address in outline(text).fetched if not address.startswith("data:")]
        assert [(folder / name).parent.joinpath(address).resolve() for address in asked] == [
            (folder / shared).resolve() for shared in SHARED
        ]
        assert "<style" not in text
    assert all((folder / shared).stat().st_size > 5_000 for shared in SHARED)


def test_every_table_has_a_file_with_the_numbers_of_its_cells(site):
    frame, folder, pages = site
    tables = Results(frame, made_up.meta(frame)).tables
    names = [file_of(table) for table in tables]
    assert len(set(names)) == len(names) > 3
    written = {f"tables/{path.name}" for path in (folder / "tables").glob("*.csv")}
    assert written == set(names)
    assert all(sum(f'href="{name}"' in text for text in pages.values()) == 1 for name in names)
    has_paper = False
    for table, name in zip(tables, names, strict=True):
        data = pd.read_csv(folder / name, dtype={"component": str}, float_precision="round_trip")
        cells = [(row, cell) for row in table.rows for cell in row.cells if cell]
        assert len(data) == len(cells)
        assert list(data["value"]) == [cell.mean for _, cell in cells]
        assert list(data["noise_level"]) == [row.sigma for row, _ in cells]
        assert list(data["spec"]) == [cell.rule for _, cell in cells]
        assert list(data["count"]) == [cell.count for _, cell in cells]
        expected = [cell.printed.mean if cell.printed else math.nan for _, cell in cells]
        assert list(data["paper"].fillna(-1)) == [-1 if math.isnan(value) else value for value in expected]
        has_paper |= data["paper"].notna().any()
        of_best = {
            (row.sigma, row.component): {c.rule for c in row.cells if c and c.best} for row in table.rows
        }
        keys = zip(data["noise_level"], data["component"].fillna(""), data["spec"], strict=True)
        tied = [rule in of_best[sigma, component] for sigma, component, rule in keys]
        is_ranked = data["tied_with_best"].notna()
        assert [bool(value) for value in data["tied_with_best"][is_ranked]] == list(
            pd.Series(tied)[is_ranked]
        )
    assert has_paper


def test_lists_lead_back_to_the_page_of_their_numbers(site):
    _, folder, pages = site
    backs = {
        target
        for path in (folder / "numbers").glob("*.html")
        for target in outline(path.read_text(encoding="utf-8")).targets
        if target.startswith("../") and "#" in target
    }
    assert "../suite-iris-tv.html#iris-tv" in backs
    for target in backs:
        file, _, anchor = target.removeprefix("../").partition("#")
        assert anchor in outline(pages[file]).ids


def test_pages_of_an_older_report_go_and_files_of_others_stay(tmp_path):
    frame = made_up.frame(depths=(1,), nets=1, inputs=1, experiments=("iris-tv", "iris-w1"))
    build(Results(frame, made_up.meta(frame)), tmp_path, made_up.PLAIN)
    assert (tmp_path / "suite-iris-w1.html").exists()
    (tmp_path / "mine.html").write_text("<title>mine</title>")
    frame = frame[frame["experiment"] == "iris-tv"]
    build(Results(frame, made_up.meta(frame)), tmp_path, made_up.PLAIN)
    assert not (tmp_path / "suite-iris-w1.html").exists()
    assert (tmp_path / "suite-iris-tv.html").exists()
    assert (tmp_path / "mine.html").read_text() == "<title>mine</title>"


def test_committed_pages_without_a_link_to_them_go_but_no_other_file(tmp_path):
    frame = made_up.frame(depths=(1,), nets=1, inputs=1, rules=made_up.FEW, experiments=("iris-w1",))
    committed = build(made_up.results(frame), tmp_path / "html" / "committed", made_up.PLAIN).parent
    (committed / "mine.html").write_text("mine")
    build(made_up.results(frame), tmp_path / "html", made_up.PLAIN)
    assert [path.name for path in committed.rglob("*")] == ["mine.html"]


def test_one_page_needs_no_other_file(quick):
    _, text, folder = quick
    assert {path.name for path in folder.iterdir()} == {"index.html", MARKER}
    page = outline(text)
    assert all(target.startswith("#") for target in page.targets)
    known = {target[1:] for target in page.targets}
    assert {"fidelity", "figures", "iris-tv", "iris-w1", "iris-std", "paper", "failures", "settings"} <= known
    assert known <= set(page.ids)
    assert set(page.fetched) == {"data:,"}
    assert not re.search(r"https?:", text)
    assert "@import" not in text
    assert text.count("<script") == text.count("<script>") == 1  # its own, of the package
    assert not re.search(r"url\((?!#)", text)


@pytest.mark.rounding
def test_cells_hold_mean_spread_and_paper(quick):
    frame, text, _ = quick
    here = frame[(frame["metric"] == "tv_paper") & (frame["depth"] == 4) & (frame["sigma"] == 1000)]
    overlap = 1 - here[here["rule"] == "dvia"]["value"]
    spread = rf'title="± {overlap.std():.4f} \(standard deviation over [^"]*paper 0\.5318'
    assert re.search(rf'{spread}[^"]*">(<\w+>)?{overlap.mean():.4f}', text)
    assert '<td class="paper">0.5318</td>' in text
    w1 = frame[(frame.metric == "w1") & (frame.depth == 4) & (frame.sigma == 1) & (frame.rule == "dvia")]
    assert re.search(rf'corrected for the floor; paper 6\.4090[^"]*">(<\w+>)?{w1["value"].mean():#.3g}', text)


def test_failures_weak_nets_and_indefinite_covariances_are_reported(quick):
    text = quick[1]
    said = plain_text(text)
    assert "ValueError: <covariance> is not finite & cannot be sampled" in said
    assert "1 failure, listed below" in said
    assert "1 net with a training accuracy below 0.9: 4 ReLU layers, seed 1 (0.870)" in said
    assert "DVIA gave an indefinite covariance in 12 of 20 predictions (σ = 10, 100, 1000;" in said
    assert said.count("indefinite covariance") == 1


def test_empty_frame_says_how_to_run(tmp_path):
    frame = made_up.frame(depths=(1,), nets=1, inputs=1).iloc[:0]
    text = built(tmp_path, frame)
    assert "There are no measurements yet" in plain_text(text)
    assert "make report" in text
    outline(text)
    build(Results(frame), tmp_path, made_up.SECTIONS)
    assert (tmp_path / "results.csv").read_text().startswith("experiment,network,")


def test_missing_rules_and_floors(tmp_path):
    frame = made_up.frame(depths=(1, 2), nets=1, rules=made_up.FEW, experiments=("iris-tv", "iris-w1"))
    frame = frame[~((frame["rule"] == "sdp") & (frame["sigma"] == 1))]
    text = built(tmp_path, frame.assign(floor=None, floor95=None, stderr=None), sections=made_up.PLAIN)
    assert 'title="not measured"' in text
    assert 'class="exact"' not in text
    assert "nan" not in plain_text(text).lower()


def test_names_and_errors_are_escaped(tmp_path):
    rule = "<script>alert(1)</script>&rule"
    frame = made_up.frame(depths=(1,), nets=1, rules=("sdp", rule), experiments=("iris-tv",))
    failures = made_up.FAILURES.assign(error="<img src=x onerror=alert(1)>", rule=rule)
    meta = made_up.meta(frame) | {"command": "sdp-bench --rules '<b>'", "options": {"<i>": "</dl>"}}
    text = built(tmp_path, frame, failures, meta)
    assert "<script>alert" not in text
    assert "<img" not in text
    assert rule in plain_text(text)
    assert "'<b>'" in plain_text(text)
    outline(text)


def test_old_page_stays_whole_when_writing_fails(tmp_path, monkeypatch):
    frame = made_up.frame(depths=(1,), nets=1, inputs=1, experiments=("iris-w1",))
    build(Results(frame, made_up.meta(frame)), tmp_path, made_up.PLAIN)
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}

    def full(self, target):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "replace", full)
    with pytest.raises(RunFailedError, match=r"cannot write .*: No space left"):
        build(Results(frame.assign(value=1.0)), tmp_path, made_up.PLAIN)
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before


@pytest.mark.slow
def test_a_run_is_compared_with_the_committed_results_and_leads_to_their_report(tmp_path):
    frame = made_up.frame(depths=(1,), rules=made_up.FEW, experiments=("iris-tv",))
    committed = made_up.results(frame.assign(value=frame["value"].where(frame["rule"] != "sdp", 0.5)))
    text = build(made_up.results(frame, committed=committed), tmp_path, made_up.SECTIONS).read_text("utf-8")
    assert "committed/index.html" in outline(text).targets
    assert "differ by more than rounding" in plain_text(text)
    assert "here" in outline(text).ids


@pytest.mark.slow
def test_published_results_have_exact_content_and_linked_lists(tmp_path):
    other = made_up.frame(depths=(2,), rules=made_up.FEW, experiments=("iris-tv",), seed=1)
    build(made_up.results(other, title=COMMITTED_TITLE, published=True), tmp_path, made_up.SECTIONS)
    parsed = [outline(path.read_text(encoding="utf-8")) for path in tmp_path.glob("*.html")]
    assert {"fidelity", "relu", "settings"} <= {anchor for page in parsed for anchor in page.ids}
    targets = {target.partition("#")[0] for page in parsed for target in page.targets}
    linked = {target for target in targets if target.startswith("numbers/")}
    assert linked == {f"numbers/{each.name}" for each in (tmp_path / "numbers").glob("*.html")}


def test_many_measurements_are_a_parquet_table_in_place_of_csv(tmp_path, monkeypatch):
    frame = made_up.frame(depths=(1,), nets=1, inputs=1, rules=made_up.FEW, experiments=("iris-w1",))
    build(made_up.results(frame), tmp_path, made_up.PLAIN)
    monkeypatch.setattr("sdp_bench.reports.page.MOST_MEASUREMENTS", 3)
    text = build(made_up.results(frame), tmp_path, made_up.PLAIN).read_text(encoding="utf-8")
    assert "results.parquet" in outline(text).targets
    assert not (tmp_path / "results.csv").exists()
    assert len(pd.read_parquet(tmp_path / "results.parquet")) == len(frame)


def intervals(values):
    frame = intervals_frame(values)
    return frame.reindex(columns=[*COLUMNS, "dataset", "recipe"])


ONE = {"depths": (1,), "rules": ("sdp",), "experiments": ("iris-tv",)}


@pytest.mark.parametrize(
    "frame",
    [
        made_up.frame(**ONE),
        made_up.frame(**ONE | {"nets": 1, "inputs": 1, "rules": ("mine:a=1", "theirs")}),
        intervals([("yacht", "sdp", "qualified", {0: 3}), ("yacht", "sdp", "mpiw", {0: 0.1})]),
        pd.DataFrame(),
    ],
    ids=["one rule", "rules from outside alone", "no oracle", "failures alone"],
)
def test_no_page_of_an_odd_run_is_an_empty_shell(tmp_path, frame):
    build(made_up.results(frame, failures=made_up.FAILURES), tmp_path, made_up.SECTIONS)
    for path in tmp_path.glob("*.html"):
        text = path.read_text(encoding="utf-8")
        outline(text)
        assert len(plain_text(re.search("<main>.*</main>", text, re.DOTALL)[0])) > 100, path.name


def test_an_experiment_of_many_cells_has_a_page_for_each_kind_of_net(tmp_path, monkeypatch):
    monkeypatch.setattr("sdp_bench.reports.sections.tables.MOST_CELLS", 10)
    frame = made_up.frame(depths=(1, 2), nets=1, inputs=1, experiments=("iris-tv",))
    build(Results(frame, made_up.meta(frame)), tmp_path, made_up.PLAIN)
    pages = {path.name: path.read_text(encoding="utf-8") for path in tmp_path.glob("suite-*.html")}
    assert set(pages) == {"suite-iris-tv-relu-1-4-100-3.html", "suite-iris-tv-relu-2-4-100-100-3.html"}
    assert sum('id="iris-tv"' in text for text in pages.values()) == 1


def test_a_folder_that_is_a_file_is_refused(tmp_path):
    (tmp_path / "html").write_text("mine")
    with pytest.raises(RunFailedError, match="cannot write"):
        build(Results(pd.DataFrame()), tmp_path / "html")
    assert (tmp_path / "html").read_text() == "mine"


def test_the_same_results_give_the_same_page(tmp_path):
    frame = made_up.frame(depths=(1,), nets=1, rules=made_up.FEW, experiments=("iris-tv",))
    assert built(tmp_path / "a", frame) == built(tmp_path / "b", frame)


@pytest.mark.parametrize("name", SHARED)
def test_foreign_style_and_script_files_are_not_overwritten(tmp_path, name):
    (tmp_path / name).write_text("mine")
    frame = made_up.frame(depths=(1,), nets=1, inputs=1, experiments=("iris-w1",))
    with pytest.raises(UserError, match=f"{name} was not written by sdp-bench"):
        build(Results(frame), tmp_path, made_up.PLAIN)
    assert (tmp_path / name).read_text() == "mine"


def test_a_single_measurement_has_no_spread(tmp_path):
    frame = made_up.frame(depths=(2,), nets=1, inputs=1, rules=made_up.FEW, experiments=("iris-tv",))
    text = plain_text(built(tmp_path, frame))
    assert "1 net × 1 input" in text
    assert "nan" not in text.lower()
    assert "± –" not in text
