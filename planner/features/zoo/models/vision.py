"""Transformers of images: ViT and DiT."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from planner.features.zoo.models.attention import multi_head
from planner.features.zoo.models.convolutional import CLASSES
from planner.features.zoo.models.forward import Forward
from planner.features.zoo.models.network import Network
from planner.graph.core.model import DType

_BIASES = (True,) * 4
_DIFFUSION_TIMES = 1000
_FREQUENCIES = 256
"""Elements of a time's sines and cosines (Peebles and Xie 2023, as published)."""


@dataclass(frozen=True, slots=True)
class ImageShape:
    """The sizes of a transformer of square images."""

    blocks: int
    width: int
    heads: int
    channels: int
    image: int
    """Rows and columns."""
    patch: int

    @property
    def patches(self) -> int:
        """Patches of an image."""
        return (self.image // self.patch) ** 2


VIT_H: Final = ImageShape(32, 1280, 16, 3, 224, 14)
"""Dosovitskiy et al. 2021, table 1: 632 M parameters."""
DIT_XL: Final = ImageShape(28, 1152, 16, 4, 32, 2)
"""Peebles and Xie 2023, table 1: latents of 256x256 images, 675 M parameters with the fixed positions."""


def vit(name: str, shape: ImageShape, *, batch: int) -> Network:
    """A vision transformer with a classifier of 1,000 on its token of the class (Dosovitskiy et al. 2021).

    Args:
        name: of the graph.
        shape: its sizes.
        batch: samples.
    """
    model = Forward(name)
    x = _patches(model, model.input("x", batch, shape.channels, shape.image, shape.image), shape)
    token = model.parameter("class.token", 1, 1, shape.width)
    single = (batch, 1, shape.width)
    repeated = model.op("class", "Expand", [token, model.known("class.shape", np.array(single, np.int64))], single)
    x = model.concat("tokens", [repeated, x], axis=1)
    length = shape.patches + 1
    x = model.each("positions.add", "Add", x, model.parameter("positions", length, shape.width))
    x = model.reshape("rows", x, batch * length, shape.width)
    for number in range(1, shape.blocks + 1):
        block = f"block{number}"
        inner = model.layer_norm(f"{block}.norm1", x, bias=True)
        inner = _attention(model, f"{block}.attention", inner, shape, batch)
        x = model.each(f"{block}.add1", "Add", x, inner)
        inner = _mlp(model, block, model.layer_norm(f"{block}.norm2", x, bias=True))
        x = model.each(f"{block}.add2", "Add", x, inner)
    x = model.reshape("samples", model.layer_norm("norm", x, bias=True), batch, length, shape.width)
    x, _ = model.parted("first", x, (1, length - 1), axis=1)
    return Network(model, model.linear("head", model.flatten("flat", x), CLASSES), "softmax_cross_entropy")


def dit(name: str, shape: ImageShape, *, batch: int) -> Network:
    """A diffusion transformer with adaptive normalisation (Peebles and Xie 2023, DiT with adaLN-Zero blocks).

    Time and class say how each block's normalised tokens are scaled and shifted. Predicted are noise and variance of
    every latent, by the mean square; times are looked up in a table of their sines and cosines.

    Args:
        name: of the graph.
        shape: its sizes.
        batch: samples.
    """
    model, width = Forward(name), shape.width
    side = shape.image // shape.patch
    x = _patches(model, model.input("x", batch, shape.channels, shape.image, shape.image), shape)
    x = model.each("positions.add", "Add", x, model.known("positions", positions_2d(side, width)))
    condition = _condition(model, batch, width)
    for number in range(1, shape.blocks + 1):
        block = f"block{number}"
        shift1, scale1, gate1, shift2, scale2, gate2 = _modulation(model, f"{block}.modulation", condition, 6)
        inner = _modulated(model, f"{block}.norm1", x, shift1, scale1)
        inner = _attention(model, f"{block}.attention", inner, shape, batch)
        x = _gated(model, f"{block}.add1", x, inner, gate1)
        inner = _mlp(model, block, _modulated(model, f"{block}.norm2", x, shift2, scale2))
        x = _gated(model, f"{block}.add2", x, inner, gate2)
    shift, scale = _modulation(model, "final.modulation", condition, 2)
    out_channels = 2 * shape.channels
    x = _modulated(model, "final.norm", x, shift, scale)
    x = model.project("final", x, shape.patch**2 * out_channels, bias=True)
    x = model.reshape("final.patches", x, batch, side, side, shape.patch, shape.patch, out_channels)
    x = model.transpose("final.turned", x, 0, 5, 1, 3, 2, 4)
    return Network(model, model.reshape("image", x, batch, out_channels, shape.image, shape.image), "mse")


def _patches(model: Forward, x: str, shape: ImageShape) -> str:
    """[batch, patches, width]: a convolution whose windows do not overlap."""
    x = model.conv("patches", x, shape.width, shape.patch, stride=shape.patch, bias=True)
    x = model.reshape("patches.flat", x, model.shape(x)[0], shape.width, shape.patches)
    return model.transpose("patches.turned", x, 0, 2, 1)


def _attention(model: Forward, layer: str, x: str, shape: ImageShape, batch: int) -> str:
    return multi_head(model, layer, x, x, batch=batch, heads=shape.heads, width=shape.width, bias=_BIASES)


def _mlp(model: Forward, block: str, x: str) -> str:
    width = model.shape(x)[1]
    x = model.each(f"{block}.gelu", "Gelu", model.project(f"{block}.wide", x, 4 * width, bias=True))
    return model.project(f"{block}.narrow", x, width, bias=True)


def _condition(model: Forward, batch: int, width: int) -> str:
    """The embeddings of time and class together, after silu: [batch, width]."""
    table = model.known("times", sinusoids(_DIFFUSION_TIMES, _FREQUENCIES))
    x = model.op("time", "Gather", [table, model.input("t", batch, dtype=DType.INT64)], (batch, _FREQUENCIES), axis=0)
    x = model.project("time2", model.silu("time1", model.project("time1", x, width, bias=True)), width, bias=True)
    classes = model.parameter("classes", CLASSES + 1, width)  # one more: no class (Ho and Salimans 2022)
    label = model.op("class", "Gather", [classes, model.input("y", batch, dtype=DType.INT64)], (batch, width), axis=0)
    return model.silu("condition", model.each("condition.add", "Add", x, label))


def _modulation(model: Forward, layer: str, condition: str, parts: int) -> tuple[str, ...]:
    """Numbers for each sample and column, [batch, 1, width] each."""
    batch, width = model.shape(condition)
    x = model.project(layer, condition, parts * width, bias=True)
    return model.split(f"{layer}.split", model.reshape(f"{layer}.parts", x, batch, parts, width), parts, axis=1)


def _modulated(model: Forward, layer: str, x: str, shift: str, scale: str) -> str:
    """Rows of what is normalised, times 1 + scale, plus shift."""
    batch, length, width = model.shape(x)
    unit = model.known("one", np.ones((), np.float32))
    x = model.plain_layer_norm(layer, x, epsilon=1e-6)
    x = model.each(f"{layer}.scaled", "Mul", x, model.each(f"{layer}.scale", "Add", scale, unit))
    return model.reshape(f"{layer}.rows", model.each(f"{layer}.shifted", "Add", x, shift), batch * length, width)


def _gated(model: Forward, layer: str, x: str, rows: str, gate: str) -> str:
    """What is residual plus rows, each column by the gate of its sample."""
    rows = model.reshape(f"{layer}.samples", rows, *model.shape(x))
    return model.each(layer, "Add", x, model.each(f"{layer}.gated", "Mul", rows, gate))


def sinusoids(length: int, width: int) -> np.ndarray:
    """Cosines and sines of positions, [length, width], at wavelengths up to 10,000 (Vaswani et al. 2017)."""
    angles = np.outer(np.arange(length), 10000.0 ** (-np.arange(width // 2) / (width // 2)))
    return np.concatenate([np.cos(angles), np.sin(angles)], axis=-1).astype(np.float32)


def positions_2d(side: int, width: int) -> np.ndarray:
    """Sinusoids of the rows beside those of the columns, [side * side, width]."""
    lines = sinusoids(side, width // 2)
    rows, columns = np.repeat(lines, side, axis=0), np.tile(lines, (side, 1))
    return np.concatenate([rows, columns], axis=-1)
