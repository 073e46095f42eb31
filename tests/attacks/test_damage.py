"""Damaged results: what is read is what was written, or one line says what is damaged. Nothing is changed."""

import csv
import hashlib
import io
import json
import os
import random
import shutil
import sqlite3

import pandas as pd
import pytest

from sdp_bench.bench.errors import UserError
from sdp_bench.bench.results.record import Failure
from sdp_bench.bench.results.store import Store
from tests.bench.conftest import TINY, make_plan, run_all
from tests.sdp_bench.test_cli import command

SEED = 7
PAGE = 4096


@pytest.fixture(scope="module")
def content(tmp_path_factory):
    """Bytes of a results file: nets with weights, a run of three experiments, a failure."""
    path = tmp_path_factory.mktemp("whole") / "whole.sqlite"
    plan = make_plan(TINY)
    run_all(path, plan)
    failure = Failure(plan.units[0].key, "sdp", "bures", "boom", 1.0)
    with Store(path, writing=True) as store:
        store.write_group(1, [], [failure], [])
    return path.read_bytes()


@pytest.fixture(scope="module")
def whole(content, tmp_path_factory):
    """What every way of reading gives of that file."""
    folder = tmp_path_factory.mktemp("read")
    (folder / "r.sqlite").write_bytes(content)
    return read(folder)


def exported(folder):
    """Files of an export, by name."""
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}


def read(folder):
    """All that is stored, through a command and through what a report asks, as far as it is not refused."""
    found = []
    done = command("export", "--database", "r.sqlite", "-o", "out", cwd=folder)
    found.append(exported(folder / "out") if told(done) else None)
    for ask in (measured, everything):
        try:
            with Store(folder / "r.sqlite") as store:
                found.append(ask(store))
        except UserError as error:
            line = str(error)
            if "r.sqlite" not in line or "\n" in line:
                raise
            found.append(None)
    return found


def measured(store):
    """What a report asks, alone: the records are compared while they are read for it."""
    return [store.frame(store.run(number)) for number in store.runs()]


def everything(store):
    runs = [store.run(number) for number in store.runs()]
    frames = [*map(store.frame, runs), *map(store.failures, runs)]
    return [frames, [runs, store.rules(), store.stored_nets()], store.find("")]


def told(done):
    """Whether a command went through; else it is to have said in one line that the file is damaged."""
    if done.returncode == 0:
        return True
    (line,) = done.stderr.splitlines()
    assert done.returncode in (2, 3)
    assert line.startswith("Error: ")
    assert "r.sqlite" in line
    return False


def harmless(folder, content, whole):
    """What harm it does to read a damaged file: none if all is as it was, or one line tells of it."""
    folder.mkdir()
    path = folder / "r.sqlite"
    path.write_bytes(content)
    try:
        found = read(folder)
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    changed = path.read_bytes() != content
    for here, there in zip(found, whole, strict=True):
        if here is not None and not identical(here, there):
            return "other content"
    return "the file was changed" if changed else ""


def identical(a, b):
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(map(identical, a, b))
    return a.equals(b) if isinstance(a, pd.DataFrame) else a == b


def flipped(content, bit):
    return content[: bit // 8] + bytes([content[bit // 8] ^ 1 << bit % 8]) + content[bit // 8 + 1 :]


def harms(cases, whole, tmp_path):
    found = {case: harmless(tmp_path / str(n), damaged, whole) for n, (case, damaged) in enumerate(cases)}
    return {case: harm for case, harm in found.items() if harm}


@pytest.mark.parametrize("count", [10, pytest.param(150, marks=pytest.mark.slow)])
def test_flipped_bits_are_harmless_or_told(content, whole, tmp_path, count):
    bits = random.Random(SEED).sample(range(len(content) * 8), count)
    assert harms([(f"bit {bit}", flipped(content, bit)) for bit in bits], whole, tmp_path) == {}


def lost(content):
    """Files cut short, and with pages of zeros."""
    pages = len(content) // PAGE
    for size in (1, 16, 100, PAGE, len(content) // 2, len(content) - 1):
        yield f"cut to {size} bytes", content[:size]
    for page in [0, *random.Random(SEED).sample(range(1, pages), 13)]:
        zeros = content[: page * PAGE] + bytes(PAGE) + content[(page + 1) * PAGE :]
        yield f"zeros in page {page}", zeros


@pytest.mark.parametrize("step", [5, pytest.param(1, marks=pytest.mark.slow)])
def test_lost_pages_are_harmless_or_told(content, whole, tmp_path, step):
    assert harms(list(lost(content))[::step], whole, tmp_path) == {}


def test_a_damaged_file_is_not_written_to(content, tmp_path):
    place = content.index(b"iris-tv")
    (tmp_path / "r.sqlite").write_bytes(flipped(content, place * 8))
    before = (tmp_path / "r.sqlite").read_bytes()
    done = command("run", "iris-tv", "--preset", "smoke", "--database", "r.sqlite", cwd=tmp_path)
    assert not told(done)
    assert (tmp_path / "r.sqlite").read_bytes() == before


def test_check_says_what_it_looked_at_and_what_is_damaged(content, tmp_path):
    path = tmp_path / "r.sqlite"
    path.write_bytes(content)
    done = command("results", "check", "r.sqlite", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    with sqlite3.connect(path) as db:
        (count,) = db.execute("SELECT COUNT(*) FROM records").fetchone()
    db.close()
    assert done.stdout.startswith("r.sqlite is as it was written: 2 nets, ")
    assert f"{count} records" in done.stdout
    with sqlite3.connect(path) as db:
        (unit,) = db.execute("SELECT unit FROM records WHERE metric = 'tv_class'").fetchone()
        db.execute("UPDATE records SET value = value + 1e-9 WHERE unit = ? AND metric = 'tv_class'", (unit,))
    db.close()
    for words in (("results", "check", "r.sqlite"), ("diff", "r.sqlite", "r.sqlite")):
        done = command(*words, cwd=tmp_path)
        assert done.returncode == 3
        assert (
            done.stderr == f"Error: r.sqlite is damaged: the records of '{unit}' are not what was written\n"
        )


@pytest.fixture(scope="module")
def export(content, tmp_path_factory):
    """Folder of an export."""
    folder = tmp_path_factory.mktemp("export")
    (folder / "r.sqlite").write_bytes(content)
    assert command("export", "--database", "r.sqlite", "-o", "out", cwd=folder).returncode == 0
    return folder / "out"


def sealed(folder, name, change):
    """Change a table, and the manifest's checksum with it, so that the table itself is read."""
    path = next(folder.glob(f"{name}.*"))
    path.write_bytes(change(path.read_bytes()))
    with_manifest(
        folder, lambda m: m["sha256"].update({path.name: hashlib.sha256(path.read_bytes()).hexdigest()})
    )


def with_manifest(folder, change):
    path = folder / "manifest.json"
    manifest = json.loads(path.read_text())
    path.write_text(json.dumps(change(manifest) or manifest))


def cell(column, value, of=b""):
    """Change of one value of a table, in the first row that has some text."""

    def change(content):
        header, *rows = csv.reader(io.StringIO(content.decode(), newline=""))
        next(row for row in rows if not of or of.decode() in row)[header.index(column.decode())] = (
            value.decode()
        )
        text = io.StringIO(newline="")
        csv.writer(text, lineterminator="\r\n").writerows([header, *rows])
        return text.getvalue().encode()

    return change


def table(name, change):
    return lambda folder: sealed(folder, name, change)


def manifest(change):
    return lambda folder: with_manifest(folder, change)


def cut_parquet(folder):
    """A table as Parquet, cut, with its checksum."""
    path = folder / "records.parquet"
    pd.read_csv(folder / "records.csv").to_parquet(path)
    os.truncate(path, path.stat().st_size // 2)
    (folder / "records.csv").unlink()
    with_manifest(folder, lambda m: m["sha256"].pop("records.csv"))
    sealed(folder, "records", bytes)


DAMAGE = {
    "no manifest": lambda folder: (folder / "manifest.json").unlink(),
    "cut manifest": lambda folder: os.truncate(folder / "manifest.json", 300),
    "schema is a text": manifest(lambda m: {**m, "schema": "6"}),
    "a wrong checksum": manifest(lambda m: m["sha256"].update({"records.csv": "0" * 64})),
    "a table is not listed": manifest(lambda m: m["sha256"].pop("nets.csv") and m),
    "other rows": manifest(lambda m: m["rows"].update({"records": m["rows"]["records"] + 1})),
    "a table is missing": lambda folder: (folder / "units.csv").unlink(),
    "a cut table": lambda folder: os.truncate(folder / "records.csv", 5000),
    "a cut table with its checksum": table("records", lambda c: c[: len(c) // 2]),
    "a row less": table("units", lambda c: c[: c.rstrip().rindex(b"\n") + 1]),
    "a row of few values": table("records", lambda c: c + b"1,2\n"),
    "a column less": table("records", lambda c: c.replace(b",floor95", b"", 1)),
    "a word for a number": table("records", cell(b"value", b"much")),
    "a value that is not a number": table("records", cell(b"value", b"nan")),
    "a TV above 1": table("records", cell(b"value", b"1.01", of=b"tv_class")),
    "an unknown rule": table("records", cell(b"rule", b"none")),
    "an unknown unit": table("records", cell(b"unit", b"none")),
    "a run of 23 digits": table("records", cell(b"run", b"1" * 23)),
    "weights that are no hexadecimals": table("nets", lambda c: c.rstrip()[:-1] + b"g\n"),
    "cut parquet with its checksum": cut_parquet,
}


@pytest.mark.parametrize("step", [4, pytest.param(1, marks=pytest.mark.slow)])
def test_damaged_exports_are_refused_whole(content, export, tmp_path, step):
    """Into an empty file, and next to what is there."""
    (tmp_path / "r.sqlite").write_bytes(content)
    for case in list(DAMAGE)[::step]:
        folder, new = tmp_path / case / "out", tmp_path / case / "new.sqlite"
        shutil.copytree(export, folder)
        DAMAGE[case](folder)
        for database in (new, "r.sqlite"):
            end = command("import", str(folder), "--database", str(database), cwd=tmp_path)
            assert end.returncode == 2, (case, end.stderr)
            assert (end.stderr.count("\n"), end.stderr[:7]) == (1, "Error: "), (case, end.stderr)
        assert not new.exists(), case
        assert (tmp_path / "r.sqlite").read_bytes() == content, case
