import pytest

from sdp_bench import cli
from sdp_bench.commands.options import MOST_RULES, Rules, specs_of
from tests.attacks.calls import leaves


@pytest.mark.parametrize(
    ("written", "specs"),
    [
        ("sdp,dvia", ("sdp", "dvia")),
        ("sdp, monte_carlo:samples=10", ("sdp", "monte_carlo:samples=10")),
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
    with pytest.raises(ValueError, match=told) as error:
        specs_of(written)
    assert "\n" not in str(error.value)


def test_every_command_that_takes_rules_takes_lists_in_braces():
    options = [param for _, command in leaves(cli.cli) for param in command.params if "--rules" in param.opts]
    assert len(options) >= 3
    assert all(isinstance(option.type, Rules) for option in options)
