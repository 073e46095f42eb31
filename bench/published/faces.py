"""R-Net and O-Net of the face detector MTCNN (Zhang et al. 2016), in the package facenet-pytorch."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from .base import PublishedNet


class RNet(nn.Module):
    """Map a crop of 24 × 24 pixels, shape (B, 3, 24, 24), to the probabilities of no face and a face."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, 28, 3)
        self.prelu1 = nn.PReLU(28)
        self.pool1 = nn.MaxPool2d(3, 2, ceil_mode=True)
        self.conv2 = nn.Conv2d(28, 48, 3)
        self.prelu2 = nn.PReLU(48)
        self.pool2 = nn.MaxPool2d(3, 2, ceil_mode=True)
        self.conv3 = nn.Conv2d(48, 64, 2)
        self.prelu3 = nn.PReLU(64)
        self.dense4 = nn.Linear(576, 128)
        self.prelu4 = nn.PReLU(128)
        self.dense5_1 = nn.Linear(128, 2)
        self.dense5_2 = nn.Linear(128, 4)  # the box, which this net leaves out

    def forward(self, x: Tensor) -> Tensor:
        x = self.pool1(self.prelu1(self.conv1(x)))
        x = self.pool2(self.prelu2(self.conv2(x)))
        x = self.prelu3(self.conv3(x))
        x = self.prelu4(self.dense4(x.permute(0, 3, 2, 1).flatten(1)))
        return torch.softmax(self.dense5_1(x), 1)


class ONet(nn.Module):
    """Map a crop of 48 × 48 pixels, shape (B, 3, 48, 48), to a box (4) and five landmarks (10), in crops.

    The first four outputs are shifts of the box's edges. Then follow the horizontal and the vertical
    positions of eyes, nose and corners of the mouth.
    """

    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, 32, 3)
        self.prelu1 = nn.PReLU(32)
        self.pool1 = nn.MaxPool2d(3, 2, ceil_mode=True)
        self.conv2 = nn.Conv2d(32, 64, 3)
        self.prelu2 = nn.PReLU(64)
        self.pool2 = nn.MaxPool2d(3, 2, ceil_mode=True)
        self.conv3 = nn.Conv2d(64, 64, 3)
        self.prelu3 = nn.PReLU(64)
        self.pool3 = nn.MaxPool2d(2, 2, ceil_mode=True)
        self.conv4 = nn.Conv2d(64, 128, 2)
        self.prelu4 = nn.PReLU(128)
        self.dense5 = nn.Linear(1152, 256)
        self.prelu5 = nn.PReLU(256)
        self.dense6_1 = nn.Linear(256, 2)  # the probabilities, which this net leaves out
        self.dense6_2 = nn.Linear(256, 4)
        self.dense6_3 = nn.Linear(256, 10)

    def forward(self, x: Tensor) -> Tensor:
        x = self.pool1(self.prelu1(self.conv1(x)))
        x = self.pool2(self.prelu2(self.conv2(x)))
        x = self.pool3(self.prelu3(self.conv3(x)))
        x = self.prelu4(self.conv4(x))
        x = self.prelu5(self.dense5(x.permute(0, 3, 2, 1).flatten(1)))
        return torch.cat([self.dense6_2(x), self.dense6_3(x)], 1)


def build_rnet(weights: Path) -> nn.Module:
    net = RNet()
    net.load_state_dict(torch.load(weights, map_location="cpu", weights_only=True))
    return net.eval()


def build_onet(weights: Path) -> nn.Module:
    net = ONet()
    net.load_state_dict(torch.load(weights, map_location="cpu", weights_only=True))
    return net.eval()


def rnet_inputs() -> np.ndarray:
    return drawn_faces(24)


def onet_inputs() -> np.ndarray:
    return drawn_faces(48)


def drawn_faces(size: int) -> np.ndarray:
    """Return ten drawings, shape (10, 3, size, size): faces that differ in pose, light and colour.

    Pixels of 0 to 255 are shifted and scaled by (p - 127.5) / 128, as MTCNN expects.
    """
    axis = (np.arange(size) + 0.5) / size
    across, down = np.meshgrid(axis, axis)
    generator = np.random.default_rng(0)
    return np.stack([_face(across, down, generator) for _ in range(10)]).astype(np.float32)


def _face(across: np.ndarray, down: np.ndarray, generator: np.random.Generator) -> np.ndarray:
    turn, tilt = generator.uniform(-0.06, 0.06, 2)
    skin = np.array([215.0, 165.0, 135.0]) * generator.uniform(0.6, 1.1)
    background = generator.uniform(40, 200, 3)
    soft = 60.0  # steepness of edges, in 1 / size

    def inside(x: float, y: float, width: float, height: float) -> np.ndarray:
        radius = np.sqrt(((across - x - turn) / width) ** 2 + ((down - y - tilt) / height) ** 2)
        return 1 / (1 + np.exp(soft * min(width, height) * (radius - 1)))

    image = np.ones((3, *across.shape)) * background[:, None, None]
    light = 1 + 0.3 * (across - 0.5) * generator.choice([-1, 1])
    parts = [
        (inside(0.5, 0.42, 0.42, 0.50), np.array([60.0, 45.0, 35.0]) * generator.uniform(0.5, 2)),  # hair
        (inside(0.5, 0.55, 0.36, 0.45), skin),
        (inside(0.34, 0.42, 0.08, 0.025), skin * 0.35),  # brows
        (inside(0.66, 0.42, 0.08, 0.025), skin * 0.35),
        (inside(0.34, 0.48, 0.06, 0.035), np.array([50.0, 40.0, 40.0])),  # eyes
        (inside(0.66, 0.48, 0.06, 0.035), np.array([50.0, 40.0, 40.0])),
        (inside(0.5, 0.62, 0.05, 0.06), skin * 0.8),  # nose
        (inside(0.5, 0.78, 0.13, 0.035), np.array([150.0, 60.0, 60.0])),  # mouth
    ]
    for mask, colour in parts:
        image = image * (1 - mask) + colour[:, None, None] * mask
    return (np.clip(image * light, 0, 255) - 127.5) / 128


RNET = PublishedNet(
    name="rnet",
    title="whether an image shows a face (R-Net of MTCNN)",
    package="facenet-pytorch",
    version="2.6.0",
    weights="facenet_pytorch/data/rnet.pt",
    sha256="bbb937de72efc9ef83b186c49f5f558467a1d7e3453a8ece0d71a886633f6a86",
    build=build_rnet,
    inputs=rnet_inputs,
    sigmas=(0.01, 0.05, 0.2),
    samples=5_000,
    levels="pixel noise of 1, 6 and 26 of 255 grey levels",
    has_class=True,
)
ONET = PublishedNet(
    name="onet",
    title="box and landmarks of a face in an image (O-Net of MTCNN)",
    package="facenet-pytorch",
    version="2.6.0",
    weights="facenet_pytorch/data/onet.pt",
    sha256="165bfbe42940416ccfb977545cf0e976d5bf321f67083ae2aaaa5c764280118d",
    build=build_onet,
    inputs=onet_inputs,
    sigmas=(0.01, 0.05, 0.2),
    samples=1_000,
    levels="pixel noise of 1, 6 and 26 of 255 grey levels",
    has_class=False,
    is_slow=True,
)
