"""Files of others where pages and caches go are neither overwritten nor removed."""

from pathlib import Path

import pytest

from sdp_bench.bench.errors import UserError
from sdp_bench.bench.nets import storage
from sdp_bench.reports.page import build
from tests.attacks.calls import called
from tests.reports import made_up

FRAME = made_up.frame(depths=(1,), rules=made_up.FEW, experiments=("iris-tv",))
HOME = "<!doctype html>\n<html><head><title>My home page</title></head></html>\n"


def files_of(folder):
    """Contents of all files in a folder; targets of links."""
    return {
        path.relative_to(folder): path.readlink() if path.is_symlink() else path.read_bytes()
        for path in folder.rglob("*")
        if path.is_symlink() or path.is_file()
    }


@pytest.mark.parametrize("name", ["index.html", "results.csv", "conformance.json", "page.html"])
def test_a_page_overwrites_and_removes_nothing_of_others(name, tmp_path):
    (tmp_path / name).write_text(HOME)
    if name in ("index.html", "results.csv"):
        with pytest.raises(UserError, match=rf"^[^\n]*{tmp_path / name}[^\n]*$"):
            build(made_up.results(FRAME), tmp_path, ())
    else:
        build(made_up.results(FRAME), tmp_path, ())
    assert (tmp_path / name).read_text() == HOME


@pytest.mark.parametrize("place", [".", "link", "folder/index.html"])
@pytest.mark.parametrize("words", [["validate", "sdp", "--output"], ["report", "--no-committed", "--output"]])
def test_the_commands_refuse_a_foreign_folder_before_their_work(tmp_path, monkeypatch, words, place):
    monkeypatch.chdir(tmp_path)
    Path("folder").mkdir()
    Path("link").symlink_to("folder")
    for folder in (".", "folder"):
        Path(folder, "index.html").write_text(HOME)
    before = files_of(tmp_path)
    ended = called([*words, place])
    assert (ended.code, "index.html" in ended.err) == (2, True)
    assert files_of(tmp_path) == before


def test_the_cache_is_cleared_of_our_files_only(tmp_path, monkeypatch):
    monkeypatch.setenv("SDP_BENCH_CACHE", str(tmp_path))
    names = ("iris-relu-1x8-0123abcd-seed0", "selective-softmax-0123456789ab-seed1")
    ends = (".safetensors", ".checkpoint.before", ".checkpoint.2.damaged")
    ours = {Path("nets", name + end) for name in names for end in ends} | {Path("pages/0123456789abcdef.zip")}
    for path in ours:
        storage.write(tmp_path / path, storage.to_file({}, {"x": 1}))
    for name in ("nets/model.safetensors", "pages/home/index.html", "pages/weights.zip", "index.html"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(b"PK\x03\x04 of somebody else")
    (tmp_path / "nets/iris-relu-1x8-0123abcd-seed9.safetensors").symlink_to(tmp_path / "index.html")
    foreign = {path: content for path, content in files_of(tmp_path).items() if path not in ours}
    ended = called(["cache", "clear"])
    assert ended.code == 0, ended.said
    assert files_of(tmp_path) == foreign
    assert f"removed {len(ours) - 1} net files" in ended.out
