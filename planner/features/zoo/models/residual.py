"""Residual networks and Tofu's widened ones."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from planner.features.zoo.models.convolutional import CLASSES
from planner.features.zoo.models.forward import Forward
from planner.features.zoo.models.step import training_step
from planner.graph.core.model import Graph

BLOCKS: Final[Mapping[int, tuple[int, int, int, int]]] = {
    50: (3, 4, 6, 3),
    101: (3, 4, 23, 3),
    152: (3, 8, 36, 3),
}
"""Bottlenecks in each of the four groups, by depth (He et al. 2016, table 1; for 152 also Tofu, section 7.4)."""
_EXPANSION = 4


def resnet(depth: int, *, batch: int, widening: int = 1, optimizer: str = "sgd") -> Graph:
    """ResNet of bottlenecks on 224x224 images, or WResNet where it is widened.

    Group g (0 to 3) computes with 64 * 2^g * widening channels and has four times as many at its blocks' ends. Stem and
    shortcuts are widened, too: so Tofu's Table 2 comes out. The stride of a group stands on its first 3x3 convolution,
    as in torchvision (25,557,032, 44,549,160 and 60,192,808 parameters without widening).

    Args:
        depth: a key of ``BLOCKS``.
        batch: samples.
        widening: factor on every number of channels (Tofu, section 7.1).
        optimizer: its name.
    """
    model = Forward(f"resnet-{depth}" if widening == 1 else f"wresnet-{depth}-{widening}")
    x = model.input("x", batch, 3, 224, 224)
    x = _convolution(model, "stem", x, 64 * widening, 7, stride=2, pad=3)
    x = model.pool("stem.pool", "MaxPool", x, 3, stride=2, pad=1)
    for group, blocks in enumerate(BLOCKS[depth]):
        for block in range(blocks):
            stride = 2 if group and not block else 1
            x = _bottleneck(model, f"group{group + 1}.block{block + 1}", x, 64 * 2**group * widening, stride)
    x = model.global_average_pool("pool", x)
    x = model.linear("fc", x, CLASSES)
    return training_step(model, x, loss="softmax_cross_entropy", optimizer=optimizer)


def _convolution(
    model: Forward, layer: str, x: str, filters: int, kernel: int, *, stride: int = 1, pad: int = 0, relu: bool = True
) -> str:
    x = model.conv(f"{layer}.conv", x, filters, kernel, stride=stride, pad=pad)
    x = model.batch_norm(f"{layer}.norm", x)
    return model.relu(f"{layer}.relu", x) if relu else x


def _bottleneck(model: Forward, layer: str, x: str, width: int, stride: int) -> str:
    """1x1, 3x3 and 1x1 beside the identity, or beside a 1x1 where the shape changes."""
    outer = width * _EXPANSION
    shortcut = x
    if stride != 1 or model.shape(x)[1] != outer:
        shortcut = _convolution(model, f"{layer}.shortcut", x, outer, 1, stride=stride, relu=False)
    x = _convolution(model, f"{layer}.in", x, width, 1)
    x = _convolution(model, f"{layer}.mid", x, width, 3, stride=stride, pad=1)
    x = _convolution(model, f"{layer}.out", x, outer, 1, relu=False)
    return model.relu(f"{layer}.relu", model.each(f"{layer}.add", "Add", x, shortcut))
