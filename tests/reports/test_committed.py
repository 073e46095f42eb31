import multiprocessing
import shutil
import zipfile
from pathlib import Path

import pytest

from sdp_bench.bench.errors import RunFailedError, UserError
from sdp_bench.reports import committed as kept
from sdp_bench.reports import results
from sdp_bench.reports.folder import MARKER
from sdp_bench.reports.page import build
from tests.reports import made_up


@pytest.fixture
def made(monkeypatch, tmp_path):
    """Small results in place of the committed ones; counts how often their report is made."""
    frame = made_up.frame(depths=(1,), rules=made_up.FEW, experiments=("iris-tv",))
    times = []

    def committed_results():
        times.append(1)
        return made_up.results(frame, title="Committed results")

    monkeypatch.setattr(kept, "committed_results", committed_results)
    monkeypatch.setattr(kept, "build", lambda *args: build(*args, made_up.PLAIN))
    monkeypatch.setenv("SDP_BENCH_CACHE", str(tmp_path / "cache"))
    return times


def cached(tmp_path):
    return sorted((tmp_path / "cache" / "pages").iterdir())


def content(folder):
    return {path.relative_to(folder): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_the_report_is_made_once_after_a_notice(made, tmp_path):
    said = []
    for name in ("one", "other"):
        assert kept.write_committed(tmp_path / name, said.append) == tmp_path / name / "index.html"
    assert len(made) == len(said) == len(cached(tmp_path)) == 1
    assert "about a minute" in said[0]
    assert content(tmp_path / "one") == content(tmp_path / "other")
    assert {Path("suite-iris-tv.html"), Path("results.csv")} < content(tmp_path / "one").keys()


def test_files_of_an_older_report_go_and_files_of_others_stay(made, tmp_path):
    folder = tmp_path / "report"
    frame = made_up.frame(depths=(1,), nets=1, inputs=1, rules=made_up.FEW, experiments=("iris-w1",))
    build(made_up.results(frame), folder, made_up.PLAIN)
    (folder / "mine.html").write_text("mine")
    kept.write_committed(folder, lambda _: None)
    assert not (folder / "suite-iris-w1.html").exists()
    assert (folder / "mine.html").read_text() == "mine"


def test_a_page_that_cannot_be_made_leaves_nothing_behind(made, monkeypatch, tmp_path):
    monkeypatch.setattr(kept, "build", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        kept.write_committed(tmp_path / "report", lambda _: None)
    assert cached(tmp_path) == []
    assert not (tmp_path / "report").exists()


def test_other_code_or_results_make_another_report_and_the_newest_are_kept(made, monkeypatch, tmp_path):
    for version in "0123456":
        monkeypatch.setattr(kept, "digest", lambda version=version: version * 16)
        kept.write_committed(tmp_path / "report", lambda _: None)
    assert len(made) == 7
    assert [path.name for path in cached(tmp_path)] == [f"{version * 16}.zip" for version in "456"]


def test_a_foreign_file_or_a_link_leaves_the_older_report_as_it_was(made, tmp_path):
    folder = tmp_path / "report"
    kept.write_committed(folder, lambda _: None)
    before = content(folder)
    (folder / MARKER).write_text("index.html\n")  # all other files are foreign
    with pytest.raises(UserError, match="was not written by sdp-bench"):
        kept.write_committed(folder, lambda _: None)
    assert content(folder).items() - before.items() == {(Path(MARKER), b"index.html\n")}
    (tmp_path / "linked").mkdir()
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "linked" / "numbers").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(UserError, match="is a link"):
        kept.write_committed(tmp_path / "linked", lambda _: None)
    assert not list((tmp_path / "elsewhere").iterdir())


def test_processes_that_write_one_folder_at_once_do_not_block_the_next(made, tmp_path):
    kept.write_committed(tmp_path, lambda _: None)  # to the cache
    context = multiprocessing.get_context("fork")
    for _ in range(3):
        writers = [
            context.Process(target=kept.write_committed, args=(tmp_path / "report", lambda _: None))
            for _ in range(3)
        ]
        for writer in writers:
            writer.start()
        for writer in writers:
            writer.join()
        assert [writer.exitcode for writer in writers] == [0, 0, 0]
        shutil.rmtree(tmp_path / "report")


@pytest.mark.parametrize("damage", ["gone", "cut short", "a bit", "another zip file"])
def test_a_damaged_report_is_made_again(damage, made, tmp_path):
    kept.write_committed(tmp_path / "one", lambda _: None)
    (path,) = cached(tmp_path)
    damaged = bytearray(path.read_bytes())
    path.unlink()
    if damage == "cut short":
        path.write_bytes(damaged[:-100])
    if damage == "a bit":
        damaged[len(damaged) // 2] ^= 1
        path.write_bytes(damaged)
    if damage == "another zip file":
        with zipfile.ZipFile(path, "w") as file:
            file.writestr("page.json", "[]")
    kept.write_committed(tmp_path / "other", lambda _: None)
    assert content(tmp_path / "one") == content(tmp_path / "other")
    assert len(made) == 2
    assert cached(tmp_path) == [path]


def test_a_cache_that_cannot_be_written_is_an_error_before_the_work(made, monkeypatch, tmp_path):
    (tmp_path / "file").touch()
    monkeypatch.setenv("SDP_BENCH_CACHE", str(tmp_path / "file"))
    said = []
    with pytest.raises(RunFailedError, match=r"cannot write .*; set SDP_BENCH_CACHE to another folder"):
        kept.write_committed(tmp_path / "report", said.append)
    assert said == made == []


def test_the_digest_is_the_same_again_and_another_for_other_tables(monkeypatch, tmp_path):
    before = kept.digest()
    assert before == kept.digest()
    copy = shutil.copytree(results.BASELINES, tmp_path / "baselines")
    monkeypatch.setattr(kept, "BASELINES", copy)
    assert kept.digest() == before
    (copy / "runtime.csv").write_text("")
    assert kept.digest() != before


def test_the_digest_is_another_for_other_files_of_the_package(monkeypatch, tmp_path):
    monkeypatch.setattr(kept.reports, "__file__", str(tmp_path / "__init__.py"))
    digests = {kept.digest()}
    for name in ("rules.py", "template.html", "page.css", "table.csv", "statements.toml"):
        (tmp_path / name).write_text("new")
        digests.add(kept.digest())
    assert len(digests) == 6


@pytest.mark.parametrize("damage", ["missing", "measurements", "a plan", "a run", "times"])
def test_damaged_committed_results_are_one_line(damage, monkeypatch, tmp_path):
    folder = tmp_path / "baselines"
    if damage != "missing":
        shutil.copytree(results.BASELINES, folder)
    pattern = {"measurements": "measured/*", "a plan": "runs/*/plan.parquet", "a run": "runs/*/run.json"}
    if damage in pattern:
        path = next((folder / "results").glob(pattern[damage]))
        path.write_bytes(path.read_bytes()[:1000])
    if damage == "times":
        (folder / "runtime.csv").write_text("nonsense")
    monkeypatch.setattr(results, "BASELINES", folder)
    monkeypatch.setattr(results, "COMMITTED", folder / "results")
    with pytest.raises(RunFailedError, match=r"come with the package are damaged: .*; reinstall") as error:
        results.committed_results()
    assert "\n" not in str(error.value)
    assert error.value.exit_code == 3
