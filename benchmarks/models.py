"""Which published models the rules take, what they approximate there, and how long that takes.

    pip install --no-deps --target zoo torchvision==0.28.0 timm==1.0.31 transformers==5.23.0
    pip install --target zoo pillow safetensors huggingface_hub tokenizers pyyaml regex requests
    python -m benchmarks.models run zoo
    python -m benchmarks.models agree zoo

`run` and `agree` measure what docs/models.csv and docs/models_agreement.csv lack (a stopped run is resumed)
and write the tables of docs/models.md. `table` writes the tables only. `choose zoo` writes timm.csv, the list
of timm's models. Weights are random. torchvision's compiled ops, which no classifier calls, are not loaded.
"""

from __future__ import annotations

import argparse
import math
import re
import sys
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Any

import pandas as pd
import torch
from torch import Tensor, nn

import sdp_ref as sr
from sdp_bench.bench.errors import one_line
from sdp_bench.bench.executors.local import Limits, apart, tell
from sdp_ref.errors import UnsupportedError
from sdp_ref.graph import ops
from sdp_ref.graph.trace import trace

DOCS, TIMM = Path(__file__).parents[1] / "docs", Path(__file__).with_name("timm.csv")
MODELS, AGREEMENT = DOCS / "models.csv", DOCS / "models_agreement.csv"
HOW_MANY = {"torchvision": 80, "timm": 120, "transformers": 4}
TRANSFORMERS = ("ViT", "BERT", "GPT-2", "Llama (SwiGLU, shared heads)")
WIDEST = 8e7  # weights of the largest model of timm that is listed
SIDES = (
    32,
    64,
    96,
    112,
    128,
    160,
    192,
    224,
    240,
    256,
    288,
    299,
    384,
)  # of images; the smallest that works is used
OUTPUTS, TOKENS = 10, (6, 32)
PART = 128  # rows that a net is given at a time: thousands at once would not fit into memory
FALLBACK, UNKNOWN = "fallback=linearise", "; no formula: "

SIGMA = 1e-4
TRACE, SLOW = "trace", "unscented"
RULES = ("sdp", "monte_carlo", "marginal_sdp", "marginal_moment_matching")
SLOWEST = 60.0  # s of the processor, beyond which `unscented` is not run
PASSES = ((TRACE, *RULES[:-1]), RULES[-1:], (SLOW,))  # parts that one process measures, the slowest last

SMALL, MODERATE = 1e-5, 0.1  # noise under which each small net is affine, and under which none is
COMPARED = ("sdp", "unscented", "marginal_sdp", "marginal_moment_matching", "monte_carlo:samples=1000")
DRAWS = 20_000
STD, MEAN = 0.03, 0.05
"""Bounds at small noise: relative error of a standard deviation under `sdp` and `unscented` (five standard
errors of the samples), and error of a mean, in standard deviations, under all rules without sampling."""


def stored(path: Path) -> pd.DataFrame:
    """Rows of a CSV file; numbers may be missing, text may be empty."""
    numbers = {name: [""] for name in ("seconds", "std", "shift", "mean")}
    return pd.read_csv(path, keep_default_na=False, na_values=numbers)


def append(path: Path, row: dict[str, Any]) -> None:
    """Append a row to a CSV file, or begin the file."""
    pd.DataFrame([row]).to_csv(path, mode="a", header=not path.exists(), index=False, float_format="%.4g")


# Models ------------------------------------------------------------------------------------------------

_LIBRARIES: list[torch.library.Library] = []  # a library that is deleted withdraws its declarations


def opened(folder: Path) -> None:
    """Make the packages of a folder importable, torchvision without its compiled ops."""
    if _LIBRARIES:
        return
    warnings.simplefilter("ignore")
    sys.path.append(str(folder))
    _LIBRARIES.append(torch.library.Library("torchvision", "DEF"))
    text = (folder / "torchvision" / "_meta_registrations.py").read_text(encoding="utf-8")
    for name in sorted({*re.findall(r"torchvision::(\w+)", text), "nms", "roi_align", "_cuda_version"}):
        _LIBRARIES[-1].define(f"{name}(Tensor x) -> Tensor")


class Wrapped(nn.Module):
    """A model of transformers as a function of one tensor."""

    def __init__(self, model: nn.Module, call: Callable[[Any, Tensor], Tensor]) -> None:
        super().__init__()
        self.model, self.call = model, call

    def forward(self, x: Tensor) -> Tensor:
        return self.call(self.model, x)


def build(package: str, name: str, side: int | None = None, **options: Any) -> nn.Module:
    """A net with random weights, for images of one size."""
    library: Any = import_module("torchvision.models" if package == "torchvision" else package)
    if package == "transformers":
        return _transformer(library, name)
    options["num_classes"] = OUTPUTS
    if package == "torchvision":
        if name in {"inception_v3", "googlenet"}:
            options["init_weights"] = False
        if name.startswith("vit_"):
            options["image_size"] = side
        if name.startswith("maxvit"):
            options["input_size"] = (side, side)
        return library.get_model(name, **options)
    with suppress(TypeError):  # of a net that takes images of any size
        if side is not None:
            return library.create_model(name, img_size=side, **options)
    return library.create_model(name, **options)


def _transformer(hf: Any, name: str) -> nn.Module:
    sizes = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64}
    if name == "ViT":
        config = hf.ViTConfig(**sizes, image_size=32, patch_size=8, num_labels=OUTPUTS)
        return Wrapped(hf.ViTForImageClassification(config), lambda m, x: m(pixel_values=x).logits)
    if name == "BERT":
        model = hf.BertForSequenceClassification(hf.BertConfig(**sizes, num_labels=OUTPUTS))
        return Wrapped(model, lambda m, x: m(inputs_embeds=x).logits)
    if name == "GPT-2":
        tokens = {"vocab_size": OUTPUTS, "bos_token_id": 0, "eos_token_id": 0}
        model = hf.GPT2LMHeadModel(hf.GPT2Config(n_embd=32, n_layer=2, n_head=4, **tokens))
    else:
        model = hf.LlamaForCausalLM(hf.LlamaConfig(**sizes, num_key_value_heads=2, vocab_size=OUTPUTS))
    return Wrapped(model, lambda m, x: m(inputs_embeds=x).logits[:, -1])


@torch.no_grad()
def calibrated(net: nn.Module, event: tuple[int, ...]) -> nn.Module:
    """The net with batch norms that have the statistics of images, and random numbers in a head of zeros.

    Otherwise signals would vanish.
    """
    net.eval()
    for module in net.modules():
        if isinstance(module, nn.Linear) and module.out_features == OUTPUTS and not module.weight.any():
            nn.init.normal_(module.weight, std=module.in_features**-0.5)
    norms = [m for m in net.modules() if isinstance(m, nn.modules.batchnorm._BatchNorm)]
    for norm in norms:
        norm.momentum = None
        norm.train()
    if norms:
        net(torch.randn(16, *event))
    return net.eval()


def made(package: str, name: str) -> tuple[nn.Module, tuple[int, ...]]:
    """The net in evaluation mode, and the smallest shape of an input that it accepts."""
    is_text = package == "transformers" and name != "ViT"
    message = ""
    for event in [TOKENS] if is_text else [(3, side, side) for side in SIDES]:
        torch.manual_seed(0)
        try:
            net = calibrated(build(package, name, event[-1]), event)
            if net(torch.zeros(2, *event)).shape != (2, OUTPUTS):
                raise ValueError(f"its outputs are not {OUTPUTS} numbers")  # noqa: TRY301
        except Exception as error:  # noqa: BLE001  each model has its own error for too small an image
            message = str(error)
        else:
            return net, event
    raise RuntimeError(message)


def models() -> list[tuple[int, str, str]]:
    """Number of weights, package and name of all models, those with fewest weights first."""
    tv: Any = import_module("torchvision.models")
    listed = [
        (tv.get_model_weights(name).DEFAULT.meta["num_params"], "torchvision", name)
        for name in tv.list_models(module=tv)
    ]
    timm = pd.read_csv(TIMM)
    listed += [(weights, "timm", name) for weights, name in zip(timm.weights, timm.name, strict=True)]
    listed += [(_weights(build("transformers", name)), "transformers", name) for name in TRANSFORMERS]
    return sorted(listed)


def choose() -> None:
    """List 120 models of timm: the smallest of each family, then of further kinds in these families.

    A kind is a name up to its first number or underscore, without tests and converted weights. The second
    kinds of all families come before third kinds, and among those the model with fewest weights.
    """
    timm: Any = import_module("timm")
    families: dict[str, dict[str, tuple[int, str]]] = {}
    for name in timm.list_models():
        kind = re.match(r"(?!test_|tf_)(?:legacy_|vit_)?[a-z]+", name)
        if kind is None:
            continue
        with torch.device("meta"):
            weights = _weights(timm.create_model(name, num_classes=OUTPUTS))
        if weights <= WIDEST:
            kinds = families.setdefault(timm.models._registry._model_to_module[name], {})
            kinds[kind.group()] = min(kinds.get(kind.group(), (weights, name)), (weights, name))
    ranked = sorted(
        (rank, weights, family, name)
        for family, kinds in families.items()
        for rank, (weights, name) in enumerate(sorted(kinds.values()))
    )[: HOW_MANY["timm"]]
    columns = ["family", "weights", "name"]
    chosen = sorted((family, weights, name) for _, weights, family, name in ranked)
    pd.DataFrame(chosen, columns=columns).to_csv(TIMM, index=False)


def _weights(net: nn.Module) -> int:
    return sum(p.numel() for p in net.parameters())


# Measurements, each model in a process of its own --------------------------------------------------------


def measure(folder: Path, weights: int, package: str, name: str, parts: Iterable[str]) -> None:
    """Tell a row for each of some parts of a model."""
    opened(folder)
    net, event = made(package, name)
    generator = torch.Generator().manual_seed(1)
    x = sr.DiagonalGaussian(torch.randn(1, *event, generator=generator), torch.full((1, *event), SIGMA**2))
    for part in parts:
        try:
            cells = _traced(net, x) if part == TRACE else _predicted(net, x, part)
        except Exception as error:  # noqa: BLE001  noted in the table
            cells = (None, None, None, one_line(error))
        tell(_row(weights, package, name, part, "x".join(map(str, event)), cells))


def _row(
    weights: int, package: str, name: str, part: str, event: str, cells: Sequence[Any]
) -> dict[str, Any]:
    known = {"package": package, "model": name, "weights": weights, "event": event, "part": part}
    return known | dict(zip(("seconds", "std", "shift", "note"), cells, strict=True))


def _traced(net: nn.Module, x: sr.DiagonalGaussian) -> tuple[Any, ...]:
    start = time.process_time()
    steps = trace(net, x.mean)
    seconds = time.process_time() - start
    unknown = Counter(step.module.text for step in steps if isinstance(step.module, ops.Unknown))
    return seconds, None, None, f"{len(steps)} steps" + (UNKNOWN + _counted(unknown) if unknown else "")


@torch.no_grad()
def _predicted(net: nn.Module, x: sr.DiagonalGaussian, rule: str) -> tuple[Any, ...]:
    """Seconds, root mean squares of standard deviations and of the mean's distance from f(mean), notes."""
    at_mean = net(x.mean)
    if rule == SLOW:
        rows = x.mean.expand(PART, *x.event_shape).contiguous()
        start = time.process_time()
        net(rows)
        passes = 2 * math.prod(x.event_shape) + 1
        seconds = passes * (time.process_time() - start) / PART
        if seconds > SLOWEST:
            return None, None, None, f"{passes} passes, about {seconds:.0f} s"
    start = time.process_time()
    law, note = propagated(net, x, rule)
    seconds = time.process_time() - start
    if not (law.mean.isfinite().all() and law.variance.isfinite().all()):
        raise FloatingPointError("a prediction that is not finite")
    std, shift = (float(v.double().square().mean().sqrt()) for v in (law.variance.sqrt(), law.mean - at_mean))
    approximated = _counted(Counter(re.sub(r" at '.*'$", "", text) for text in law.notes))
    return seconds, std, shift, "; ".join(filter(None, (note, approximated)))


@torch.no_grad()
def propagated(net: nn.Module, x: sr.DiagonalGaussian, rule: str) -> tuple[Any, str]:
    """Law of the output, and the fallback that a marginal rule needed."""
    called = net if "marginal" in rule or rule == "sdp" else _in_parts(net)
    try:
        return sr.propagate(called, x, rule), ""
    except UnsupportedError:
        if "marginal" not in rule:
            raise
        return sr.propagate(called, x, f"{rule}:{FALLBACK}"), FALLBACK


def _in_parts(net: nn.Module) -> Callable[[Tensor], Tensor]:
    return lambda x: torch.cat([net(rows) for rows in x.split(PART)])


def _counted(texts: Counter[str]) -> str:
    return ", ".join(f"{count} {text}" for text, count in texts.most_common())


def run(folder: Path, limits: Limits, path: Path = MODELS) -> None:
    """Measure the missing parts of all models, those with fewest weights first."""

    def missing(package: str, name: str, parts: Sequence[str]) -> list[str]:
        known = stored(path) if path.exists() else pd.DataFrame(columns=["package", "model", "part"])
        known = set(known[(known.package == package) & (known.model == name)].part)
        return [part for part in parts if part not in known]

    listed = models()
    left = [(model, parts) for parts in PASSES for model in listed if missing(*model[1:], parts)]
    for number, (model, parts) in enumerate(left):
        print(f"{len(left) - number} to go: {model[-1]}, {parts[-1]}", flush=True)
        while todo := missing(*model[1:], parts):
            note = ""
            try:
                apart(measure, folder, *model, todo, limits=limits, told=lambda row: append(path, row))
            except Exception as error:  # noqa: BLE001  noted in the table
                note = one_line(error)
            if todo := missing(*model[1:], parts):
                append(path, _row(*model, todo[0], "", (None, None, None, note)))


# Small models compared with samples ----------------------------------------------------------------------

_IMAGE, _LARGER, _CLASSES = (3, 16, 16), (3, 32, 32), {"num_classes": OUTPUTS}


def _vgg(tv: Any) -> nn.Module:
    net = tv.VGG(tv.vgg.make_layers([8, "M", 16, "M"], batch_norm=True), **_CLASSES)
    net.avgpool, net.classifier = nn.AdaptiveAvgPool2d(1), nn.Linear(16, OUTPUTS)
    return net


def _convnext(tv: Any) -> nn.Module:
    stages = [tv.convnext.CNBlockConfig(16, 32, 1), tv.convnext.CNBlockConfig(32, None, 1)]
    return tv.ConvNeXt(stages, layer_scale=1.0, **_CLASSES)


def _swin(tv: Any, **parts: Any) -> nn.Module:
    return tv.SwinTransformer([2, 2], 8, [2, 2], [2, 2], [4, 4], **_CLASSES, **parts)


def _swin_v2(tv: Any) -> nn.Module:
    v2 = tv.swin_transformer
    return _swin(tv, block=v2.SwinTransformerBlockV2, downsample_layer=v2.PatchMergingV2)


SMALL_MODELS: dict[tuple[str, str], tuple[tuple[int, ...], Callable[[Any], nn.Module] | None]] = {
    ("torchvision", "ResNet, four blocks"): (
        (3, 8, 8),
        lambda tv: tv.ResNet(tv.resnet.BasicBlock, [1, 1, 1, 1], **_CLASSES),
    ),
    ("torchvision", "VGG with batch norm, two blocks"): (_IMAGE, _vgg),
    ("torchvision", "DenseNet, growth 4"): (_LARGER, lambda tv: tv.DenseNet(4, (2, 2, 2, 2), 8, **_CLASSES)),
    ("torchvision", "ConvNeXt, two blocks"): (_IMAGE, _convnext),
    ("torchvision", "ViT, two blocks"): (
        _IMAGE,
        lambda tv: tv.VisionTransformer(16, 4, 2, 2, 16, 32, **_CLASSES),
    ),
    ("torchvision", "Swin, four blocks"): (_IMAGE, _swin),
    ("torchvision", "Swin v2, four blocks"): (_IMAGE, _swin_v2),
    ("torchvision", "mobilenet_v2, a quarter as wide"): (
        _IMAGE,
        lambda _: build("torchvision", "mobilenet_v2", width_mult=0.25),
    ),
    **{("transformers", name): (_LARGER if name == "ViT" else TOKENS, None) for name in TRANSFORMERS},
    **{("timm", f"test_{name}"): (_IMAGE, None) for name in ("resnet", "byobnet", "efficientnet")},
    ("timm", "test_efficientnet_gn"): (_IMAGE, None),
    **{("timm", f"test_{name}"): (_LARGER, None) for name in ("nfnet", "convnext", "mambaout")},
    ("torchvision", "mobilenet_v3_small"): (_IMAGE, None),
    ("torchvision", "squeezenet1_1"): (_LARGER, None),
    ("torchvision", "shufflenet_v2_x0_5"): (_LARGER, None),
}
"""Shape of an input, and what makes the net of torchvision.models, by package and name."""


def agreement(package: str, name: str, folder: Path, draws: int = DRAWS) -> list[dict[str, Any]]:
    """Largest errors of all rules compared with samples of one small model."""
    opened(folder)
    event, make = SMALL_MODELS[package, name]
    torch.manual_seed(0)
    net = make(import_module("torchvision.models")) if make else build(package, name)
    net = calibrated(net, event).double()
    generator = torch.Generator().manual_seed(1)
    mean = torch.randn(1, *event, generator=generator, dtype=torch.float64)
    normals = torch.randn(draws, *event, generator=generator, dtype=torch.float64)
    rows = []
    for sigma in (SMALL, MODERATE):
        with torch.no_grad():
            outputs = _in_parts(net)(mean + sigma * normals)
        x = sr.DiagonalGaussian(mean, torch.full_like(mean, sigma**2))
        std, moves = outputs.std(0), outputs.std(0) > 0  # an output that a ReLU holds at zero has no scale
        for rule in COMPARED:
            row = {"package": package, "model": name, "sigma": sigma, "rule": rule, "std": None, "mean": None}
            try:
                law, row["note"] = propagated(net, x, rule)
            except Exception as error:  # noqa: BLE001  noted in the table
                row["note"] = one_line(error)
            else:
                row["std"] = float((law.variance[0].sqrt() / std - 1)[moves].abs().max())
                row["mean"] = float(((law.mean[0] - outputs.mean(0)) / std)[moves].abs().max())
            rows.append(row)
    return rows


def agree(folder: Path, limits: Limits, path: Path = AGREEMENT) -> None:
    """Compare the rules with samples of the missing small models."""
    known = stored(path) if path.exists() else pd.DataFrame(columns=["package", "model"])
    left = [model for model in SMALL_MODELS if model not in set(zip(known.package, known.model, strict=True))]
    for number, (package, name) in enumerate(left):
        print(f"{len(left) - number} to go: {name}, compared with samples", flush=True)
        try:
            rows = apart(agreement, package, name, folder, limits=limits)
        except Exception as error:  # noqa: BLE001  the other models are compared all the same
            print(f"{name}: {one_line(error)}", flush=True)
            continue
        for row in rows:
            append(path, row)


# Tables ------------------------------------------------------------------------------------------------

ALL = (*RULES, SLOW)
_MARGINAL = {"marginal_sdp": "marginal SDP", "marginal_moment_matching": "marginal moments"}
_DRAWN = {"monte_carlo": "100 draws", "monte_carlo:samples=1000": "1000 draws"}
SHORT = {"sdp": "SDP", **_MARGINAL, **_DRAWN, SLOW: SLOW, TRACE: TRACE}


def with_tables(page: str, rows: pd.DataFrame, compared: pd.DataFrame) -> str:
    """The text of docs/models.md with the tables of these rows."""
    tables = {"summary": summary(rows), "agreement": agreements(compared)}
    for name, (head, *body) in ((name, list(lines)) for name, lines in tables.items()):
        begin, end = f"<!-- {name}: made by benchmarks/models.py -->\n", f"<!-- {name}: end -->"
        before, _, rest = page.partition(begin)
        lines = [
            [str(cell).replace("|", "\\|") for cell in line] for line in (head, ["---"] * len(head), *body)
        ]
        table = "".join(f"| {' | '.join(line)} |\n" for line in lines)
        page = f"{before}{begin}\n{table}{end}{rest.partition(end)[2]}"
    return page


def summary(rows: pd.DataFrame) -> Iterator[Sequence[Any]]:
    """For each package the number of models for which each rule gives a prediction, and its median time."""
    yield "package", "tried", "traced", "every op known", *(SHORT[rule] for rule in ALL)
    for package in HOW_MANY:
        parts = {part: rows[(rows.package == package) & (rows.part == part)] for part in (TRACE, *ALL)}
        traced = parts[TRACE].dropna(subset="seconds")
        known = len(traced) - traced.note.str.contains(UNKNOWN, regex=False).sum()
        cells = []
        for rule in ALL:
            seconds = parts[rule].seconds
            time = f", {seconds.median():.2g} s" if seconds.count() else ""
            cells.append(f"{seconds.count()} of {len(seconds)}{time}")
        yield package, f"{len(parts[TRACE])} of {HOW_MANY[package]}", len(traced), known, *cells


def agreements(rows: pd.DataFrame) -> Iterator[Sequence[Any]]:
    """One line for each small model: errors of standard deviations and of means, in percent."""
    cases = [(sigma, rule) for sigma in (SMALL, MODERATE) for rule in COMPARED]
    yield "model", *(f"{SHORT[rule]}, σ = {sigma:g}" for sigma, rule in cases)
    for (package, name), own in rows.groupby(["package", "model"], sort=False):
        errors = {
            (row.sigma, row.rule): " / ".join(
                f"{100 * e:.2g}" if e < 1 else f"{100 * e:.0f}" for e in (row.std, row.mean)
            )
            for row in own.dropna(subset=["std", "mean"]).itertuples()
        }
        yield f"{name} ({package})", *(errors.get(case, "-") for case in cases)


def main() -> None:
    raw = argparse.RawTextHelpFormatter
    parser = argparse.ArgumentParser("python -m benchmarks.models", description=__doc__, formatter_class=raw)
    parser.add_argument("action", choices=("run", "agree", "table", "choose"))
    parser.add_argument("folder", type=Path, nargs="?", help="folder that contains the packages")
    parser.add_argument("--limit", type=float, default=240, help="seconds of a process (default 240)")
    parser.add_argument("--memory", type=float, default=8, help="GiB of a process (default 8)")
    options = parser.parse_args()
    if options.action != "table":
        if options.folder is None or not (options.folder / "torchvision").is_dir():
            parser.error(
                f"{options.action} needs the folder that contains torchvision, timm and transformers"
            )
        folder = options.folder.resolve()
        opened(folder)
    if options.action == "choose":
        choose()
        return
    if options.action in {"run", "agree"}:
        (run if options.action == "run" else agree)(folder, Limits(options.limit, options.memory))
    page = DOCS / "models.md"
    text = with_tables(page.read_text(encoding="utf-8"), stored(MODELS), stored(AGREEMENT))
    page.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    from benchmarks.models import main  # the process of a model cannot unpickle functions of __main__

    main()
