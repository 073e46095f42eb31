"""Files of others where pages and caches go are neither overwritten nor removed."""

from pathlib import Path

import pytest
from click.testing import CliRunner

from sdp_bench.bench.errors import UserError
from sdp_bench.bench.nets import storage
from sdp_bench.commands.nets import cache
from sdp_bench.commands.report import report as report_command
from sdp_bench.commands.validate import validate
from sdp_bench.reports.page import build as build_report
from tests.reports import made_up

FRAME = made_up.frame(depths=(1,), rules=made_up.FEW, suites=("iris-tv",))


def files_of(folder):
    """Everything in a folder, links as what they say."""
    return {
        path.relative_to(folder): path.readlink() if path.is_symlink() else path.read_bytes()
        for path in folder.rglob("*")
        if path.is_symlink() or path.is_file()
    }


PAGES = ("index.html", "results.csv", "conformance.json")
FOREIGN = {
    "index.html": "<!doctype html>\n<html><head><title>My home page</title></head></html>\n",
    "results.csv": "date,amount\n2020-01-01,5\n",
    "conformance.json": '{"name": "somebody else"}\n',
    "page.html": "<html></html>",
    "notes": "of somebody else",
}


def report(folder):
    return build_report(made_up.results(FRAME), folder, ())


@pytest.mark.parametrize("name", FOREIGN)
def test_a_page_overwrites_and_removes_nothing_of_others(name, tmp_path):
    (tmp_path / name).write_text(FOREIGN[name])
    if name in PAGES[:2]:
        with pytest.raises(UserError) as told:
            report(tmp_path)
        assert "\n" not in str(told.value)
        assert str(tmp_path / name) in str(told.value)
    else:
        report(tmp_path)
    assert (tmp_path / name).read_text() == FOREIGN[name]


@pytest.mark.parametrize("place", [".", "folder", "link", "folder/index.html"])
@pytest.mark.parametrize(
    ("command", "words"),
    [(validate, ["sdp", "--output"]), (report_command, ["--no-committed", "--output"])],
    ids=["validate", "report"],
)
def test_the_commands_refuse_a_foreign_folder_before_their_work(tmp_path, monkeypatch, command, words, place):
    monkeypatch.chdir(tmp_path)
    Path("folder").mkdir()
    Path("link").symlink_to("folder")
    for folder in (".", "folder"):
        Path(folder, "index.html").write_text(FOREIGN["index.html"])
    before = files_of(tmp_path)
    done = CliRunner().invoke(command, [*words, place])
    assert getattr(done.exception, "exit_code", done.exit_code) == 2
    assert "index.html" in str(done.exception) + done.stderr
    assert files_of(tmp_path) == before


def test_the_cache_is_cleared_of_ours_alone(tmp_path, monkeypatch):
    monkeypatch.setenv("SDP_BENCH_CACHE", str(tmp_path))
    names = (
        "iris-relu-1x8-0123abcd-seed0",
        "classifier-softmax-0123456789ab-seed1",
        "selective-softmax-0123456789ab-seed1",
        "intervals-x-y-0123456789ab",
    )
    ends = (".safetensors", ".checkpoint.before", ".safetensors.damaged", ".checkpoint.2.damaged")
    ours = {Path("nets", name + end) for name in names for end in ends} | {Path("pages/0123456789abcdef.zip")}
    for path in ours:
        storage.write(tmp_path / path, storage.to_file({}, {"x": 1}))
    theirs = (
        *("nets/model.safetensors", "nets/x.damaged"),
        *("pages/home/index.html", "pages/weights.zip", "index.html", "outside/index.html"),
    )
    for name in theirs:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(b"PK\x03\x04 of somebody else")
    for link in ("nets/iris-relu-1x8-0123abcd-seed9.safetensors", f"pages/{'a' * 16}.zip"):
        (tmp_path / link).symlink_to(tmp_path / "index.html")
    foreign = {path: content for path, content in files_of(tmp_path).items() if path not in ours}
    done = CliRunner().invoke(cache, ["clear"])
    assert done.exit_code == 0, done.output
    assert files_of(tmp_path) == foreign
    assert f"removed {len(names) * len(ends)} net files" in done.output
