"""Modules that a fork server imports once: rules, metrics, oracles and their dependencies.

Declarations import measuring code lazily (``docs/design.md``), and each group runs in its own process, which
would otherwise repeat these imports.
"""

from __future__ import annotations

import os
from contextlib import suppress

import ot  # noqa: F401  with what it brings, it takes longer than many a group
import torch._decomp.decompositions_for_jvp  # torch imports it for the first forward derivative,
import torch._dynamo  # noqa: F401  and this once a net is recorded or trained

import sdp_ref
from sdp_ref.registry import RegistryError

from ... import oracles
from ..executors.local import SAFE_PATH
from ..experiments import law_group  # noqa: F401
from ..metrics import metrics
from ..studies.introduction import group as introduction  # noqa: F401
from ..studies.robustness import group as robustness  # noqa: F401
from ..studies.selective import group as selective  # noqa: F401
from ..studies.uci import group as uci  # noqa: F401
from . import driver  # noqa: F401

if os.environ.get("PYTHONSAFEPATH") == SAFE_PATH:
    del os.environ["PYTHONSAFEPATH"]

for _package in (oracles, sdp_ref):
    for _name in _package.__all__:
        getattr(_package, _name)
for _name in sdp_ref.rules():
    with suppress(Exception):  # the group that uses the rule reports the error; here it would stop all groups
        sdp_ref.rule(_name)
with suppress(RegistryError):
    dict(metrics())
