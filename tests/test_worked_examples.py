"""The worked examples of docs/models.md are run: the files that it shows, and the commands after them."""

import os
import re
import shlex
import subprocess
import sys
from importlib.util import find_spec

import pytest

from tests.attacks.calls import called
from tests.project import ROOT

TEXT = (ROOT / "docs" / "models.md").read_text(encoding="utf-8")
SECTION = TEXT.partition("### Audio, sequences, images, tables and ONNX\n")[2].partition("\n### ")[0]
EXAMPLES = re.findall(
    r'```py title="(\w+\.py)"\n(.*?)^```\n\n    sdp-bench ([^\n]+)', SECTION, re.DOTALL | re.MULTILINE
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("examples")


@pytest.mark.slow
@pytest.mark.parametrize(("file", "code", "command"), EXAMPLES, ids=[file for file, *_ in EXAMPLES])
def test_a_worked_example_ends_with_a_verdict(folder, monkeypatch, file, code, command):
    if "onnx" in command:
        if find_spec("onnx2torch") is None:
            pytest.skip("onnx2torch is not installed")
        (audio,) = [text for name, text, _ in EXAMPLES if name == "audio.py"]
        (folder / "audio.py").write_text(audio)
        subprocess.run([sys.executable, "audio.py"], cwd=folder, check=True)
    (folder / file).write_text(code)
    environment = os.environ | {"PYTHONWARNINGS": "ignore"}
    subprocess.run([sys.executable, file], cwd=folder, check=True, env=environment, capture_output=True)
    monkeypatch.chdir(folder)
    status, out, err = called(shlex.split(command))
    assert status == 0, err
    assert out.splitlines()[-1].startswith("verdict: ")


def test_there_is_an_example_for_each_kind_of_net():
    assert [file for file, *_ in EXAMPLES] == [
        "audio.py",
        "sequence.py",
        "images.py",
        "table.py",
        "export.py",
    ]
