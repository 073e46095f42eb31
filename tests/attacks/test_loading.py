"""Damaged tables: what is loaded is what was written."""

import random

import pandas as pd
import pytest

import sdp_bench
from sdp_bench.bench.errors import UserError
from sdp_bench.bench.results import exchange
from sdp_bench.bench.results.store import Store
from tests.bench.conftest import TINY, make_plan, run_all


@pytest.fixture(scope="module")
def tables(tmp_path_factory):
    """Exported tables, and what they hold."""
    folder = tmp_path_factory.mktemp("tables")
    run_all(folder / "r.sqlite", make_plan(TINY))
    with Store(folder / "r.sqlite") as store:
        exchange.export(store, folder / "tables", "parquet", weights=False)
    return folder / "tables", sdp_bench.load(folder / "r.sqlite")


def is_refused(read, whole):
    """Whether what is read is refused in one line, or is whole."""
    try:
        found = read()
    except (UserError, KeyError) as error:
        return "\n" not in str(error)
    try:
        pd.testing.assert_frame_equal(found, whole, check_exact=True)
    except AssertionError:
        return False
    return True


@pytest.mark.parametrize("count", [10, pytest.param(300, marks=pytest.mark.slow)])
def test_damaged_tables_are_refused(count, tables, attack):
    folder, whole = tables
    assert is_refused(lambda: sdp_bench.load(folder), whole)
    chance = random.Random(3)
    names = sorted(path for path in folder.iterdir() if path.stat().st_size)
    with attack("bits of exported tables") as bits:
        for number in range(count):
            path = names[number % len(names)]
            content = path.read_bytes()
            spoiled = bytearray(content)
            spoiled[chance.randrange(len(content))] ^= 1 << chance.randrange(8)
            path.write_bytes(spoiled)
            try:
                bits.tried(f"{path.name} {number}", held=is_refused(lambda: sdp_bench.load(folder), whole))
            finally:
                path.write_bytes(content)
