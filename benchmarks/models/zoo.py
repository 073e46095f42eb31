"""The models: all classifiers of torchvision, 120 of timm, four configurations of transformers."""

from __future__ import annotations

import csv
import re
import sys
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib import import_module
from itertools import islice
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

HOW_MANY = {"torchvision": 80, "timm": 120, "transformers": 4}
"""Models of each package."""
FOLDER = "SDP_BENCH_ZOO"
"""Variable of the environment that tells the models' processes where the packages are."""
TIMM = Path(__file__).with_name("timm.csv")
SIDES = (32, 64, 96, 112, 128, 160, 192, 224, 240, 256, 288, 299, 384)
"""Sides of images, of which a model is given the smallest that it accepts."""
OUTPUTS = 10
TOKENS = (6, 32)
WIDE = 8e7  # weights of the largest model of timm that is listed


@dataclass(frozen=True)
class Model:
    """A published architecture.

    Attributes
    ----------
    package : str
    name : str
        As its package knows it.
    weights : int
        Their number, by which models are put in order.
    """

    package: str
    name: str
    weights: int

    def made(self) -> tuple[nn.Module, tuple[int, ...]]:
        """The net in evaluation mode, and the smallest event shape that it accepts.

        Raises
        ------
        RuntimeError
            With what the model says of the largest of :data:`SIDES`, if it accepts none.
        """
        events = [TOKENS] if self.package == "transformers" and self.name != "ViT" else _images()
        said = ""
        for event in events:
            torch.manual_seed(0)
            try:
                net = self.built(event[-1]).eval()
                calibrate(net, event)
                if net(torch.zeros(2, *event)).shape != (2, OUTPUTS):
                    raise ValueError("other outputs than asked for")  # noqa: TRY301
            except Exception as error:  # noqa: BLE001  models say in their own ways that an image is too small
                said = str(error)
            else:
                return net, event
        raise RuntimeError(said)

    def built(self, side: int) -> nn.Module:
        """The net for images of one size, with random weights."""
        return _MAKERS[self.package](self.name, side)


class Part(nn.Module):
    """A model as a function of one tensor."""

    def __init__(self, model: nn.Module, call: Callable[[Any, Tensor], Tensor]) -> None:
        super().__init__()
        self.model, self.call = model, call

    def forward(self, x: Tensor) -> Tensor:
        return self.call(self.model, x)


def opened(folder: Path) -> None:
    """Let the packages of a folder be imported, torchvision without its compiled ops."""
    if _LIBRARIES:
        return
    warnings.simplefilter("ignore")
    sys.path.append(str(folder))
    _LIBRARIES.append(torch.library.Library("torchvision", "DEF"))
    text = (folder / "torchvision" / "_meta_registrations.py").read_text(encoding="utf-8")
    for name in sorted({*re.findall(r"torchvision::(\w+)", text), "nms", "roi_align", "_cuda_version"}):
        _LIBRARIES[-1].define(f"{name}(Tensor x) -> Tensor")


@torch.no_grad()
def calibrate(net: nn.Module, event: tuple[int, ...]) -> None:
    """Give batch norms the statistics of images, and a head of zeros numbers, or signals would vanish."""
    for module in net.modules():
        if isinstance(module, nn.Linear) and module.out_features == OUTPUTS and not module.weight.any():
            nn.init.normal_(module.weight, std=module.in_features**-0.5)
    norms = [m for m in net.modules() if isinstance(m, nn.modules.batchnorm._BatchNorm)]
    for norm in norms:
        norm.momentum = None
        norm.train()
    if norms:
        net(torch.randn(16, *event))
    net.eval()


def models() -> list[Model]:
    """All of them, those with fewest weights first."""
    return sorted([*_of_torchvision(), *_of_timm(), *_of_transformers()], key=lambda model: model.weights)


def choose() -> None:
    """List timm's models: the smallest of each family, then of other kinds in them, up to 120.

    A kind is a name up to its first number or underline, tests and what converts weights left out. A family's
    second kind comes before any third, and among those the one with fewest weights.
    """
    timm: Any = import_module("timm")
    families: dict[str, dict[str, tuple[int, str]]] = {}
    for name in timm.list_models():
        if name.startswith(("test_", "tf_")):
            continue
        with torch.device("meta"):
            weights = _weights(timm.create_model(name, num_classes=OUTPUTS))
        kinds = families.setdefault(timm.models._registry._model_to_module[name], {})
        kind = re.match(r"(?:legacy_|vit_)?[a-z]+", name)
        if kind and weights <= WIDE:
            kinds[kind.group()] = min(kinds.get(kind.group(), (weights, name)), (weights, name))
    ranked = [
        (place, weights, family, name)
        for family, kinds in families.items()
        for place, (weights, name) in enumerate(sorted(kinds.values()))
    ]
    kept = sorted(
        (family, weights, name) for _, weights, family, name in islice(sorted(ranked), HOW_MANY["timm"])
    )
    with TIMM.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerows([("family", "weights", "name"), *kept])


_LIBRARIES: list[torch.library.Library] = []  # which forget what they declare when they are dropped


def _images() -> list[tuple[int, ...]]:
    return [(3, side, side) for side in SIDES]


def _weights(net: nn.Module) -> int:
    return sum(p.numel() for p in net.parameters())


def _of_torchvision() -> Iterator[Model]:
    tv: Any = import_module("torchvision.models")
    for name in tv.list_models(module=tv):
        yield Model("torchvision", name, tv.get_model_weights(name).DEFAULT.meta["num_params"])


def _of_timm() -> Iterator[Model]:
    with TIMM.open(encoding="utf-8", newline="") as file:
        yield from (Model("timm", row["name"], int(row["weights"])) for row in csv.DictReader(file))


def _of_transformers() -> Iterator[Model]:
    for name in _CONFIGURED:
        yield Model("transformers", name, _weights(_made_by_transformers(name, 32)))


def _made_by_torchvision(name: str, side: int) -> nn.Module:
    tv: Any = import_module("torchvision.models")
    options: dict[str, Any] = {"num_classes": OUTPUTS}
    if name in ("inception_v3", "googlenet"):
        options |= {"init_weights": False}
    if name.startswith("vit_"):
        options |= {"image_size": side}
    if name.startswith("maxvit"):
        options |= {"input_size": (side, side)}
    return tv.get_model(name, **options)


def _made_by_timm(name: str, side: int) -> nn.Module:
    timm: Any = import_module("timm")
    try:
        return timm.create_model(name, num_classes=OUTPUTS, img_size=side)
    except TypeError:  # a net that takes images of any size
        return timm.create_model(name, num_classes=OUTPUTS)


_SMALL = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64}


def _vit(hf: Any) -> nn.Module:
    config = hf.ViTConfig(**_SMALL, image_size=32, patch_size=8, num_labels=OUTPUTS)
    return Part(hf.ViTForImageClassification(config), lambda m, x: m(pixel_values=x).logits)


def _bert(hf: Any) -> nn.Module:
    config = hf.BertConfig(**_SMALL, num_labels=OUTPUTS)
    return Part(hf.BertForSequenceClassification(config), lambda m, x: m(inputs_embeds=x).logits)


def _gpt2(hf: Any) -> nn.Module:
    config = hf.GPT2Config(n_embd=32, n_layer=2, n_head=4, vocab_size=OUTPUTS, bos_token_id=0, eos_token_id=0)
    return Part(hf.GPT2LMHeadModel(config), _last)


def _llama(hf: Any) -> nn.Module:
    config = hf.LlamaConfig(**_SMALL, num_key_value_heads=2, vocab_size=OUTPUTS)
    return Part(hf.LlamaForCausalLM(config), _last)


def _last(model: Any, x: Tensor) -> Tensor:
    return model(inputs_embeds=x).logits[:, -1]


_CONFIGURED = {"ViT": _vit, "BERT": _bert, "GPT-2": _gpt2, "Llama (SwiGLU, shared heads)": _llama}


def _made_by_transformers(name: str, side: int) -> nn.Module:  # noqa: ARG001  one size each
    return _CONFIGURED[name](import_module("transformers"))


_MAKERS: dict[str, Callable[[str, int], nn.Module]] = {
    "torchvision": _made_by_torchvision,
    "timm": _made_by_timm,
    "transformers": _made_by_transformers,
}
