"""Damaged tables and hostile rules, from Python: what is loaded was written, and the session goes on."""

import random
import sys
from pathlib import Path

import pandas as pd
import pytest
import torch

import sdp_bench
from sdp_bench.bench.errors import UserError
from sdp_bench.bench.results import exchange
from sdp_bench.bench.results.store import Store
from tests.bench.conftest import TINY, make_plan, run_all
from tests.cells import run_cell


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


HOSTILE = {
    "ends the process": "import os\nos._exit(0)",
    "exits": "import sys\nsys.exit(0)",
    "changes the session": "import sys\nsys.modules['torch'].PI = 3\nsys.path.clear()",
    "changes the folder": "import os\nos.chdir('/')",
    "raises": "raise BaseException('no\\nway')",
    "changes what it was sent": "SEEN.append(1)",
}
RULE = """
import sdp_ref as sr

SEEN = []

class Hostile:
    name = "hostile"

    def propagate(self, net, x):
        %s
        return sr.propagate(net, x, "sdp")
"""


@pytest.mark.slow
def test_a_rule_of_a_cell_cannot_end_or_change_the_session(attack):
    options = {"samples": 4096, "w1_points": 100, "jobs": 1, "progress": False, "conformance": False}
    with attack("hostile rules of a notebook") as rules:
        for case, code in HOSTILE.items():
            space = {"__name__": "__main__"}
            run_cell(RULE % code.replace("\n", "\n        "), space)
            before = Path.cwd(), list(sys.path)
            found = sdp_bench.validate(
                space["Hostile"], net=torch.nn.Linear(4, 2), inputs=torch.ones(1, 4), noise=1, beside=["sdp"],
                **options,
            )  # fmt: skip
            is_same = (Path.cwd(), list(sys.path)) == before
            is_same &= not space["SEEN"] and not hasattr(torch, "PI")
            rules.tried(case, held=is_same and "sdp" in set(found.frame["rule"]))
