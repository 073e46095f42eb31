"""Published models: the list, what is known of them, and some of torchvision's own."""

import json
import subprocess
import sys

import pandas as pd
import pytest

from benchmarks import models
from tests.project import python

TORCHVISION = "torchvision==0.28.0"
CLASSIFIERS = ("alexnet", "densenet121", "googlenet", "mnasnet0_5", "regnet_y_400mf", "shufflenet_v2_x0_5")
COMPARED = ("ViT, two blocks", "VGG with batch norm, two blocks")
LOOK = """
import json, sys
from pathlib import Path
import torch
from benchmarks.models import COMPARED, MODERATE, SMALL, agreement, made, opened
from sdp_ref.graph.ops import Unknown
from sdp_ref.graph.trace import trace

torch.set_num_threads(1)
folder = Path(sys.argv[1])
opened(folder)
classifiers, compared = json.loads(sys.argv[2])
found = {}
for name in classifiers:
    net, event = made("torchvision", name)
    found[name] = [isinstance(step.module, Unknown) for step in trace(net, torch.zeros(1, *event))]
keys = [
    {"package": "torchvision", "model": name, "sigma": sigma, "rule": rule}
    for name in compared for sigma in (SMALL, MODERATE) for rule in COMPARED
]
rows = [row | agreement(folder, row) for row in keys]
print(json.dumps([found, rows]))
"""

# Bounds at small noise: relative error of a standard deviation under `sdp` and `unscented` (five standard
# errors of the samples), and error of a mean, in standard deviations, under all rules without sampling.
STD, MEAN = 0.03, 0.05


@pytest.fixture(scope="module")
def known():
    return models.stored(models.MODELS)


@pytest.fixture(scope="module")
def compared():
    return models.stored(models.AGREEMENT)


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
    small = rows[rows.sigma == models.SMALL]
    assert small["mean"].notna().all()
    assert (small[~small.rule.str.contains("monte_carlo")]["mean"] < MEAN).all()
    assert (small[small.rule.isin(["sdp", "unscented"])]["std"] < STD).all()
    return small


def test_all_models_are_traced_and_each_rule_has_an_answer_or_a_reason(known):
    assert not known.duplicated(["package", "model", "part"]).any()
    assert (known.seconds.notna() | (known.note != "")).all()
    assert set(known.part) <= {models.TRACE, *models.RULES, models.SLOW}


def test_first_order_is_exact_where_noise_is_small(compared):
    assert assert_small_noise_is_exact(compared).model.nunique() > 10


def test_the_page_of_models_has_the_measured_summary(known):
    page = (models.DOCS / "models.md").read_text(encoding="utf-8")
    assert models.with_summary(page, known) == page
    assert models.with_summary(page, known[known.model != "alexnet"]) != page


def measured(_folder, row):
    if row["model"] == "c":
        raise ValueError("too wide")
    return {"seconds": 0.5, "std": 1e-3, "note": "x; y"}


def test_missing_rows_are_appended_to_the_file(tmp_path, monkeypatch):
    monkeypatch.setattr(models, "in_separate_process", lambda function, *args, limits: function(*args))
    path = tmp_path / "rows.csv"
    path.write_text("package,model,seconds,std,shift,note\n")
    keys = [{"package": "timm", "model": name} for name in ("a, b", "c")]
    for rows in (keys[:1], keys, keys):
        models.fill(path, rows, measured, tmp_path, models.Limits())
    first, second = models.stored(path).to_dict("records")
    assert {**first, "shift": None} == {**keys[0], **measured(tmp_path, keys[0]), "shift": None}
    assert second["model"] == "c"
    assert second["seconds"] != second["seconds"]
    assert second["note"] == "ValueError: too wide"


@pytest.mark.slow
def test_torchvision_without_its_compiled_ops(torchvision):
    asked = json.dumps([CLASSIFIERS, COMPARED])
    done = python("-c", LOOK, torchvision, asked)
    assert done.returncode == 0, done.stderr
    found, rows = json.loads(done.stdout)
    assert set(found) == set(CLASSIFIERS)
    for name, unknown in found.items():
        assert len(unknown) > 5, name
        assert not any(unknown), name
    small = assert_small_noise_is_exact(pd.DataFrame(rows))
    assert len(small) == len(COMPARED) * len(models.COMPARED)
