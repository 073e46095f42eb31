"""Files of others where pages and caches go are neither overwritten nor removed."""

import functools
from pathlib import Path

import pytest
from click.testing import CliRunner

from sdp_bench.bench.errors import UserError
from sdp_bench.bench.nets import storage
from sdp_bench.commands.nets import cache
from sdp_bench.commands.report import report as report_command
from sdp_bench.commands.validate import validate
from sdp_bench.reports.committed import keep
from sdp_bench.reports.page import build as build_report
from sdp_bench.reports.scorecard import page as scorecards
from sdp_bench.reports.scorecard.judging import Candidate
from sdp_bench.reports.scorecard.page import Scorecard
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


@functools.cache
def card():
    return Scorecard.of(made_up.results(FRAME), [Candidate("sdp")])


@functools.cache
def text():
    return scorecards.page(card())


def scorecard(folder):
    drawn = text()  # once: what is written is the question here
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(scorecards, "page", lambda _: drawn)
        return scorecards.build(card(), folder)


def report(folder):
    return build_report(made_up.results(FRAME), folder, ())


@pytest.mark.parametrize("build", [scorecard, report])
def test_a_page_overwrites_and_removes_nothing_of_others(build, tmp_path, attack):
    with attack(f"files of others where a {build.__name__} goes") as tries:
        for number, name in enumerate(FOREIGN):
            folder = tmp_path / str(number)
            folder.mkdir()
            (folder / name).write_text(FOREIGN[name])
            try:
                build(folder)
                refused = False
            except UserError as error:
                refused = "\n" not in str(error) and str(folder / name) in str(error)
            overlaps = name in PAGES[:2]
            tries.tried(name, held=(folder / name).read_text() == FOREIGN[name] and refused == overlaps)


def test_a_page_is_made_again_in_its_own_folder_beside_files_of_others(tmp_path):
    for build in (scorecard, report, scorecard):
        page = build(tmp_path)
        (tmp_path / "notes").write_text("of somebody else")
        first = page.read_bytes()
        assert build(tmp_path).read_bytes() == first
    assert (tmp_path / "notes").read_text() == "of somebody else"


def test_the_commands_refuse_a_foreign_folder_before_their_work(tmp_path, monkeypatch, attack):
    monkeypatch.chdir(tmp_path)
    words = {
        "validate": (validate, ["sdp", "--output"]),
        "report": (report_command, ["--no-committed", "--output"]),
    }
    with attack("commands with a folder of others as --output") as tries:
        for kind, (command, arguments) in words.items():
            for name in PAGES[:2]:
                for place in (".", "folder", "link"):
                    folder = tmp_path / f"{kind} {name} {place}"
                    (folder / "folder").mkdir(parents=True)
                    monkeypatch.chdir(folder)
                    Path("link").symlink_to("folder")
                    (Path(place) / name).write_text(FOREIGN[name])
                    before = files_of(folder)
                    done = CliRunner().invoke(command, [*arguments, place])
                    held = isinstance(done.exception, UserError) and name in str(done.exception)
                    tries.tried(f"{kind} {place}/{name}", held=held and files_of(folder) == before)
            (tmp_path / f"{kind} file").write_text("of somebody else")
            done = CliRunner().invoke(command, [*arguments, str(tmp_path / f"{kind} file")])
            tries.tried(f"{kind} into a file", held=done.exit_code == 2)


def test_the_cache_is_cleared_of_ours_alone(tmp_path, monkeypatch, attack):
    monkeypatch.setenv("SDP_BENCH_CACHE", str(tmp_path))
    names = (
        "iris-relu-1x8-0123abcd-seed0",
        "classifier-softmax-0123456789ab-seed1",
        "selective-softmax-0123456789ab-seed1",
        "intervals-x-y-0123456789ab",
    )
    ends = (
        ".safetensors",
        ".checkpoint",
        ".checkpoint.before",
        ".safetensors.damaged",
        ".checkpoint.2.damaged",
    )
    for name in names:
        for end in ends:
            storage.write(tmp_path / "nets" / f"{name}{end}", storage.to_file({}, {"x": 1}))
    ours = len(names) * len(ends)
    page = tmp_path / "pages" / "0123456789abcdef.zip"
    page.parent.mkdir()
    page.write_bytes(keep(made_up.results(FRAME), made_up.SECTIONS).packed())
    foreign = {
        "nets/model.safetensors": b"of somebody else",
        "nets/my-net-0123abcd-seed1.safetensors": b"of somebody else",
        "nets/x.damaged": b"of somebody else",
        "pages/home/index.html": FOREIGN["index.html"].encode(),
        "pages/weights.zip": b"PK\x03\x04 of somebody else",
        "index.html": b"of somebody else",
        "outside/index.html": b'<meta name="sdp-bench-numbers" content="x">',
    }
    for name, content in foreign.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(content)
    (tmp_path / "nets" / "iris-relu-1x8-0123abcd-seed9.safetensors").symlink_to(tmp_path / "index.html")
    linked = f"pages/{'a' * 16}.zip"
    (tmp_path / linked).symlink_to(tmp_path / "index.html")
    done = CliRunner().invoke(cache, ["clear"])
    assert done.exit_code == 0, done.output
    left = files_of(tmp_path)
    with attack("files of others in the cache") as tries:
        for name, content in foreign.items():
            tries.tried(name, held=left.get(Path(name)) == content)
    links = {"nets/iris-relu-1x8-0123abcd-seed9.safetensors", linked}
    assert {str(path) for path in left} == set(foreign) | links
    assert f"removed {ours} net files" in done.output
