import math
import re

import pytest

from sdp_bench import values
from sdp_bench.bench.errors import UserError
from sdp_bench.values import MOST_RULES, converted, specs_of

READ = [
    (values.SIGMAS, "0.1, 1,1e3", (0.1, 1.0, 1000.0)),
    (values.DEPTHS, ["1,2", "4"], (1, 2, 4)),
    (values.SHARD, "2/3", (2, 3)),
    (values.SHARE, "2%", 0.02),
    (values.SHARE, "0.02", 0.02),
    (values.RULES, "sdp,a:x={1,2}", ("sdp", "a:x=1", "a:x=2")),
    (values.COUNT, "1000000", 10**6),
    (values.Choice(("mc", "sobol")), "sobol", "sobol"),
]


@pytest.mark.parametrize(("kind", "text", "value"), READ)
def test_a_text_is_read_and_its_value_stays_what_it_is(kind, text, value):
    assert kind.read(text) == value
    assert kind.read(value) == value


@pytest.mark.parametrize(
    ("kind", "text", "message"),
    [
        (values.COUNT, "0", "0 is not in the range 1<=x<=1000000."),
        (values.COUNT, "1.5", "'1.5' is not a valid integer range."),
        (values.SAMPLES, "100000001", "100000001 is not in the range x<=100000000."),
        (values.POSITIVE, "0", "0.0 is not in the range x>0."),
        (values.POSITIVE, "inf", "inf is not a finite number"),
        (values.SECONDS, "0", "0.0 is not in the range 0<x<=100000000.0."),
        (values.SECONDS, "nan", "nan is not a finite number"),
        (values.DEPTHS, "1,", "'1,' is not a list of numbers separated by commas: '' is not a valid"),
        (values.RULES, "a:x={1", "one pair of braces"),
        (values.SHARD, "3/2", "'3/2' is not a part i/n with 1 <= i <= n"),
        (values.SHARE, "101%", "'101%' is not above 0 and at most 100%"),
        (values.WORD, " ", "value must not be empty"),
        (values.WORD, "a\nb", "'a\nb' has control characters"),
        (values.Choice(("mc", "sobol")), "MC", "'MC' is not one of 'mc', 'sobol'."),
        (values.FILE, "", "a file name must not be empty"),
        (values.FILE, ".", "File '.' is a directory."),
        (values.FOLDER, __file__, f"Directory '{__file__}' is a file."),
        (values.FILE, "/dev/null", "/dev/null is a device or a pipe"),
        (values.BADGE, "badge.png", "badge.png: a badge is a file .svg or .json"),
    ],
)
def test_a_wrong_value_is_an_error_that_says_what_is_wrong(kind, text, message):
    with pytest.raises(UserError, match=re.escape(message)):
        kind.read(text)


def test_a_stream_may_be_a_device():
    assert str(values.STREAM.read("/dev/null")) == "/dev/null"


@pytest.mark.parametrize(
    ("kind", "value", "several", "expected"),
    [
        (values.SIGMAS, 1, False, (1.0,)),
        (values.SIGMAS, [0.1, 2], False, (0.1, 2.0)),
        (values.RULES, ["sdp", "a:x={1,2}"], False, ("sdp", "a:x=1", "a:x=2")),
        (values.WORD, "iris-tv", True, ("iris-tv",)),
        (values.WORD, ["iris-tv", "iris-w1"], True, ("iris-tv", "iris-w1")),
        (values.FLAG, False, False, False),
        (values.SECONDS, 3, False, 3.0),
    ],
)
def test_a_typed_value_is_read_like_its_text(kind, value, several, expected):
    assert converted(kind, value, several=several) == expected


@pytest.mark.parametrize(
    ("kind", "value", "message"),
    [
        (values.COUNT, "3", "expected a whole number, not '3'"),
        (values.COUNT, True, "expected a whole number, not True"),
        (values.COUNT, [3], "expected a whole number, not [3]"),
        (values.SECONDS, "3", "expected a number, not '3'"),
        (values.SIGMAS, "1,2", "expected a number or an array of these, not '1,2'"),
        (values.SIGMAS, [], "the array is empty; leave the key out"),
        (values.SIGMAS, [math.nan], "'nan' is not a list of numbers separated by commas"),
        (values.FLAG, 1, "expected true or false, not 1"),
        (values.FILE, 3, "expected a string, not 3"),
    ],
)
def test_a_typed_value_of_another_type_is_an_error(kind, value, message):
    with pytest.raises(UserError, match=re.escape(message)):
        converted(kind, value)


@pytest.mark.parametrize(
    ("written", "specs"),
    [
        ("sdp, monte_carlo:samples=10", ("sdp", "monte_carlo:samples=10")),
        ("sdp,dvia", ("sdp", "dvia")),
        ("a:x=1,y=2,b", ("a:x=1,y=2", "b")),
        ("a:x={1,2}", ("a:x=1", "a:x=2")),
        ("sdp,a:x={1, 2 ,3},dvia", ("sdp", "a:x=1", "a:x=2", "a:x=3", "dvia")),
        ("a:x={1,2},y={3,4}", ("a:x=1,y=3", "a:x=1,y=4", "a:x=2,y=3", "a:x=2,y=4")),
        ("a:x=0,y={3,4},z=5,b", ("a:x=0,y=3,z=5", "a:x=0,y=4,z=5", "b")),
        ("a:x=1,2}", ("a:x=1", "2}")),
        ("d{1}/r.py:Rule:order={1,2}", ("d{1}/r.py:Rule:order=1", "d{1}/r.py:Rule:order=2")),
    ],
)
def test_a_list_in_braces_stands_for_a_rule_with_each_of_its_values(written, specs):
    assert specs_of(written) == specs


@pytest.mark.parametrize(
    ("written", "told"),
    [
        ("a:x={1,2", "one pair of braces"),
        ("a:x={1,{2,3}}", "one pair of braces"),
        ("a:x={1,2}3", "one pair of braces"),
        ("a:{x=1,x=2}", "one pair of braces"),
        ("a:x={}", "lacks a value"),
        ("a:x={1,,2}", "lacks a value"),
        ("a:x={1,2},x={3,4}", "'x' is given twice"),
        ("a:x={1,2},y=1, x=3", "'x' is given twice"),
        ("a:x={" + ",".join(map(str, range(MOST_RULES + 1))) + "}", f"stands for {MOST_RULES + 1} rules"),
    ],
)
def test_braces_written_otherwise_are_refused_in_a_line(written, told):
    with pytest.raises(UserError, match=told) as error:
        specs_of(written)
    assert "\n" not in str(error.value)
