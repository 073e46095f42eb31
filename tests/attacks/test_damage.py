"""Damaged results and baselines: each is read as it was written, or rejected in one line."""

import csv
import hashlib
import io
import json
import math
import os
import random
import shutil
import sqlite3

import pandas as pd
import pytest
from sdp_bench.bench.results.record import Failure
from sdp_bench.bench.results.store import Store

from sdp_bench.bench.errors import UserError
from sdp_bench.bench.gate.cases import Scope
from tests.attacks.calls import called, complaint
from tests.bench.conftest import TINY, make_plan, run_all
from tests.project import ROOT
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
    """What can be read of the undamaged file."""
    path = tmp_path_factory.mktemp("read") / "r.sqlite"
    path.write_bytes(content)
    return read(path)


def read(path):
    """Return everything that is stored, and None for each query that rejects the file in one line."""
    found = []
    for query in (measured, everything):
        try:
            with Store(path) as store:
                found.append(query(store))
        except UserError as error:
            line = str(error)
            if "r.sqlite" not in line or "\n" in line:
                raise
            found.append(None)
    return found


def measured(store):
    """Read only the records, and compare their checksums."""
    return [store.frame(store.run(number)) for number in store.runs()]


def everything(store):
    runs = [store.run(number) for number in store.runs()]
    frames = [*map(store.frame, runs), *map(store.failures, runs)]
    return [frames, [runs, store.rules(), store.stored_nets()], store.find("")]


def harm_of(folder, content, whole):
    """Read a damaged file, and return what is wrong: nothing if it is rejected or reads as it was."""
    folder.mkdir()
    path = folder / "r.sqlite"
    path.write_bytes(content)
    try:
        found = read(path)
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


def damaged(content, count):
    for bit in random.Random(SEED).sample(range(len(content) * 8), count):
        yield f"bit {bit}", flipped(content, bit)
    for size in (100, PAGE, len(content) // 2, len(content) - 1):
        yield f"cut to {size} bytes", content[:size]
    for page in [0, *random.Random(SEED).sample(range(1, len(content) // PAGE), 1 + count // 15)]:
        zeros = content[: page * PAGE] + bytes(PAGE) + content[(page + 1) * PAGE :]
        yield f"zeros in page {page}", zeros


@pytest.mark.parametrize("count", [10, pytest.param(150, marks=pytest.mark.slow)])
def test_damaged_files_are_rejected_or_read_as_they_were(content, whole, tmp_path, count):
    cases = enumerate(damaged(content, count))
    harms = {case: harm_of(tmp_path / str(n), file, whole) for n, (case, file) in cases}
    assert {case: text for case, text in harms.items() if text} == {}


def test_check_says_what_it_looked_at_and_what_is_damaged(content, tmp_path):
    path = tmp_path / "r.sqlite"
    path.write_bytes(content)
    done = command("results", "check", "r.sqlite", cwd=tmp_path)
    assert (done.code, done.err) == (0, "")
    with sqlite3.connect(path) as db:
        (count,) = db.execute("SELECT COUNT(*) FROM records").fetchone()
    db.close()
    assert done.out.startswith("r.sqlite is as it was written: 2 nets, ")
    assert f"{count} records" in done.out
    with sqlite3.connect(path) as db:
        (unit,) = db.execute("SELECT unit FROM records WHERE metric = 'tv_class'").fetchone()
        db.execute("UPDATE records SET value = value + 1e-9 WHERE unit = ? AND metric = 'tv_class'", (unit,))
    db.close()
    for words in (("results", "check", "r.sqlite"), ("diff", "r.sqlite", "r.sqlite")):
        done = command(*words, cwd=tmp_path)
        assert done.code == 3
        assert done.err == f"Error: r.sqlite is damaged: the records of '{unit}' are not what was written\n"


@pytest.fixture(scope="module")
def export(content, tmp_path_factory):
    folder = tmp_path_factory.mktemp("export")
    (folder / "r.sqlite").write_bytes(content)
    assert command("export", "--database", "r.sqlite", "-o", "out", cwd=folder).code == 0
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
        next(r for r in rows if not of or of.decode() in r)[header.index(column.decode())] = value.decode()
        text = io.StringIO(newline="")
        csv.writer(text, lineterminator="\r\n").writerows([header, *rows])
        return text.getvalue().encode()

    return change


def table(name, change):
    return lambda folder: sealed(folder, name, change)


def manifest(change):
    return lambda folder: with_manifest(folder, change)


def cut_parquet(folder):
    path = folder / "records.parquet"
    pd.read_csv(folder / "records.csv").to_parquet(path)
    os.truncate(path, path.stat().st_size // 2)
    (folder / "records.csv").unlink()
    with_manifest(folder, lambda m: m["sha256"].pop("records.csv") and m)
    sealed(folder, "records", bytes)


DAMAGE = {
    "no manifest": lambda folder: (folder / "manifest.json").unlink(),
    "schema is a text": manifest(lambda m: {**m, "schema": "6"}),
    "a wrong checksum": manifest(lambda m: m["sha256"].update({"records.csv": "0" * 64})),
    "a table is missing": lambda folder: (folder / "units.csv").unlink(),
    "a cut table with its checksum": table("records", lambda c: c[: len(c) // 2]),
    "a row of few values": table("records", lambda c: c + b"1,2\n"),
    "a column less": table("records", lambda c: c.replace(b",floor95", b"", 1)),
    "a value that is not a number": table("records", cell(b"value", b"nan")),
    "a TV above 1": table("records", cell(b"value", b"1.01", of=b"tv_class")),
    "an unknown unit": table("records", cell(b"unit", b"none")),
    "a run of 23 digits": table("records", cell(b"run", b"1" * 23)),
    "weights that are no hexadecimals": table("nets", lambda c: c.rstrip()[:-1] + b"g\n"),
    "cut parquet with its checksum": cut_parquet,
}


@pytest.mark.parametrize("step", [3, pytest.param(1, marks=pytest.mark.slow)])
def test_damaged_exports_are_refused_whole(content, export, tmp_path, step):
    """Into an empty file, and next to what is there."""
    (tmp_path / "r.sqlite").write_bytes(content)
    for case in list(DAMAGE)[::step]:
        folder, new = tmp_path / case / "out", tmp_path / case / "new.sqlite"
        shutil.copytree(export, folder)
        DAMAGE[case](folder)
        for database in (new, "r.sqlite"):
            end = command("import", str(folder), "--database", str(database), cwd=tmp_path)
            assert end.code == 2, (case, end.err)
            assert (end.err.count("\n"), end.err[:7]) == (1, "Error: "), (case, end.err)
        assert not new.exists(), case
        assert (tmp_path / "r.sqlite").read_bytes() == content, case


STRANGE = (math.nan, math.inf, 1e200, "0.5", None, [])
TEXTS = {
    "a rule twice": lambda text: text.replace('"rules": {', '"rules": {"sdp": {"predictions": {}},', 1),
    "brackets": lambda text: "[" * 100_000,
    "a number of 5000 digits": lambda text: text.replace('"version": 5', '"version": 5' + "0" * 5000),
    "another version": lambda text: json.dumps(json.loads(text) | {"version": 99}),
    "no rules": lambda text: json.dumps(json.loads(text) | {"rules": {}}),
}


def first(mapping):
    return next(iter(mapping.values()))


def test_a_damaged_baseline_is_rejected(tmp_path, monkeypatch):
    scope = Scope.of_ci()
    monkeypatch.setattr(Scope, "of_ci", lambda: scope)
    path, plain = tmp_path / "ci.json", json.loads((ROOT / "reports/baselines/ci.json").read_text())
    text = json.dumps(plain | {"rules": {"sdp": plain["rules"]["sdp"]}}, indent=1)
    damaged = {name: change(text) for name, change in TEXTS.items()}
    for value in STRANGE:  # anywhere, since each rule has a digest
        content = json.loads(text)
        first(content["rules"]["sdp"]["predictions"])["mean"][0] = value
        damaged[repr(value)] = json.dumps(content)
    for name, content in damaged.items():
        path.write_text(content)
        ended = called(["check", "--baseline", path, "--rules", "sdp", "--no-speed"])
        assert complaint(*ended, (2,)) == "", name
        assert str(path) in ended.err, name
