"""The modules of classifiers: ResNet, ConvNeXt, MLP-Mixer, transformers and a GRU."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812

GRID = 4


class Patches(nn.Module):
    """A grid of 4 x 4 patches without overlap, each mapped to a token (Dosovitskiy et al. 2021)."""

    def __init__(self, channels: int, size: int, width: int) -> None:
        super().__init__()
        self.projection = nn.Conv2d(channels, width, size // GRID, stride=size // GRID)

    def forward(self, x: Tensor) -> Tensor:
        """Map images (B, channels, size, size) to tokens (B, 16, width)."""
        return self.projection(x)[:, :, :GRID, :GRID].flatten(2).mT


def mlp(inputs: int, hidden: int) -> nn.Sequential:
    """Return two linear maps with GELU between them and equal input and output size."""
    return nn.Sequential(nn.Linear(inputs, hidden), nn.GELU(), nn.Linear(hidden, inputs))


class ChannelNorm(nn.LayerNorm):
    """LayerNorm over the channels at each position of an image (B, C, H, W)."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)


class ConvNeXtBlock(nn.Module):
    """A 7x7 convolution per channel, LayerNorm, two layers across channels, and a shortcut."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.depthwise = nn.Conv2d(width, width, 7, padding=3, groups=width)
        self.norm = ChannelNorm(width)
        self.expand = nn.Conv2d(width, 4 * width, 1)
        self.gelu = nn.GELU()
        self.contract = nn.Conv2d(4 * width, width, 1)
        self.scale = nn.Parameter(torch.full((width, 1, 1), 0.1))

    def forward(self, x: Tensor) -> Tensor:
        y = self.contract(self.gelu(self.expand(self.norm(self.depthwise(x)))))
        return x + self.scale * y


class ConvNeXt(nn.Module):
    """ConvNeXt (Liu et al. 2022) with one block in each of two stages, for small images.

    `width` is the number of channels of the first stage; the second has twice as many.
    """

    def __init__(self, channels: int = 1, classes: int = 10, width: int = 16) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(channels, width, 4, stride=4), ChannelNorm(width))
        self.stage1 = ConvNeXtBlock(width)
        self.downsample = nn.Sequential(ChannelNorm(width), nn.Conv2d(width, 2 * width, 2, stride=2))
        self.stage2 = ConvNeXtBlock(2 * width)
        self.norm = nn.LayerNorm(2 * width)
        self.head = nn.Linear(2 * width, classes)

    def forward(self, x: Tensor) -> Tensor:
        x = self.stage2(self.downsample(self.stage1(self.stem(x))))
        return self.head(self.norm(x.mean((2, 3))))


class MixerBlock(nn.Module):
    """An MLP over tokens and one over channels, each after a LayerNorm and with a shortcut."""

    def __init__(self, tokens: int, width: int) -> None:
        super().__init__()
        self.norm1, self.tokens = nn.LayerNorm(width), mlp(tokens, 2 * tokens)
        self.norm2, self.channels = nn.LayerNorm(width), mlp(width, 2 * width)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.tokens(self.norm1(x).mT).mT
        return x + self.channels(self.norm2(x))


class Mixer(nn.Module):
    """MLP-Mixer (Tolstikhin et al. 2021) with two blocks on 4 x 4 patches.

    `width` is the size of a token; hidden layers are twice as wide as their input.
    """

    def __init__(self, channels: int = 1, size: int = 28, classes: int = 10, width: int = 32) -> None:
        super().__init__()
        self.patches = Patches(channels, size, width)
        self.blocks = nn.Sequential(MixerBlock(GRID**2, width), MixerBlock(GRID**2, width))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, classes)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.norm(self.blocks(self.patches(x))).mean(1))


class GRUClassifier(nn.Module):
    """One layer of gated recurrent units (Cho et al. 2014); the last state gives the scores."""

    def __init__(self, features: int = 2, classes: int = 10, width: int = 32) -> None:
        super().__init__()
        self.gru = nn.GRU(features, width, batch_first=True)
        self.head = nn.Linear(width, classes)

    def forward(self, x: Tensor) -> Tensor:
        """Map sequences (B, length, features) to scores (B, classes)."""
        states, _ = self.gru(x)
        return self.head(states[:, -1])


class BasicBlock(nn.Module):
    """Two 3x3 convolutions and a shortcut (He et al. 2016, figure 2), as in torchvision."""

    def __init__(self, channels: int, planes: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(channels, planes, 3, stride, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(planes)
        self.relu1 = nn.ReLU()
        self.conv2 = nn.Conv2d(planes, planes, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(planes)
        self.relu2 = nn.ReLU()
        self.downsample: nn.Module = nn.Identity()
        if stride != 1 or channels != planes:
            projection = nn.Conv2d(channels, planes, 1, stride, bias=False)
            self.downsample = nn.Sequential(projection, nn.BatchNorm2d(planes))

    def forward(self, x: Tensor) -> Tensor:
        """Map images (B, channels, H, W) to (B, planes, H / stride, W / stride)."""
        y = self.relu1(self.bn1(self.conv1(x)))
        return self.relu2(self.bn2(self.conv2(y)) + self.downsample(x))


class ResNet(nn.Module):
    """ResNet (He et al. 2016) of basic blocks for small images, by default ResNet-18.

    `blocks` is the number of blocks per stage; each stage has twice the channels and half the height and
    width of the previous one. The stem is one 3x3 convolution of stride 1 or, with `max_pool`, torchvision's:
    7x7 with stride 2, and 3x3 max-pooling with stride 2. All other layers and the names of weights are
    torchvision's.
    """

    def __init__(
        self,
        channels: int = 3,
        classes: int = 10,
        width: int = 64,
        *,
        blocks: tuple[int, ...] = (2, 2, 2, 2),
        max_pool: bool = False,
    ) -> None:
        super().__init__()
        size, stride = (7, 2) if max_pool else (3, 1)
        self.conv1 = nn.Conv2d(channels, width, size, stride, padding=size // 2, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.relu = nn.ReLU()
        self.maxpool = nn.MaxPool2d(3, 2, padding=1) if max_pool else nn.Identity()
        self.stages = [f"layer{number}" for number in range(1, len(blocks) + 1)]
        before = planes = width
        for number, (name, count) in enumerate(zip(self.stages, blocks, strict=True)):
            planes = width * 2**number
            first = BasicBlock(before, planes, 2 if number else 1)
            others = (BasicBlock(planes, planes, 1) for _ in range(count - 1))
            self.add_module(name, nn.Sequential(first, *others))
            before = planes
        self.avgpool = nn.AdaptiveAvgPool2d(1)
        self.fc = nn.Linear(planes, classes)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")

    def forward(self, x: Tensor) -> Tensor:
        """Map images (B, channels, H, W) to scores (B, classes)."""
        x = self.maxpool(self.relu(self.bn1(self.conv1(x))))
        for name in self.stages:
            x = getattr(self, name)(x)
        return self.fc(torch.flatten(self.avgpool(x), 1))


def cnn3(channels: int, size: int, classes: int, width: int) -> nn.Sequential:
    """Return the paper's 3-layer CNN for images of `size` pixels a side.

    It has `width` and 2 `width` channels, and 137 226 parameters on MNIST (1x28x28) and 157 578 on CIFAR-10
    (3x32x32) for a width of 64. The paper does not state the padding. It is 1 here, which halves the image as
    usual and gives a largest layer of 64x14x14 = 12 544 units on MNIST. The paper puts the cost of DVIA,
    which it takes to be linear in the largest layer, at "over 12 500" passes there; without padding the
    largest layer has 10 816 units.
    """
    side = math.ceil(size / 4)
    return nn.Sequential(
        nn.Conv2d(channels, width, 3, stride=2, padding=1),
        nn.ReLU(),
        nn.Conv2d(width, 2 * width, 3, stride=2, padding=1),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(2 * width * side**2, classes),
    )


HEADS = 4


class SelfAttention(nn.Module):
    """Scaled dot-product attention with four heads among the tokens of an example (Vaswani et al. 2017).

    `width` is the size of a token, a multiple of the number of heads. With `causal` a token attends only to
    itself and to earlier tokens.
    """

    def __init__(self, width: int, *, causal: bool = False) -> None:
        super().__init__()
        self.causal = causal
        self.q = nn.Linear(width, width)
        self.k = nn.Linear(width, width)
        self.v = nn.Linear(width, width)
        self.out = nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        """Map tokens (B, T, width) to tokens of the same shape."""
        queries, keys, values = _by_head(self.q(x)), _by_head(self.k(x)), _by_head(self.v(x))
        mixed = F.scaled_dot_product_attention(queries, keys, values, is_causal=self.causal)
        return self.out(mixed.transpose(1, 2).flatten(2))


def _by_head(tokens: Tensor) -> Tensor:
    """Reshape (B, T, width) to (B, HEADS, T, width / HEADS)."""
    return tokens.unflatten(-1, (HEADS, -1)).transpose(1, 2)


class Block(nn.Module):
    """Attention and an MLP, each after a norm and with a shortcut."""

    def __init__(self, norm: Callable[[], nn.Module], attention: nn.Module, mlp: nn.Module) -> None:
        super().__init__()
        self.norm1, self.attention = norm(), attention
        self.norm2, self.mlp = norm(), mlp

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attention(self.norm1(x))
        return x + self.mlp(self.norm2(x))


class ViT(nn.Module):
    """Vision transformer (Dosovitskiy et al. 2021) with two blocks on 4 x 4 patches and mean pooling."""

    def __init__(self, channels: int = 1, size: int = 28, classes: int = 10, width: int = 32) -> None:
        super().__init__()
        self.patches = Patches(channels, size, width)
        self.position = nn.Parameter(0.02 * torch.randn(GRID**2, width))
        blocks = (
            Block(partial(nn.LayerNorm, width), SelfAttention(width), mlp(width, 2 * width)) for _ in range(2)
        )
        self.blocks = nn.Sequential(*blocks)
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, classes)

    def forward(self, x: Tensor) -> Tensor:
        x = self.blocks(self.patches(x) + self.position)
        return self.head(self.norm(x).mean(1))


class SwiGLU(nn.Module):
    """Gated linear unit with SiLU (Shazeer 2020), with equal input and output size."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.gate, self.up = nn.Linear(width, 2 * width, bias=False), nn.Linear(width, 2 * width, bias=False)
        self.down = nn.Linear(2 * width, width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.down(F.silu(self.gate(x)) * self.up(x))


class Decoder(nn.Module):
    """Causal transformer with RMSNorm and SwiGLU (Touvron et al. 2023); the last token gives the scores."""

    def __init__(self, features: int = 2, length: int = 12, classes: int = 10, width: int = 32) -> None:
        super().__init__()
        self.embedding = nn.Linear(features, width)
        self.position = nn.Parameter(0.02 * torch.randn(length, width))
        norm = partial(nn.RMSNorm, width, eps=1e-6)
        blocks = (Block(norm, SelfAttention(width, causal=True), SwiGLU(width)) for _ in range(2))
        self.blocks = nn.Sequential(*blocks)
        self.norm = nn.RMSNorm(width, eps=1e-6)
        self.head = nn.Linear(width, classes, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """Map sequences (B, length, features) to scores (B, classes)."""
        x = self.blocks(self.embedding(x) + self.position)
        return self.head(self.norm(x)[:, -1])
