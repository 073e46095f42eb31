import json

import pytest

from sdp_ref.conformance.kit import CHECKS
from sdp_ref.conformance.report import VERSION
from tests.attacks.calls import called

MINE = """
import torch
import sdp_ref as sr

class Forgetful:
    name = "forgetful"

    def propagate(self, net, x):
        law = sr.propagate(net, x, "sdp")
        return sr.Gaussian(law.mean - net[-1].bias, law.covariance)

class Nothing:
    name = "nothing"

    def propagate(self, net, x):
        raise sr.UnsupportedError(self.name, "anything")
"""


@pytest.fixture
def mine(tmp_path):
    path = tmp_path / "my_rule.py"
    path.write_text(MINE)
    return path


def run(*arguments):
    code, out, err = called(["check-rule", *arguments], seconds=300)
    return code, err + out


def test_a_sound_rule_ends_with_0_and_the_counts():
    code, output = run("sdp", "--only", "affine", "--only", "moments")
    assert code == 0
    assert "rule 'sdp'" in output
    assert output.endswith(
        f"kit {VERSION}, 1 of 2 checks ran: 1 passed, 0 failed, 1 not applicable\n"
        "verdict: sdp passes the one check that applies\n"
    )


def test_a_failing_user_rule_ends_with_1_and_an_example(mine):
    code, output = run(f"{mine}:Forgetful", "--only", "affine")
    assert code == 1
    assert "FAILED   affine" in output
    assert "net = nn.Sequential(nn.Linear(1, 1))" in output
    counts, cause, verdict = output.splitlines()[-3:]
    assert "0 passed, 1 failed, 0 not applicable" in counts
    assert cause.startswith("failed affine: mean[0, 0] is ")
    assert verdict == "verdict: forgetful fails the one check that applies (affine)"


def test_the_checks_are_listed():
    code, output = run("--list")
    assert code == 0
    assert [line.split()[0] for line in output.splitlines()] == [check.name for check in CHECKS]


def test_json_goes_to_a_file_or_to_standard_output_alone(tmp_path):
    target = tmp_path / "report.json"
    code, _ = run("sdp", "--only", "dtype", "--json", target)
    assert code == 0
    report = json.loads(target.read_text())
    assert report["rule"] == "sdp"
    assert report["counts"] == {"passed": 1, "failed": 0, "skipped": 0}
    _, out, err = called(["check-rule", "sdp", "--only", "dtype", "--json", "-"])
    assert json.loads(out)["passed"] is True
    assert "passed   dtype" in err
    assert err.endswith("verdict: sdp passes the one check that applies\n")


@pytest.mark.parametrize(
    ("rule", "check", "code", "verdict", "said", "colour"),
    [
        ("dvia", "diagonal", 0, "only its declared faults", "0 passed, 0 failed, 1 known", "#2e7d32"),
        ("{mine}:Forgetful", "affine", 1, "fails the one check", "0 passed, 1 failed", "#c62828"),
        ("{mine}:Nothing", "affine", 1, "no check applies", "no check applies", "#6b6b6b"),
    ],
)
def test_a_badge_has_the_counts(mine, tmp_path, rule, check, code, verdict, said, colour):
    badges = [tmp_path / name for name in ("badge.svg", "badge.json")]
    words = [word for file in badges for word in ("--badge", file)]
    found, output = run(rule.format(mine=mine), "--only", check, *words)
    assert found == code
    assert verdict in output.splitlines()[-1]
    for file in badges:
        assert said in file.read_text()
        assert colour in file.read_text()


def test_no_badge_of_an_earlier_check_is_left_and_other_kinds_are_refused(mine, tmp_path):
    file = tmp_path / "badge.svg"
    file.write_text("an older one")
    mine.write_text("class Forgetful: ...")
    assert run(f"{mine}:Forgetful", "--badge", file)[0] == 2
    assert not file.exists()
    code, output = run("sdp", "--badge", tmp_path / "badge.png")
    assert (code, "a badge is a file .svg or .json" in output) == (2, True)


def test_an_output_file_that_cannot_be_written_ends_before_any_check(tmp_path):
    (tmp_path / "file").touch()
    path = tmp_path / "file" / "kit.json"
    assert run("sdp", "--json", path) == (3, f"Error: cannot write {path}: File exists\n")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "name a rule"),
        (("spd",), "rule 'spd' not found"),
        (("missing.py:Rule",), "cannot read missing.py"),
        (("sdp", "--only", "afine"), "check 'afine' not found; did you mean 'affine'?"),
    ],
)
def test_bad_input_is_one_line(arguments, message):
    code, text = run(*arguments)
    assert code == 2
    assert message in text
    assert "\n" not in text.strip()
