"""The page of relative times by version."""

from benchmarks import history


def test_the_page_shows_the_committed_ratios(tmp_path):
    history.page(str(history.COMMITTED), str(tmp_path / "ratios.html"))
    text = (tmp_path / "ratios.html").read_text(encoding="utf-8")
    frame = history.table(str(history.COMMITTED)).query("net == 'cnn3' and phase == 'forward'")
    assert {"0.25.0"} <= set(frame["version"]) <= set(history.releases().values())
    assert {"marginal_sdp", "sdp"} <= set(frame["method"])
    for version, ratio in zip(frame["version"], frame["ratio"], strict=True):
        assert f">{version}</th>" in text
        assert f"<td>{ratio:.4g} (" in text
