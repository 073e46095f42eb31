"""The page of the committed results: made once for a version, and told in one line where it cannot be."""

import pytest

from sdp_bench.bench.errors import RunFailedError
from sdp_bench.reports import kept, results
from tests.reports import made_up


@pytest.fixture
def made(monkeypatch, tmp_path):
    """Stands for the committed results something small; counts how often a page is made of them."""
    frame = made_up.frame(depths=(1,), rules=made_up.FEW, suites=("iris-tv",))
    times = []

    def committed_results():
        times.append(1)
        return made_up.results(frame, title="Committed results")

    monkeypatch.setattr(kept, "committed_results", committed_results)
    monkeypatch.setenv("SDP_BENCH_CACHE", str(tmp_path / "cache"))
    return times


def test_the_page_is_made_once_and_said_to_be(made, tmp_path):
    said = []
    first, second = kept.committed(said.append), kept.committed(said.append)
    assert first.folder == second.folder
    assert first.folder.parent == tmp_path / "cache" / "pages"
    assert len(made) == len(said) == 1
    assert "about a minute" in said[0]
    assert len(second.frame) == len(made_up.frame(depths=(1,), rules=made_up.FEW, suites=("iris-tv",)))


@pytest.mark.slow
def test_other_code_or_results_make_another_page_and_the_newest_are_kept(made, monkeypatch):
    folders = []
    for version in "0123456":
        monkeypatch.setattr(kept, "digest", lambda version=version: version * 16)
        folders.append(kept.committed(lambda _: None).folder)
    assert len(made) == 7
    assert [folder.is_dir() for folder in folders] == [False] * (7 - kept.MOST) + [True] * kept.MOST


@pytest.mark.parametrize("damage", ["a part is gone", "a list is gone", "cut short", "nothing is left"])
def test_a_page_that_lost_something_is_made_again(damage, made, tmp_path):
    folder = kept.committed(lambda _: None).folder
    before = {path.relative_to(folder): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    lists = sorted((folder / "numbers").iterdir())
    gone = {"a part is gone": [folder / "parts.json"], "a list is gone": lists[:1], "nothing is left": before}
    for path in gone.get(damage, ()):
        (folder / path).unlink()
    if damage == "cut short":
        lists[0].write_bytes(lists[0].read_bytes()[:100])
    again = kept.committed(lambda _: None)
    assert {path: (again.folder / path).read_bytes() for path in before} == before
    assert len(made) == 2
    assert again.show(tmp_path / "shown").is_file()
    assert [path.name for path in folder.parent.iterdir()] == [folder.name]


def test_whoever_may_read_the_cache_may_read_the_page(made):
    folder = kept.committed(lambda _: None).folder
    plain = folder.parent / "plain"
    plain.mkdir()
    assert folder.stat().st_mode == plain.stat().st_mode


def test_a_cache_that_cannot_be_written_is_told_before_the_work(made, monkeypatch, tmp_path):
    (tmp_path / "file").touch()
    monkeypatch.setenv("SDP_BENCH_CACHE", str(tmp_path / "file"))
    said = []
    with pytest.raises(RunFailedError, match=r"cannot write .*; set SDP_BENCH_CACHE to another folder"):
        kept.committed(said.append)
    assert said == made == []


def test_the_digest_is_the_same_again_and_another_for_other_tables(monkeypatch, tmp_path):
    before = kept.digest()
    assert before == kept.digest()
    copy = tmp_path / "baselines"
    copy.mkdir()
    for path in results.BASELINES.iterdir():
        (copy / path.name).write_bytes(path.read_bytes())
    monkeypatch.setattr(kept, "BASELINES", copy)
    assert kept.digest() == before
    (copy / "runtime.csv").write_text("")
    assert kept.digest() != before


def test_a_page_that_cannot_be_made_leaves_nothing_behind(made, monkeypatch, tmp_path):
    monkeypatch.setattr(kept, "keep", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        kept.committed(lambda _: None)
    assert list((tmp_path / "cache" / "pages").iterdir()) == []


@pytest.mark.parametrize("damage", ["missing", "no manifest", "a table cut short", "no times"])
def test_damaged_committed_results_are_one_line(damage, monkeypatch, tmp_path):
    folder = tmp_path / "baselines"
    if damage != "missing":
        folder.mkdir()
        for path in results.BASELINES.iterdir():
            (folder / path.name).write_bytes(path.read_bytes())
    if damage == "no manifest":
        (folder / "manifest.json").unlink()
    if damage == "a table cut short":
        (folder / "records.columns.xz").write_bytes((folder / "records.columns.xz").read_bytes()[:1000])
    if damage == "no times":
        (folder / "runtime.csv").write_text("nonsense")
    monkeypatch.setattr(results, "BASELINES", folder)
    with pytest.raises(RunFailedError, match=r"come with the package are damaged: .*; reinstall") as error:
        results.committed_results()
    assert "\n" not in str(error.value)
    assert error.value.exit_code == 3


@pytest.mark.parametrize("name", ["rules.py", "template.html", "page.css", "table.csv", "statements.toml"])
def test_the_digest_is_another_for_other_files_of_the_package(name, monkeypatch, tmp_path):
    monkeypatch.setattr(kept.reports, "__file__", str(tmp_path / "__init__.py"))
    (tmp_path / name).write_text("before")
    before = kept.digest()
    (tmp_path / name).write_text("after")
    assert kept.digest() != before
