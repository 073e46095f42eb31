"""Published models: the list, what is known of them, and some of torchvision's own."""

import json
import subprocess
import sys
from collections import Counter

import pytest

from benchmarks.models import agreement, table
from benchmarks.models.__main__ import DOCS
from benchmarks.models.agreement import Agreement
from benchmarks.models.measuring import DEAR, RULES, TRACE, Row
from benchmarks.models.rows import Rows
from benchmarks.models.zoo import HOW_MANY, TIMM, WIDE
from tests.project import ROOT

TORCHVISION = "torchvision==0.28.0"
CLASSIFIERS = ("alexnet", "densenet121", "googlenet", "mnasnet0_5", "regnet_y_400mf", "shufflenet_v2_x0_5")
COMPARED = ("ViT, two blocks", "VGG with batch norm, two blocks")
LOOK = """
import json, sys
from pathlib import Path
import torch
from benchmarks.models.agreement import agreement
from benchmarks.models.zoo import Model, opened
from sdp_ref.graph.ops import Unknown
from sdp_ref.graph.trace import trace

torch.set_num_threads(1)
opened(Path(sys.argv[1]))
classifiers, compared = json.loads(sys.argv[2])
found = {}
for name in classifiers:
    net, event = Model("torchvision", name, 0).made()
    found[name] = [isinstance(step.module, Unknown) for step in trace(net, torch.zeros(1, *event))]
rows = [vars(row) for name in compared for row in agreement("torchvision", name)]
print(json.dumps([found, rows]))
"""


@pytest.fixture(scope="module")
def known():
    return Rows(DOCS / "models.csv", Row).all


@pytest.fixture(scope="module")
def compared():
    return Rows(DOCS / "models_agreement.csv", Agreement).all


@pytest.fixture(scope="module")
def torchvision(tmp_path_factory):
    """A folder with torchvision in it, and nothing that it asks for."""
    folder = tmp_path_factory.mktemp("zoo")
    pip = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check", "install"]
    done = subprocess.run(
        [*pip, "--no-deps", "--target", folder, TORCHVISION, "pillow"], capture_output=True, text=True
    )
    if done.returncode:
        pytest.skip(f"{TORCHVISION} cannot be installed: {done.stderr.strip().splitlines()[-1]}")
    return folder


def assert_small_noise_is_exact(rows):
    """Rules of the first order have a net's standard deviations, and all of them its means."""
    small = [row for row in rows if row.sigma == agreement.SMALL]
    for row in small:
        assert row.mean is not None, row
        if "monte_carlo" not in row.rule:
            assert row.mean < agreement.MEAN, row
        if row.rule in ("sdp", "unscented"):
            assert row.std < agreement.STD, row
    return small


def test_the_list_of_timm_has_models_of_all_families_that_are_not_too_large():
    families, weights, names = zip(
        *(line.split(",") for line in TIMM.read_text().splitlines()[1:]), strict=True
    )
    assert len(set(names)) == len(names) == HOW_MANY["timm"]
    assert len(set(families)) == 88
    assert max(map(int, weights)) <= WIDE


def test_all_models_are_traced_and_each_rule_has_an_answer_or_a_reason(known):
    parts = Counter((row.package, row.model, row.part) for row in known)
    assert set(parts.values()) == {1}
    for row in known:
        assert row.seconds is not None or row.note, row
    assert {row.part for row in known} <= {TRACE, *RULES, DEAR}


def test_first_order_is_exact_where_noise_is_small(compared):
    assert len({row.model for row in assert_small_noise_is_exact(compared)}) > 10


def test_the_page_shows_what_is_known(known, compared, tmp_path, monkeypatch):
    page = tmp_path / "models.md"
    page.write_text(table.PAGE.read_text(encoding="utf-8"), encoding="utf-8")
    monkeypatch.setattr(table, "PAGE", page)
    table.write(known, compared)
    assert page.read_text(encoding="utf-8") == (DOCS / "models.md").read_text(encoding="utf-8")


def test_what_is_in_the_file_is_not_measured_again(tmp_path):
    path = tmp_path / "rows.csv"
    row = Row("timm", "a, b", 12, "3x32x32", "sdp", 0.5, 1e-3, None, "x; y")
    Rows(path, Row).add(row)
    again = Rows(path, Row)
    assert again.of("timm", "a, b") == [row]
    again.add(Row("timm", "c", 12, "", "sdp", None, note="stopped"))
    assert len(Rows(path, Row).all) == 2


@pytest.mark.slow
def test_torchvision_without_its_compiled_ops(torchvision):
    asked = json.dumps([CLASSIFIERS, COMPARED])
    done = subprocess.run(
        [sys.executable, "-c", LOOK, torchvision, asked], cwd=ROOT, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    found, rows = json.loads(done.stdout)
    assert set(found) == set(CLASSIFIERS)
    for name, unknown in found.items():
        assert len(unknown) > 5, name
        assert not any(unknown), name
    small = assert_small_noise_is_exact([Agreement(**row) for row in rows])
    assert len(small) == len(COMPARED) * len(agreement.RULES)
