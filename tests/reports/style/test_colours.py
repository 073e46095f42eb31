import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sdp_bench.reports.style.colours import (
    CIVIDIS,
    CONTRAST,
    DARK,
    INK,
    LIGHT,
    Colours,
    contrast,
    luminance,
    rgb,
    shades,
    written,
)


@given(st.integers(0, 0xFFFFFF))
def test_whatever_colour_a_rule_declares_is_seen(number):
    light, dark = shades(f"#{number:06x}")
    assert contrast(light, LIGHT) >= CONTRAST
    assert contrast(dark, DARK) >= CONTRAST


def test_greys_that_differ_still_do_and_keep_their_order():
    greys = [f"#{step:02x}{step:02x}{step:02x}" for step in range(0, 256, 24)]
    for shaded in zip(*map(shades, greys), strict=True):
        lights = [float(luminance(rgb(each))) for each in shaded]
        assert lights == sorted(set(lights))


def test_black_on_white_and_the_inks():
    assert contrast("#000000", "#ffffff") == pytest.approx(21)
    assert shades(INK) == (INK, INK)


def test_colours_of_values_are_those_of_the_stops_and_beyond_the_ends_the_last():
    colours = Colours(0, 1, CIVIDIS)
    values = np.array([0, 0.5, 1, 2, -1])
    assert written(colours.of(values)) == [CIVIDIS[place] for place in (0, 16, 32, 32, 0)]
