import sys
import types

import pytest


@pytest.fixture
def no_torchvision(monkeypatch):
    """onnx2torch imports torchvision for ops of detection alone; not every build of it fits every torch."""
    ops = types.ModuleType("torchvision.ops")
    ops.nms = ops.roi_align = ops.box_convert = None
    stand_in = types.ModuleType("torchvision")
    stand_in.ops = ops
    monkeypatch.setitem(sys.modules, "torchvision", stand_in)
    monkeypatch.setitem(sys.modules, "torchvision.ops", ops)
