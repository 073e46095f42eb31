import pandas as pd
import pytest

from sdp_bench.bench.runtime.table import Row, load, save
from sdp_bench.reports.page import build
from sdp_bench.reports.sections.runtime import Runtime, blocks, scan
from sdp_bench.reports.tables.frame import COLUMNS
from tests.reports import made_up
from tests.reports.helpers import outline
from tests.reports.made_up import Results


def row(architecture="cnn3", phase="training_step", method="sdp", ratio=12.0):
    return Row(architecture, phase, method, 128, "CPU (x86_64)", "2.13", 1, 5, 0.01, 3.9, ratio, 11.0, 13.0)


ROWS = [
    row("cnn3", "forward", "regular", 1.0),
    row("cnn3", "forward", "sdp"),
    row("cnn3", "training_step", "regular", 1.0),
    row("cnn3", "training_step", "sdp"),
    row("resnet18", "training_step", "distprop", 15.0),
]
MADE = pd.DataFrame([dict.fromkeys(COLUMNS, 0.0) | {"experiment": "iris-tv", "rule": "sdp", "metric": "w1"}])


def test_each_net_and_phase_is_a_block_with_the_papers_ratios_at_training():
    made = list(blocks(ROWS))
    assert [block["title"] for block in made] == [
        "Three-layer CNN, forward",
        "Three-layer CNN, training step",
        "ResNet-18, training step",
    ]
    assert made[0]["timings"][1][2] is None
    assert made[1]["timings"][1][2] == pytest.approx(20.8 / 6.29)  # Table 6, seconds an epoch
    assert made[1]["timings"][1][0] == "SDP"
    assert "distprop" in made[2]["timings"][0][0]
    assert "batch 128, CPU (x86_64), 1 CPU thread" in made[0]["about"]


def test_the_page_shows_timed_nets_and_has_no_section_without_times(tmp_path):
    save(ROWS, tmp_path / "runtime.csv")
    nothing = Results(pd.DataFrame(columns=list(COLUMNS)))
    assert 'id="runtime"' not in made_up.page(nothing, [Runtime()])[0]
    text, _ = made_up.page(Results(MADE, runtime=tuple(load(tmp_path / "runtime.csv"))), [Runtime()])
    assert "11.00 to 13.00" in text
    assert f"{20.8 / 6.29:.2f}" in text


def test_the_committed_report_links_to_the_history_of_speed(tmp_path):
    for published in (True, False):
        results = Results(MADE, runtime=tuple(ROWS), published=published)
        folder = tmp_path / str(published)
        build(results, folder, [Runtime()])
        page = outline((folder / "speed.html").read_text(encoding="utf-8"))
        assert ("speed-history.html" in page.targets) == published
        assert (folder / "speed-history.html").exists() == published
    assert "index.html" in outline((tmp_path / "True/speed-history.html").read_text(encoding="utf-8")).targets


def test_nets_of_different_sizes_have_a_separate_table():
    rows = [
        row("mlp-2x256-10-784", "forward", "regular", 1.0),
        row("mlp-2x256-10-784", "forward", "sdp", 9.5),
        row("mlp-2x256-100-3", "forward", "sdp", 20.25),
        row("cnn3-28x64-1", "forward", "dvia", 23_456.0),
    ]
    found = scan(rows)
    assert found["methods"] == ("SDP",)
    assert [(n.inputs, n.outputs, t.ratio) for n, (t,) in found["rows"]] == [(784, 10, 9.5), (3, 100, 20.25)]
    assert scan(ROWS) is None
    text, _ = made_up.page(Results(MADE, runtime=tuple(rows)), [Runtime()])
    assert "20.25" in text
    assert "Three-layer CNN with 64 channels on 1 × 28 × 28, forward" in text
    assert "mlp-" not in text
