"""Which published models layer-wise rules understand: every op of each, and how long a trace takes.

    pip install --no-deps --target zoo torchvision==0.28.0 timm==1.0.31 transformers==5.23.0
    pip install --target zoo pillow safetensors huggingface_hub tokenizers pyyaml regex requests
    python benchmarks/models.py zoo torchvision timm transformers

Weights are random. Of timm the smallest model of each family, up to 80 million weights; of transformers small
configurations, fed with embeddings where they read tokens. A trace runs the net on two batches and checks its
steps against the net's own output. torchvision's compiled ops, which no classifier calls, need not load.
"""

from __future__ import annotations

import re
import sys
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from sdp_ref.graph import ops
from sdp_ref.graph.trace import UntraceableError, trace

SMALL = ("tiny", "nano", "pico", "femto", "atto", "xxs", "mini", "_b0", "18", "small", "_s", "_xs", "test")
LARGEST = 8e7
SIZES = {"inception_v3": 299}

Made = tuple[str, Callable[[], nn.Module], tuple[int, ...]]


class Part(nn.Module):
    """A model as a function of one tensor."""

    def __init__(self, model: nn.Module, call: Callable[[Any, Tensor], Tensor]) -> None:
        super().__init__()
        self.model, self.call = model, call

    def forward(self, x: Tensor) -> Tensor:
        return self.call(self.model, x)


def declare_compiled_ops(folder: Path) -> torch.library.Library:
    """Names of torchvision's compiled ops, so that it can be imported without them."""
    library = torch.library.Library("torchvision", "DEF")
    text = (folder / "torchvision" / "_meta_registrations.py").read_text()
    for name in {*re.findall(r"torchvision::(\w+)", text), "nms", "roi_align", "_cuda_version"}:
        library.define(f"{name}(Tensor x) -> Tensor")
    return library


def of_torchvision() -> Iterator[Made]:
    from torchvision import models

    for name in models.list_models(module=models):
        options = {"init_weights": False} if name in ("inception_v3", "googlenet") else {}
        size = SIZES.get(name, 224)
        yield name, lambda name=name, options=options: models.get_model(name, **options), (3, size, size)


def of_timm() -> Iterator[Made]:
    import timm

    families: dict[str, list[str]] = {}
    for name in timm.list_models():
        families.setdefault(timm.models._registry._model_to_module[name], []).append(name)
    for names in families.values():
        name = min(names, key=lambda n: (not any(word in n for word in SMALL), len(n)))
        shape = tuple(timm.get_pretrained_cfg(name).input_size)
        yield name, lambda name=name: timm.create_model(name, pretrained=False), shape


def of_transformers() -> Iterator[Made]:
    import transformers as hf

    small = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64}

    def embedded(m: Any, x: Tensor) -> Tensor:
        out = m(inputs_embeds=x).logits
        return out[:, -1] if out.ndim == 3 else out

    def vit() -> nn.Module:
        config = hf.ViTConfig(**small, image_size=32, patch_size=8, num_labels=10)
        return Part(hf.ViTForImageClassification(config), lambda m, x: m(pixel_values=x).logits)

    def bert() -> nn.Module:
        return Part(hf.BertForSequenceClassification(hf.BertConfig(**small, num_labels=3)), embedded)

    def gpt2() -> nn.Module:
        return Part(
            hf.GPT2LMHeadModel(hf.GPT2Config(n_embd=32, n_layer=2, n_head=4, vocab_size=50)), embedded
        )

    def llama() -> nn.Module:
        config = hf.LlamaConfig(**small, num_key_value_heads=2, vocab_size=50)
        return Part(hf.LlamaForCausalLM(config), embedded)

    yield from (("ViT", vit, (3, 32, 32)), ("BERT", bert, (6, 32)), ("GPT-2", gpt2, (6, 32)))
    yield "Llama (SwiGLU, shared heads)", llama, (6, 32)


PACKAGES = {"torchvision": of_torchvision, "timm": of_timm, "transformers": of_transformers}


def look(name: str, make: Callable[[], nn.Module], shape: tuple[int, ...], largest: float) -> str:
    """Trace a model; say what is unknown of it."""
    torch.manual_seed(0)
    net = make().eval()
    if sum(p.numel() for p in net.parameters()) > largest:
        return "too large"
    start = time.perf_counter()
    try:
        steps = trace(net, torch.zeros(1, *shape))
    except (UntraceableError, ValueError, RuntimeError) as error:
        print(f"| {name} | - | - | {str(error).splitlines()[0]} |", flush=True)
        return "refused"
    unknown = Counter(step.module.text for step in steps if isinstance(step.module, ops.Unknown))
    text = ", ".join(f"{count} {op}" for op, count in unknown.most_common(3))
    print(f"| {name} | {len(steps)} | {time.perf_counter() - start:.1f} s | {text} |", flush=True)
    return "unknown ops" if unknown else "known"


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    zoo = Path(sys.argv[1])
    sys.path.append(str(zoo))
    declared = declare_compiled_ops(zoo)
    for package in sys.argv[2:]:
        print(f"\n{package}\n\n| model | steps | trace | ops without a formula |\n| --- | --- | --- | --- |")
        largest = LARGEST if package == "timm" else float("inf")
        found = Counter(look(*made, largest) for made in PACKAGES[package]())
        print(f"\n{package}: {dict(found)}")
