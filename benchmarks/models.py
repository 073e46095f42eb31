"""Which published models the rules take, what they approximate there, and how long that takes.

    pip install --no-deps --target zoo torchvision==0.28.0 timm==1.0.31 transformers==5.23.0
    pip install --target zoo pillow safetensors huggingface_hub tokenizers pyyaml regex requests
    python -m benchmarks.models run zoo
    python -m benchmarks.models agree zoo

`run` and `agree` measure what docs/models.csv and docs/models_agreement.csv lack (a stopped run is resumed)
and write the summary in docs/models.md. `table` writes the summary only. `choose zoo` writes timm.csv, the
list of timm's models. Weights are random. torchvision's compiled ops, which no classifier calls, are not
loaded.
"""

from __future__ import annotations

import argparse
import itertools
import math
import re
import sys
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

import pandas as pd
import torch
from torch import Tensor, nn

import sdp_ref as sr
from sdp_bench.bench.errors import one_line
from sdp_bench.bench.executors.local import Limits, in_separate_process
from sdp_ref.errors import UnsupportedError
from sdp_ref.graph import ops
from sdp_ref.graph.trace import trace

DOCS, TIMM = Path(__file__).parents[1] / "docs", Path(__file__).with_name("timm.csv")
MODELS, AGREEMENT = DOCS / "models.csv", DOCS / "models_agreement.csv"
HOW_MANY = {"torchvision": 80, "timm": 120, "transformers": 4}
TRANSFORMERS = ("ViT", "BERT", "GPT-2", "Llama (SwiGLU, shared heads)")
WIDEST = 8e7  # weights of the largest model of timm that is listed
SIDES = (32, 64, 96, 112, 128, 160, 192, 224, 240, 256, 288, 299, 384)
"""Sides of images; the smallest that works is used."""
OUTPUTS, TOKENS = 10, (6, 32)
PART = 128  # rows that a net is given at a time: thousands at once would not fit into memory
FALLBACK, UNKNOWN = "fallback=linearise", "; no formula: "

SIGMA = 1e-4
TRACE, SLOW = "trace", "unscented"
RULES = ("sdp", "monte_carlo", "marginal_sdp", "marginal_moment_matching")
SLOWEST = 60.0  # s of the processor, beyond which `unscented` is not run

SMALL, MODERATE = 1e-5, 0.1  # noise under which each small net is affine, and under which none is
COMPARED = ("sdp", "unscented", "marginal_sdp", "marginal_moment_matching", "monte_carlo:samples=1000")
DRAWS = 20_000

Row = dict[str, Any]


def stored(path: Path) -> pd.DataFrame:
    """Rows of a CSV file; numbers may be missing, text may be empty."""
    return pd.read_csv(path).fillna({"event": "", "note": ""})


def fill(path: Path, rows: Sequence[Row], measure: Callable[..., Row], folder: Path, limits: Limits) -> None:
    """Append the rows that a file lacks, each measured in a separate process; `rows` have the keys only."""
    table = stored(path)
    known = set(table[list(rows[0])].itertuples(index=False, name=None))
    left = [row for row in rows if tuple(row.values()) not in known]
    for number, row in enumerate(left):
        print(f"{len(left) - number} to go: {', '.join(map(str, row.values()))}", flush=True)
        try:
            cells = in_separate_process(measure, folder, row, limits=limits)
        except Exception as error:  # noqa: BLE001  noted in the table
            cells = {"note": one_line(error)}
        line = pd.DataFrame([row | cells], columns=table.columns)
        line.to_csv(path, mode="a", header=False, index=False, float_format="%.4g")


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
    """A model of transformers as a function of one tensor: its scores, or those of the last token."""

    def __init__(self, model: nn.Module, argument: str = "inputs_embeds") -> None:
        super().__init__()
        self.model, self.argument = model, argument

    def forward(self, x: Tensor) -> Tensor:
        logits = self.model(**{self.argument: x}).logits
        return logits[:, -1] if logits.ndim == 3 else logits


def build(package: str, name: str, side: int | None = None) -> nn.Module:
    """A net with random weights, for images of one size."""
    library: Any = import_module("torchvision.models" if package == "torchvision" else package)
    if package == "transformers":
        return _transformer(library, name)
    options: Row = {"num_classes": OUTPUTS}
    if package == "torchvision":
        if name in {"inception_v3", "googlenet"}:
            options["init_weights"] = False
        if name.startswith(("vit_", "maxvit")):
            options |= {"image_size": side} if name.startswith("vit_") else {"input_size": (side, side)}
        return library.get_model(name, **options)
    with suppress(TypeError):  # of a net that takes images of any size; timm ignores a size of None
        return library.create_model(name, img_size=side, **options)
    return library.create_model(name, **options)


def _transformer(hf: Any, name: str) -> nn.Module:
    sizes = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64}
    match name:
        case "ViT":
            config = hf.ViTConfig(**sizes, image_size=32, patch_size=8, num_labels=OUTPUTS)
            return Wrapped(hf.ViTForImageClassification(config), "pixel_values")
        case "BERT":
            return Wrapped(hf.BertForSequenceClassification(hf.BertConfig(**sizes, num_labels=OUTPUTS)))
        case "GPT-2":
            tokens = {"vocab_size": OUTPUTS, "bos_token_id": 0, "eos_token_id": 0}
            return Wrapped(hf.GPT2LMHeadModel(hf.GPT2Config(n_embd=32, n_layer=2, n_head=4, **tokens)))
    return Wrapped(hf.LlamaForCausalLM(hf.LlamaConfig(**sizes, num_key_value_heads=2, vocab_size=OUTPUTS)))


@torch.no_grad()
def calibrated(net: nn.Module, event: tuple[int, ...]) -> nn.Module:
    """The net with batch norms that have the statistics of images, and random numbers in a head of zeros.

    Otherwise signals would vanish.
    """
    net.eval()
    for module in net.modules():
        if isinstance(module, nn.Linear) and module.out_features == OUTPUTS and not module.weight.any():
            nn.init.normal_(module.weight, std=module.in_features**-0.5)
        if isinstance(module, nn.modules.batchnorm._BatchNorm):
            module.momentum = None
            module.train()
    net(torch.randn(16, *event))
    return net.eval()


def made(package: str, name: str) -> tuple[nn.Module, tuple[int, ...]]:
    """The net in evaluation mode, and the smallest shape of an input that it accepts."""
    is_text = package == "transformers" and name != "ViT"
    message = f"its outputs are not {OUTPUTS} numbers"
    for event in [TOKENS] if is_text else [(3, side, side) for side in SIDES]:
        torch.manual_seed(0)
        try:
            net = calibrated(build(package, name, event[-1]), event)
            if net(torch.zeros(2, *event)).shape == (2, OUTPUTS):
                return net, event
        except Exception as error:  # noqa: BLE001  each model has its own error for too small an image
            message = str(error)
    raise RuntimeError(message)


def models() -> list[Row]:
    """Package, name and number of weights of all models, those with fewest weights first."""
    tv: Any = import_module("torchvision.models")
    listed = [
        ("torchvision", name, tv.get_model_weights(name).DEFAULT.meta["num_params"])
        for name in tv.list_models(module=tv)
    ]
    timm = pd.read_csv(TIMM)
    listed += [("timm", *model) for model in timm[["name", "weights"]].itertuples(index=False, name=None)]
    listed += [("transformers", name, _weights(build("transformers", name))) for name in TRANSFORMERS]
    frame = pd.DataFrame(listed, columns=["package", "model", "weights"])
    return frame.sort_values(["weights", "package", "model"]).to_dict("records")


def choose() -> None:
    """List 120 models of timm: the smallest of each family, then of further kinds in these families.

    A kind is a name up to its first number or underscore, without tests and converted weights. The second
    kinds of all families come before third kinds, and among those the model with fewest weights.
    """
    timm: Any = import_module("timm")
    kinds = {name: re.match(r"(?!test_|tf_)(?:legacy_|vit_)?[a-z]+", name) for name in timm.list_models()}
    family = timm.models._registry._model_to_module
    listed = [(family[name], kind.group(), name) for name, kind in kinds.items() if kind]
    frame = pd.DataFrame(listed, columns=["family", "kind", "name"])
    with torch.device("meta"):
        frame["weights"] = [_weights(timm.create_model(name, num_classes=OUTPUTS)) for name in frame["name"]]
    frame = frame[frame["weights"] <= WIDEST].sort_values(["weights", "name"])
    smallest = frame.drop_duplicates(["family", "kind"])
    ranked = smallest.assign(rank=smallest.groupby("family").cumcount())
    chosen = ranked.sort_values(["rank", "weights", "family", "name"]).head(HOW_MANY["timm"])
    columns = ["family", "weights", "name"]
    chosen.sort_values(columns)[columns].to_csv(TIMM, index=False)


def _weights(net: nn.Module) -> int:
    return sum(p.numel() for p in net.parameters())


# Published models --------------------------------------------------------------------------------------


def measured(folder: Path, row: Row) -> Row:
    """Cells of a row: a trace, or the prediction of a rule.

    `std` and `shift` are root mean squares: of standard deviations, and of the mean's distance from f(mean).
    """
    opened(folder)
    net, event = made(row["package"], row["model"])
    generator = torch.Generator().manual_seed(1)
    x = sr.DiagonalGaussian(torch.randn(1, *event, generator=generator), torch.full((1, *event), SIGMA**2))
    cells = _traced(net, x) if row["part"] == TRACE else _predicted(net, x, row["part"])
    return {"event": "x".join(map(str, event)), **cells}


def _traced(net: nn.Module, x: sr.DiagonalGaussian) -> Row:
    start = time.process_time()
    steps = trace(net, x.mean)
    seconds = time.process_time() - start
    unknown = Counter(step.module.text for step in steps if isinstance(step.module, ops.Unknown))
    note = f"{len(steps)} steps" + (UNKNOWN + _counted(unknown) if unknown else "")
    return {"seconds": seconds, "note": note}


def _root_mean_square(x: torch.Tensor) -> float:
    return float(x.double().square().mean().sqrt())


@torch.no_grad()
def _predicted(net: nn.Module, x: sr.DiagonalGaussian, rule: str) -> Row:
    at_mean = net(x.mean)
    if rule == SLOW:
        rows = x.mean.expand(PART, *x.event_shape).contiguous()
        start = time.process_time()
        net(rows)
        passes = 2 * math.prod(x.event_shape) + 1
        seconds = passes * (time.process_time() - start) / PART
        if seconds > SLOWEST:
            return {"note": f"{passes} passes, about {seconds:.0f} s"}
    start = time.process_time()
    law, note = propagated(net, x, rule)
    seconds = time.process_time() - start
    if not (law.mean.isfinite().all() and law.variance.isfinite().all()):
        raise FloatingPointError("a prediction that is not finite")
    std = _root_mean_square(law.variance.sqrt())
    shift = _root_mean_square(law.mean - at_mean)
    approximated = _counted(Counter(re.sub(r" at '.*'$", "", text) for text in law.notes))
    notes = "; ".join(filter(None, (note, approximated)))
    return {"seconds": seconds, "std": std, "shift": shift, "note": notes}


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


# Small models compared with samples ----------------------------------------------------------------------


def small_models() -> dict[tuple[str, str], tuple[tuple[int, ...], Callable[[], nn.Module]]]:
    """Shape of an input and what makes the net, by package and name."""
    tv: Any = import_module("torchvision.models")
    image, larger, classes = (3, 16, 16), (3, 32, 32), {"num_classes": OUTPUTS}
    block, v2 = tv.convnext.CNBlockConfig, tv.swin_transformer
    swin = partial(tv.SwinTransformer, [2, 2], 8, [2, 2], [2, 2], [4, 4], **classes)
    swin_v2 = partial(swin, block=v2.SwinTransformerBlockV2, downsample_layer=v2.PatchMergingV2)
    convnext = partial(tv.ConvNeXt, [block(16, 32, 1), block(32, None, 1)], layer_scale=1.0, **classes)

    def vgg() -> nn.Module:
        net = tv.VGG(tv.vgg.make_layers([8, "M", 16, "M"], batch_norm=True), **classes)
        net.avgpool, net.classifier = nn.AdaptiveAvgPool2d(1), nn.Linear(16, OUTPUTS)
        return net

    own = {
        "ResNet, four blocks": ((3, 8, 8), partial(tv.ResNet, tv.resnet.BasicBlock, [1, 1, 1, 1], **classes)),
        "VGG with batch norm, two blocks": (image, vgg),
        "DenseNet, growth 4": (larger, partial(tv.DenseNet, 4, (2, 2, 2, 2), 8, **classes)),
        "ConvNeXt, two blocks": (image, convnext),
        "ViT, two blocks": (image, partial(tv.VisionTransformer, 16, 4, 2, 2, 16, 32, **classes)),
        "Swin, four blocks": (image, swin),
        "Swin v2, four blocks": (image, swin_v2),
        "mobilenet_v2, a quarter as wide": (image, partial(tv.mobilenet_v2, width_mult=0.25, **classes)),
    }
    named = {
        "torchvision": {"mobilenet_v3_small": image, "squeezenet1_1": larger, "shufflenet_v2_x0_5": larger},
        "transformers": {name: larger if name == "ViT" else TOKENS for name in TRANSFORMERS},
        "timm": {
            **{f"test_{name}": image for name in ("resnet", "byobnet", "efficientnet", "efficientnet_gn")},
            **{f"test_{name}": larger for name in ("nfnet", "convnext", "mambaout")},
        },
    }
    return {("torchvision", name): model for name, model in own.items()} | {
        (package, name): (event, partial(build, package, name))
        for package, events in named.items()
        for name, event in events.items()
    }


def agreement(folder: Path, row: Row) -> Row:
    """Cells of a row: the largest errors of a rule for a small model, compared with samples."""
    opened(folder)
    event, make = small_models()[row["package"], row["model"]]
    torch.manual_seed(0)
    net = calibrated(make(), event).double()
    generator = torch.Generator().manual_seed(1)
    mean = torch.randn(1, *event, generator=generator, dtype=torch.float64)
    normals = torch.randn(DRAWS, *event, generator=generator, dtype=torch.float64)
    law, note = propagated(
        net, sr.DiagonalGaussian(mean, torch.full_like(mean, row["sigma"] ** 2)), row["rule"]
    )
    with torch.no_grad():
        outputs = _in_parts(net)(mean + row["sigma"] * normals)
    std, moves = outputs.std(0), outputs.std(0) > 0  # an output that a ReLU holds at zero has no scale
    std_error = float((law.variance[0].sqrt() / std - 1)[moves].abs().max())
    mean_error = float(((law.mean[0] - outputs.mean(0)) / std)[moves].abs().max())
    return {"std": std_error, "mean": mean_error, "note": note}


# Tables ------------------------------------------------------------------------------------------------

ALL = (*RULES, SLOW)
_MARGINAL = {"marginal_sdp": "marginal SDP", "marginal_moment_matching": "marginal moments"}
_DRAWN = {"monte_carlo": "100 draws", "monte_carlo:samples=1000": "1000 draws"}
SHORT = {"sdp": "SDP", **_MARGINAL, **_DRAWN, SLOW: SLOW, TRACE: TRACE}


def with_summary(page: str, rows: pd.DataFrame) -> str:
    """The text of docs/models.md with the summary of these rows."""
    table = [[str(cell).replace("|", "\\|") for cell in row] for row in summary(rows)]
    table.insert(1, ["---"] * len(table[0]))
    lines = "".join(f"| {' | '.join(row)} |\n" for row in table)
    begin, end = "<!-- summary: made by benchmarks/models.py -->\n", "<!-- summary: end -->"
    before, _, rest = page.partition(begin)
    return f"{before}{begin}\n{lines}{end}{rest.partition(end)[2]}"


def summary(rows: pd.DataFrame) -> Iterator[Sequence[Any]]:
    """For each package the number of models for which each rule gives a prediction, and its median time."""
    yield ["package", "tried", "traced", "every op known"] + [SHORT[rule] for rule in ALL]
    for package, many in HOW_MANY.items():
        parts = {part: rows[(rows.package == package) & (rows.part == part)] for part in (TRACE, *ALL)}
        traced = parts[TRACE].dropna(subset="seconds")
        known = len(traced) - traced.note.str.contains(UNKNOWN, regex=False).sum()
        seconds = [parts[rule].seconds for rule in ALL]
        times = (f", {s.median():.2g} s" if s.count() else "" for s in seconds)
        cells = (f"{s.count()} of {len(s)}{time}" for s, time in zip(seconds, times, strict=True))
        yield package, f"{len(parts[TRACE])} of {many}", len(traced), known, *cells


def main() -> None:
    raw = argparse.RawTextHelpFormatter
    parser = argparse.ArgumentParser("python -m benchmarks.models", description=__doc__, formatter_class=raw)
    parser.add_argument("action", choices=("run", "agree", "table", "choose"))
    parser.add_argument("folder", type=Path, nargs="?", help="folder that contains the packages")
    parser.add_argument("--limit", type=float, default=240, help="seconds of a process (default 240)")
    parser.add_argument("--memory", type=float, default=8, help="GiB of a process (default 8)")
    options = parser.parse_args()
    folder, limits = options.folder, Limits(options.limit, options.memory)
    if options.action != "table":
        if folder is None or not (folder / "torchvision").is_dir():
            parser.error(f"{options.action} needs the folder with torchvision, timm and transformers")
        folder = folder.resolve()
        opened(folder)
    match options.action:
        case "choose":
            choose()
            return
        case "run":
            listed = models()
            rows = [model | {"part": part} for part in (TRACE, *ALL) for model in listed]
            fill(MODELS, rows, measured, folder, limits)
        case "agree":
            keys = itertools.product(small_models(), (SMALL, MODERATE), COMPARED)
            rows = [{"package": p, "model": m, "sigma": sigma, "rule": rule} for (p, m), sigma, rule in keys]
            fill(AGREEMENT, rows, agreement, folder, limits)
    page = DOCS / "models.md"
    page.write_text(with_summary(page.read_text(encoding="utf-8"), stored(MODELS)), encoding="utf-8")


if __name__ == "__main__":
    from benchmarks.models import main  # the process of a model cannot unpickle functions of __main__

    main()
