"""Files that are taken away, replaced, locked or in the way: it is told, and nothing of others is touched."""

import functools
import itertools
import os
import random
import shutil
import sqlite3
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from click.testing import CliRunner

from sdp_bench.bench.errors import RunFailedError, UserError
from sdp_bench.bench.nets import storage
from sdp_bench.bench.results import checksums
from sdp_bench.bench.results.store import Store
from sdp_bench.commands.nets import cache
from sdp_bench.commands.report import report as report_command
from sdp_bench.commands.validate import validate
from sdp_bench.reports.page import build as build_report
from sdp_bench.reports.page import keep
from sdp_bench.reports.scorecard import page as scorecards
from sdp_bench.reports.scorecard.candidate import Candidate
from sdp_bench.reports.scorecard.page import Scorecard
from tests.attacks.test_kills import RUN
from tests.bench.conftest import TINY, begin, make_plan
from tests.bench.results.test_store import place, record
from tests.reports import made_up

FRAME = made_up.frame(depths=(1,), rules=made_up.FEW, suites=("iris-tv",))


@pytest.fixture(scope="module")
def plan():
    return make_plan(TINY)


def command(*words, cwd, **environment):
    """Run the command in a folder; its exit code and what it said on standard error."""
    done = subprocess.run(
        [sys.executable, "-m", "sdp_bench", *map(str, words)],
        cwd=cwd,
        env=os.environ | {"PYTHONPATH": str(Path(__file__).parents[2])} | environment,
        capture_output=True,
        text=True,
        check=False,
    )
    return done.returncode, done.stderr


def deleted(path, _):
    path.unlink()


def renamed(path, _):
    path.rename(path.with_name("elsewhere"))


def moved_away_with_its_log(path, _):
    for each in [*path.parent.glob(f"{path.name}*")]:
        each.rename(path.parent / f"moved-{each.name}")


def replaced(path, other):
    shutil.copy(other, path.with_name("other"))
    path.with_name("other").replace(path)


def by_a_link(path, other):
    path.unlink()
    path.symlink_to(other)


def by_a_folder(path, _):
    path.unlink()
    path.mkdir()


def by_an_empty_one(path, _):
    path.unlink()
    path.touch()


def its_folder(path, _):
    shutil.rmtree(path.parent)


def its_folder_renamed(path, _):
    path.parent.rename(path.parent.with_name(f"renamed {path.parent.name}"))


def its_log(path, _):
    path.with_name(f"{path.name}-wal").unlink()


def its_log_replaced(path, _):
    log = path.with_name(f"{path.name}-wal")
    content = log.read_bytes()
    log.unlink()
    log.write_bytes(content)


def its_index(path, _):
    path.with_name(f"{path.name}-shm").unlink()


DEEDS = (
    *(deleted, renamed, moved_away_with_its_log, replaced, by_a_link, by_a_folder, by_an_empty_one),
    *(its_folder, its_folder_renamed, its_log, its_log_replaced, its_index),
)


def test_a_file_that_is_taken_away_is_told_at_the_next_group(tmp_path, plan, attack):
    unit = plan.members[0][1]
    other = tmp_path / "other.sqlite"
    with Store(other, writing=True) as store:
        begin(store, plan)
    with attack("results files taken away from their writer") as tries:
        for number, deed in enumerate(DEEDS * 3):
            path = tmp_path / str(number) / "results.sqlite"
            written = 0
            try:
                with Store(path, writing=True) as store:
                    run = begin(store, plan)
                    for group in range(4):
                        if group == number % 4:
                            deed(path, other)
                        store.write_group(run, [record(unit, float(group))], [], [place(unit)])
                        written = group + 1
            except RunFailedError as error:
                held = written == number % 4 and "\n" not in str(error) and path.name in str(error)
            else:
                held = False
            tries.tried(f"{deed.__name__} before group {number % 4}", held=held)
        for deed in DEEDS:  # after the last group
            path = tmp_path / f"last {deed.__name__}" / "results.sqlite"
            try:
                with Store(path, writing=True) as store:
                    store.finish_run(begin(store, plan), 1.0)
                    deed(path, other)
            except RunFailedError as error:
                held = "\n" not in str(error)
            else:
                held = False
            tries.tried(f"{deed.__name__} after the last group", held=held)
    with Store(other) as store:
        assert len(store.runs()) == 1


def test_a_file_that_is_taken_away_while_it_is_opened_is_told_at_once(tmp_path, plan, monkeypatch, attack):
    other = tmp_path / "other.sqlite"
    sqlite3.connect(other).execute("CREATE TABLE bookmarks (url TEXT)").connection.close()
    check = checksums.check
    with attack("results files taken away while they are opened") as tries:
        for deed, used in itertools.product(DEEDS, (False, True)):
            path = tmp_path / f"{deed.__name__} {used}" / "results.sqlite"
            if used:
                with Store(path, writing=True) as store:
                    begin(store, plan)

            def taken(*arguments, path=path, deed=deed):
                deed(path, other)
                monkeypatch.setattr(checksums, "check", check)
                return check(*arguments)

            monkeypatch.setattr(checksums, "check", taken)
            try:
                Store(path, writing=True).close()
            except RunFailedError as error:
                held = "was deleted, renamed or replaced" in str(error) and "\n" not in str(error)
            else:
                held = False
            tries.tried(f"{deed.__name__}, {'used' if used else 'new'}", held=held)
        with sqlite3.connect(other) as db:
            assert db.execute("SELECT name FROM sqlite_master").fetchall() == [("bookmarks",)]


@pytest.mark.parametrize("name", ["poetry", "results.sqlite", ".hidden", "with spaces"])
def test_no_file_of_others_is_opened_as_a_lock(tmp_path, plan, name):
    precious = tmp_path / "precious"
    for each in (precious, tmp_path / f"{name}.lock", tmp_path / f"{name}.lck"):
        each.write_text("of somebody else")
    with Store(tmp_path / name, writing=True) as store:
        begin(store, plan)
    assert {path.read_text() for path in (precious, tmp_path / f"{name}.lock")} == {"of somebody else"}
    (tmp_path / f"{name}.sdp-bench-lock").unlink()
    (tmp_path / f"{name}.sdp-bench-lock").symlink_to(precious)
    with pytest.raises(RunFailedError) as told:
        Store(tmp_path / name, writing=True)
    assert "\n" not in str(told.value)
    assert precious.read_text() == "of somebody else"


def links(path):
    """Other names of a file, and how each is made."""
    folder = path.parent
    (folder / "sub").mkdir(exist_ok=True)
    (folder / "link").symlink_to(path)
    (folder / "sub" / "relative").symlink_to(Path("..") / path.name)
    (folder / "chain").symlink_to(folder / "link")
    (folder / "folder").symlink_to(folder, target_is_directory=True)
    return [
        *(folder / "link", folder / "sub" / "relative", folder / "chain", folder / "folder" / path.name),
        folder / "sub" / ".." / path.name,
    ]


def test_every_name_of_a_file_meets_the_same_lock(tmp_path, plan, attack):
    path = tmp_path / "results.sqlite"
    with attack("second writers under other names") as tries:
        with Store(path, writing=True) as store:
            begin(store, plan)
            os.link(path, tmp_path / "hard")
            for other in (path, *links(path), tmp_path / "hard"):
                try:
                    Store(other, writing=True).close()
                except RunFailedError as error:
                    tries.tried(other.name, held="\n" not in str(error) and error.exit_code == 3)
                else:
                    tries.tried(other.name, held=False)
        (tmp_path / "hard").unlink()
        for other in (tmp_path / "link", tmp_path / "sub" / "relative"):
            with Store(other, writing=True) as store:
                begin(store, plan)
                for name in (path, tmp_path / "chain"):
                    with pytest.raises(RunFailedError, match="another run is writing"):
                        Store(name, writing=True)
    with Store(path) as store:
        assert len(store.runs()) == 3


def test_a_new_file_through_a_link_that_is_not_used_leaves_the_link_alone(tmp_path):
    link, target = tmp_path / "link.sqlite", tmp_path / "folder" / "target.sqlite"
    target.parent.mkdir()
    link.symlink_to(target)
    Store(link, writing=True).close()
    assert link.is_symlink()
    assert not target.exists()


def test_a_file_that_came_in_the_place_of_an_unused_one_is_not_removed(tmp_path):
    path = tmp_path / "results.sqlite"
    store = Store(path, writing=True)
    path.unlink()
    path.write_text("of somebody else")
    store.close()
    assert path.read_text() == "of somebody else"


@pytest.mark.slow
def test_files_taken_away_from_real_runs_at_random_moments(tmp_path, attack):
    draw = random.Random(4)
    other = tmp_path / "other.sqlite"
    sqlite3.connect(other).execute("CREATE TABLE bookmarks (url TEXT)").connection.close()
    with attack("results files taken away from real runs") as tries:
        for number, deed in enumerate((deleted, replaced)):
            path = tmp_path / str(number) / "results.sqlite"
            seconds = draw.uniform(0, 0.6)

            over = threading.Event()

            def take(path=path, deed=deed, seconds=seconds, over=over):
                while not path.with_name("results.sqlite-wal").exists():
                    if over.wait(0.005):
                        return
                time.sleep(seconds)
                deed(path, other)

            thief = threading.Thread(target=take, daemon=True)
            thief.start()
            path.parent.mkdir()
            code, said = command("run", *RUN, "--database", path, cwd=tmp_path)
            over.set()
            thief.join()
            tries.tried(
                f"{deed.__name__} after {seconds:.3f} s",
                held=code == 3
                and "Traceback" not in said
                and "was deleted, renamed or replaced" in said.splitlines()[-1],
            )


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
        for number, name in enumerate(("index.html", "results.csv", "conformance.json", "numbers")):
            folder, outside = tmp_path / f"link {number}", tmp_path / f"outside {number}"
            folder.mkdir()
            outside.mkdir()
            target = outside if name == "numbers" else outside / name
            if target != outside:
                target.write_text(FOREIGN[name])
            (folder / name).symlink_to(target)
            before = files_of(outside)
            try:
                build(folder)
                told = ""
            except UserError as error:
                told = str(error)
            tries.tried(f"a link {name}", held=files_of(outside) == before and "\n" not in told)


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
    page = tmp_path / "pages" / "0123456789abcdef"
    keep(made_up.results(FRAME), page, made_up.SECTIONS)
    foreign = {
        "nets/model.safetensors": b"of somebody else",
        "nets/llama-0123abcd.safetensors": b"of somebody else",
        "nets/my-net-0123abcd-seed1.safetensors": b"of somebody else",
        "nets/training.checkpoint": b"of somebody else",
        "nets/x.damaged": b"of somebody else",
        "nets/folder-x-0123abcd-seed1.safetensors/inner": b"of somebody else",
        "pages/home/index.html": FOREIGN["index.html"].encode(),
        "pages/fedcba9876543210/notes": b"of somebody else",
        "pages/0123456789abcdef/notes.html": FOREIGN["index.html"].encode(),
        "pages/0123456789abcdef/numbers/my.csv": b"a,b\n",
        "pages/0123456789abcdef/weights.npz": b"PK\x03\x04 of somebody else",
        "index.html": b"of somebody else",
        ".config/secret": b"of somebody else",
        "outside/index.html": b'<meta name="sdp-bench-numbers" content="x">',
    }
    for name, content in foreign.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(content)
    (tmp_path / "nets" / "iris-relu-1x8-0123abcd-seed9.safetensors").symlink_to(tmp_path / "index.html")
    (tmp_path / "pages" / ("a" * 16)).symlink_to(tmp_path / "outside")
    (page / "linked").symlink_to(tmp_path / "outside")
    done = CliRunner().invoke(cache, ["clear"])
    assert done.exit_code == 0, done.output
    left = files_of(tmp_path)
    with attack("files of others in the cache") as tries:
        for name, content in foreign.items():
            tries.tried(name, held=left.get(Path(name)) == content)
    links = {"nets/iris-relu-1x8-0123abcd-seed9.safetensors", f"pages/{'a' * 16}"}
    links.add("pages/0123456789abcdef/linked")
    assert {str(path) for path in left} == set(foreign) | links
    assert f"removed {ours} net files" in done.output
