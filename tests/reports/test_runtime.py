"""The runtime table in the report: the paper's ratios beside those of the same net and phase."""

import pandas as pd
import pytest

from bench.runtime.table import Row, load, save
from reports.build import Results, page
from reports.runtime import runtime
from reports.tables import COLUMNS, checked


def row(architecture="cnn3", phase="training_step", method="sdp", ratio=12.0):
    return Row(architecture, phase, method, 128, "CPU (x86_64)", "2.13", 1, 5, 0.01, 3.9, ratio, 11.0, 13.0)


ROWS = [
    row("cnn3", "forward", "regular", 1.0),
    row("cnn3", "forward", "sdp"),
    row("cnn3", "training_step", "regular", 1.0),
    row("cnn3", "training_step", "sdp"),
    row("resnet18", "training_step", "distprop", 15.0),
]


def test_each_net_and_phase_is_a_block_with_the_papers_ratios_at_training():
    blocks = runtime(ROWS)
    assert [block.title for block in blocks] == [
        "Three-layer CNN, forward",
        "Three-layer CNN, training step",
        "ResNet-18, training step",
    ]
    assert blocks[0].timings[1].ratio.paper is None
    assert blocks[1].timings[1].ratio.paper == pytest.approx(20.8 / 6.29)  # Table 6, seconds an epoch
    assert blocks[1].timings[1].method == "SDP"
    assert "distprop" in blocks[2].timings[0].method
    assert "batch 128, CPU (x86_64), 1 CPU thread" in blocks[0].about


def test_the_page_shows_what_was_timed_and_nothing_where_nothing_was(tmp_path):
    save(ROWS, tmp_path / "runtime.csv")
    empty = pd.DataFrame(columns=["group", "rule", "error", "seconds"])
    frame = checked(pd.DataFrame(columns=list(COLUMNS)))
    assert 'id="runtime"' not in page(Results(frame, {}, empty))
    made = pd.DataFrame([dict.fromkeys(COLUMNS, 0.0) | {"suite": "iris-tv", "rule": "sdp", "metric": "w1"}])
    text = page(Results(checked(made), {}, empty, tuple(load(tmp_path / "runtime.csv"))))
    assert "11.00 to 13.00" in text
    assert f"{20.8 / 6.29:.2f}" in text
