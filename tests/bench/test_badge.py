import json
from xml.etree import ElementTree

import pytest

from sdp_bench.bench.badge import Badge

SVG = "{http://www.w3.org/2000/svg}"


def texts(badge):
    root = ElementTree.fromstring(badge.svg)
    return root, [element.text for element in root.iter(f"{SVG}text")]


@pytest.mark.parametrize("good", [True, False, None])
def test_a_picture_says_what_it_is_and_fits_its_texts(good):
    badge = Badge("sdp conformance", "21 passed, 0 failed", good)
    root, said = texts(badge)
    assert said == ["sdp conformance", "21 passed, 0 failed"]
    assert root.get("aria-label") == "sdp conformance: 21 passed, 0 failed"
    left, right = [float(rect.get("width")) for rect in root.iter(f"{SVG}rect")][1:]
    assert float(root.get("width")) == left + right
    assert left > 6 * len(said[0])
    assert right > 6 * len(said[1])
    assert "http" not in badge.svg.replace("http://www.w3.org/2000/svg", "")


@pytest.mark.parametrize("text", ["<script>&\"'", "a\nb\x1b[31m", "x" * 500, "\udcff", "規則"])
def test_any_text_is_well_formed_and_short(text):
    badge = Badge(text, text, good=True)
    _, (label, message) = texts(badge)
    assert label == message
    assert len(label) <= 60
    assert "\n" not in label
    assert json.loads(badge.json)["label"] == label


def test_good_bad_and_unknown_have_different_colours():
    badges = [Badge("a", "b", good) for good in (True, False, None)]
    assert len({badge.svg for badge in badges}) == len({badge.json for badge in badges}) == 3
