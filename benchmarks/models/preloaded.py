"""What a fork server imports once, so that no model's process has to: rules, and the packages of models."""

from __future__ import annotations

import os
from importlib import import_module
from pathlib import Path

import sdp_bench.bench.runs.preloaded  # noqa: F401
from benchmarks.models.zoo import FOLDER, HOW_MANY, opened

opened(Path(os.environ[FOLDER]))
for _name in HOW_MANY:
    import_module(_name)
