import shutil
import zipfile

import pytest

from sdp_bench.bench.errors import RunFailedError
from sdp_bench.reports import committed as kept
from sdp_bench.reports import results
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
    monkeypatch.setattr(kept, "every_section", lambda: made_up.PLAIN)
    monkeypatch.setenv("SDP_BENCH_CACHE", str(tmp_path / "cache"))
    return times


def cached(tmp_path):
    return sorted((tmp_path / "cache" / "pages").iterdir())


def test_the_page_is_made_once_and_said_to_be(made, tmp_path):
    said = []
    first, second = kept.committed(said.append), kept.committed(said.append)
    assert len(made) == len(said) == len(cached(tmp_path)) == 1
    assert "about a minute" in said[0]
    assert first.packed() == second.packed()
    assert len(second.frame) == len(made_up.frame(depths=(1,), rules=made_up.FEW, suites=("iris-tv",)))


def test_other_code_or_results_make_another_page_and_the_newest_are_kept(made, monkeypatch, tmp_path):
    for version in "0123456":
        monkeypatch.setattr(kept, "digest", lambda version=version: version * 16)
        kept.committed(lambda _: None)
    assert len(made) == 7
    assert [path.name for path in cached(tmp_path)] == [f"{version * 16}.zip" for version in "456"]


@pytest.mark.parametrize("damage", ["gone", "cut short", "a bit", "another zip file"])
def test_a_page_that_is_damaged_is_made_again(damage, made, tmp_path):
    page = kept.committed(lambda _: None)
    (path,) = cached(tmp_path)
    content = bytearray(path.read_bytes())
    path.unlink()
    if damage == "cut short":
        path.write_bytes(content[:-100])
    if damage == "a bit":
        content[len(content) // 2] ^= 1
        path.write_bytes(content)
    if damage == "another zip file":
        with zipfile.ZipFile(path, "w") as file:
            file.writestr("page.json", "[]")
    again = kept.committed(lambda _: None)
    assert again.packed() == page.packed()
    assert len(made) == 2
    assert again.show(tmp_path / "shown").is_file()
    assert cached(tmp_path) == [path]


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
    copy = shutil.copytree(results.BASELINES, tmp_path / "baselines")
    monkeypatch.setattr(kept, "BASELINES", copy)
    assert kept.digest() == before
    (copy / "runtime.csv").write_text("")
    assert kept.digest() != before


@pytest.mark.parametrize("damage", ["missing", "no manifest", "a table cut short", "no times"])
def test_damaged_committed_results_are_one_line(damage, monkeypatch, tmp_path):
    folder = tmp_path / "baselines"
    if damage != "missing":
        shutil.copytree(results.BASELINES, folder)
    if damage == "no manifest":
        (folder / "manifest.json").unlink()
    if damage == "a table cut short":
        (folder / "records.parquet").write_bytes((folder / "records.parquet").read_bytes()[:1000])
    if damage == "no times":
        (folder / "runtime.csv").write_text("nonsense")
    monkeypatch.setattr(results, "BASELINES", folder)
    with pytest.raises(RunFailedError, match=r"come with the package are damaged: .*; reinstall") as error:
        results.committed_results()
    assert "\n" not in str(error.value)
    assert error.value.exit_code == 3
