"""Small models of every kind against samples: where noise is small, and where it is not."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

import sdp_ref as sr
from benchmarks.models.measuring import FALLBACK, in_parts
from benchmarks.models.zoo import OUTPUTS, TOKENS, Model, calibrate, opened
from sdp_bench.bench.errors import one_line
from sdp_bench.bench.executors.local import tell
from sdp_ref.errors import UnsupportedError

SMALL, MODERATE = 1e-5, 0.1
"""Noise under which every one of these nets is affine, and under which none is."""
DRAWS = 20_000
RULES = ("sdp", "unscented", "marginal_sdp", "marginal_moment_matching", "monte_carlo:samples=1000")
STD, MEAN = 0.03, 0.05
"""At small noise: how large the relative error of an output's standard deviation may be under `sdp` and
`unscented` (five standard errors of the samples), and that of a mean, in standard deviations, under all."""


@dataclass(frozen=True)
class Agreement:
    """How far a rule is from samples.

    Attributes
    ----------
    package, model : str
    sigma : float
    rule : str
    std : float or None
        Largest relative error of an output's standard deviation; None where the rule gives nothing.
    mean : float or None
        Largest error of a mean, in standard deviations of that output.
    note : str
        Why there is none, or the fallback.
    """

    package: str
    model: str
    sigma: float
    rule: str
    std: float | None
    mean: float | None
    note: str = ""


def compare(folder: Path, package: str, name: str) -> None:
    """Tell what :func:`agreement` finds."""
    opened(folder)
    for each in agreement(package, name):
        tell(asdict(each))


def agreement(package: str, name: str, draws: int = DRAWS) -> list[Agreement]:
    """Compare all rules with samples of one small model.

    Returns
    -------
    list of Agreement
    """
    torch.manual_seed(0)
    make, event = SMALL_MODELS[package, name]
    net = make().eval()
    calibrate(net, event)
    net = net.double()
    generator = torch.Generator().manual_seed(1)
    mean = torch.randn(1, *event, generator=generator, dtype=torch.float64)
    normals = torch.randn(draws, *event, generator=generator, dtype=torch.float64)
    found = []
    for sigma in (SMALL, MODERATE):
        with torch.no_grad():
            outputs = in_parts(net)(mean + sigma * normals)
        x = sr.DiagonalGaussian(mean, torch.full_like(mean, sigma**2))
        for rule in RULES:
            try:
                law, note = _predicted(net, x, rule)
            except Exception as error:  # noqa: BLE001  said in the table
                found.append(Agreement(package, name, sigma, rule, None, None, one_line(error)))
                continue
            # an output that a ReLU holds at zero has no scale to measure an error by
            true, moves = outputs.std(0), outputs.std(0) > 0
            std = float((law.variance[0].sqrt() / true - 1)[moves].abs().max())
            shift = float(((law.mean[0] - outputs.mean(0)) / true)[moves].abs().max())
            found.append(Agreement(package, name, sigma, rule, std, shift, note))
    return found


def _predicted(net: nn.Module, x: sr.DiagonalGaussian, rule: str) -> tuple[Any, str]:
    called: Callable[[Tensor], Tensor] = net if "marginal" in rule or rule == "sdp" else in_parts(net)
    with torch.no_grad():
        try:
            return sr.propagate(called, x, rule), ""
        except UnsupportedError:
            if "marginal" not in rule:
                raise
            return sr.propagate(called, x, f"{rule}:{FALLBACK}"), FALLBACK


def _resnet() -> nn.Module:
    tv: Any = import_module("torchvision.models.resnet")
    return tv.ResNet(tv.BasicBlock, [1, 1, 1, 1], num_classes=OUTPUTS)


def _vit() -> nn.Module:
    tv: Any = import_module("torchvision.models")
    return tv.VisionTransformer(16, 4, 2, 2, 16, 32, num_classes=OUTPUTS)


def _convnext() -> nn.Module:
    tv: Any = import_module("torchvision.models.convnext")
    stages = [tv.CNBlockConfig(16, 32, 1), tv.CNBlockConfig(32, None, 1)]
    return tv.ConvNeXt(stages, layer_scale=1.0, num_classes=OUTPUTS)


def _swin() -> nn.Module:
    tv: Any = import_module("torchvision.models.swin_transformer")
    return tv.SwinTransformer([2, 2], 8, [2, 2], [2, 2], [4, 4], num_classes=OUTPUTS)


def _swin_v2() -> nn.Module:
    tv: Any = import_module("torchvision.models.swin_transformer")
    parts = {"block": tv.SwinTransformerBlockV2, "downsample_layer": tv.PatchMergingV2}
    return tv.SwinTransformer([2, 2], 8, [2, 2], [2, 2], [4, 4], num_classes=OUTPUTS, **parts)


def _densenet() -> nn.Module:
    tv: Any = import_module("torchvision.models")
    return tv.DenseNet(4, (2, 2, 2, 2), 8, num_classes=OUTPUTS)


def _vgg() -> nn.Module:
    tv: Any = import_module("torchvision.models.vgg")
    net = tv.VGG(tv.make_layers([8, "M", 16, "M"], batch_norm=True), num_classes=OUTPUTS)
    net.avgpool, net.classifier = nn.AdaptiveAvgPool2d(1), nn.Linear(16, OUTPUTS)
    return net


def _of_torchvision(name: str, **options: Any) -> Callable[[], nn.Module]:
    def make() -> nn.Module:
        tv: Any = import_module("torchvision.models")
        return tv.get_model(name, num_classes=OUTPUTS, **options)

    return make


def _of_timm(name: str) -> Callable[[], nn.Module]:
    def make() -> nn.Module:
        timm: Any = import_module("timm")
        return timm.create_model(name, num_classes=OUTPUTS)

    return make


def _of_transformers(name: str) -> Callable[[], nn.Module]:
    return lambda: Model("transformers", name, 0).built(32)


_IMAGE, _LARGER = (3, 16, 16), (3, 32, 32)

SMALL_MODELS: dict[tuple[str, str], tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    ("torchvision", "ResNet, four blocks"): (_resnet, (3, 8, 8)),
    ("torchvision", "VGG with batch norm, two blocks"): (_vgg, _IMAGE),
    ("torchvision", "DenseNet, growth 4"): (_densenet, _LARGER),
    ("torchvision", "ConvNeXt, two blocks"): (_convnext, _IMAGE),
    ("torchvision", "ViT, two blocks"): (_vit, _IMAGE),
    ("torchvision", "Swin, four blocks"): (_swin, _IMAGE),
    ("torchvision", "Swin v2, four blocks"): (_swin_v2, _IMAGE),
    ("torchvision", "mobilenet_v2, a quarter as wide"): (
        _of_torchvision("mobilenet_v2", width_mult=0.25),
        _IMAGE,
    ),
    **{
        ("transformers", name): (_of_transformers(name), _LARGER if name == "ViT" else TOKENS)
        for name in ("ViT", "BERT", "GPT-2", "Llama (SwiGLU, shared heads)")
    },
    **{
        ("timm", name): (_of_timm(name), event)
        for name, event in (
            ("test_resnet", _IMAGE),
            ("test_byobnet", _IMAGE),
            ("test_efficientnet", _IMAGE),
            ("test_efficientnet_gn", _IMAGE),
            ("test_nfnet", _LARGER),
            ("test_convnext", _LARGER),
            ("test_mambaout", _LARGER),
        )
    },
    ("torchvision", "mobilenet_v3_small"): (_of_torchvision("mobilenet_v3_small"), _IMAGE),
    ("torchvision", "squeezenet1_1"): (_of_torchvision("squeezenet1_1"), _LARGER),
    ("torchvision", "shufflenet_v2_x0_5"): (_of_torchvision("shufflenet_v2_x0_5"), _LARGER),
}
"""How each is made, and the shape of its inputs, by package and name."""
