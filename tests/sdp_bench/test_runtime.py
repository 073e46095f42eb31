from sdp_bench.bench.runtime import table
from tests.attacks.calls import called


def test_a_table_keeps_the_nets_that_were_not_timed_again(tmp_path, monkeypatch):
    monkeypatch.setitem(table.PRESETS, "one", table.Preset(1, 1, ("mlp-1x10", "mlp-1x20"), ("forward",)))
    monkeypatch.setitem(table.PRESETS, "other", table.Preset(2, 1, ("mlp-1x20", "mlp-1x30"), ("forward",)))
    path = tmp_path / "runtime.csv"
    for preset in ("one", "other"):
        ended = called(["runtime", "--preset", preset, "--runtime", path])
        assert ended.code == 0, ended.said
    batches = {row.architecture: row.batch for row in table.load(path)}
    assert batches == {"mlp-1x10": 1, "mlp-1x20": 2, "mlp-1x30": 2}


def test_a_file_that_is_no_table_is_refused_before_anything_is_timed_and_stays(tmp_path):
    path = tmp_path / "runtime.csv"
    path.write_text("a,b\n1,2\n")
    assert "cannot read the runtime table" in called(["runtime", "--preset", "smoke", "--runtime", path]).err
    assert path.read_text() == "a,b\n1,2\n"


def test_timings_survive_an_error_at_a_later_net(tmp_path, monkeypatch):
    monkeypatch.setitem(table.PRESETS, "broken", table.Preset(1, 1, ("mlp-1x10", "no-net"), ("forward",)))
    path = tmp_path / "runtime.csv"
    assert "no-net" in called(["runtime", "--preset", "broken", "--runtime", path]).err
    assert {row.architecture for row in table.load(path)} == {"mlp-1x10"}
