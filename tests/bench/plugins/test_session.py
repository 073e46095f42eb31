"""Objects of a notebook or script that are sent to other processes."""

import subprocess
import sys

SCRIPT = """
import functools, sys
from pathlib import Path

from sdp_bench.bench.plugins import session


class Base:
    @functools.cached_property
    def width(self):
        return 7


class Mine(Base):
    calls = 0

    @functools.cached_property
    def factor(self):
        self.calls += 1
        return WIDTH * self.width


WIDTH = 3
code = session.code_of(Mine())
Path(sys.argv[1]).write_bytes(code.pickled)
again = Mine()
again.factor
assert session.code_of(Mine()).source == code.source
WIDTH = 4
assert session.code_of(Mine()).source != code.source
"""
READER = """
import sys
from pathlib import Path

from sdp_bench.bench.plugins import code

mine = code.load("Mine", Path(sys.argv[1]).read_bytes())
print(mine.factor, mine.factor, mine.calls, vars(mine)["factor"])
"""


def run(text, tmp_path):
    script = tmp_path / "script.py"
    script.write_text(text)
    command = [sys.executable, str(script), str(tmp_path / "mine.pickle")]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def test_a_cached_property_is_computed_once_in_another_process(tmp_path):
    run(SCRIPT, tmp_path)
    assert run(READER, tmp_path).split() == ["21", "21", "1", "21"]
