"""Stable Diffusion's U-Net: residual convolutions and attention to a text, with skips from down to up."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from planner.features.zoo.models.attention import multi_head
from planner.features.zoo.models.forward import Forward
from planner.features.zoo.models.network import Network
from planner.features.zoo.models.vision import sinusoids
from planner.graph.core.model import DType

_GROUPS = 32
"""Of every GroupNormalization."""
_TIMES = 1000
_BIASES = (False, False, False, True)


@dataclass(frozen=True, slots=True)
class UNetShape:
    """The sizes of a U-Net of latents."""

    channels: tuple[int, ...]
    """Of each resolution; each but the last has attention, and half the rows and columns of the one before."""
    residual: int
    """Residual blocks of each resolution on the way down; one more on the way up."""
    heads: int
    latent: int
    """Channels of a latent."""
    image: int
    """Rows and columns of a latent."""
    text: int
    """Columns of a token of the text."""
    tokens: int
    groups: int = _GROUPS


SD_1: Final = UNetShape((320, 640, 1280, 1280), 2, 8, 4, 64, 768, 77)
"""Rombach et al. 2022, as Stable Diffusion 1 was published: latents of 512x512 images, 859.5 M parameters."""


def unet(name: str, shape: UNetShape, *, batch: int) -> Network:
    """The U-Net that predicts the noise of latents at a time, given the states of a text (Rombach et al. 2022).

    Args:
        name: of the graph.
        shape: its sizes.
        batch: samples.
    """
    net = _UNet(Forward(name), shape, batch)
    return Network(net.model, net.run(), "mse")


class _UNet:
    def __init__(self, model: Forward, shape: UNetShape, batch: int) -> None:
        self.model = model
        self.shape = shape
        self.batch = batch
        self.time = ""
        self.text = ""

    def run(self) -> str:
        model, shape = self.model, self.shape
        x = model.input("x", self.batch, shape.latent, shape.image, shape.image)
        self.time = self._time(4 * shape.channels[0])
        text = model.input("text", self.batch, shape.tokens, shape.text)
        self.text = model.reshape("text.rows", text, self.batch * shape.tokens, shape.text)
        x = model.conv("in", x, shape.channels[0], 3, pad=1, bias=True)
        skips = [x]
        last = len(shape.channels) - 1
        for place, channels in enumerate(shape.channels):
            for number in range(1, shape.residual + 1):
                x = self._layer(f"down{place + 1}.{number}", x, channels, attends=place < last)
                skips.append(x)
            if place < last:
                x = model.conv(f"down{place + 1}.half", x, channels, 3, stride=2, pad=1, bias=True)
                skips.append(x)
        x = self._layer("middle1", x, shape.channels[-1], attends=True)
        x = self._layer("middle2", x, shape.channels[-1], attends=False)
        for place, channels in reversed(list(enumerate(shape.channels))):
            for number in range(1, shape.residual + 2):
                layer = f"up{place + 1}.{number}"
                # The way up takes the skips of the way down, last first: one more per level, for the input or the half.
                x = model.concat(f"{layer}.skip", [x, skips.pop()], axis=1)
                x = self._layer(layer, x, channels, attends=place < last)
            if place:
                x = self._twice(f"up{place + 1}.twice", x)
        x = model.silu("out", self._norm("out.norm", x, epsilon=1e-5))
        return model.conv("out", x, shape.latent, 3, pad=1, bias=True)

    def _time(self, width: int) -> str:
        """The embedding of the time after silu, [batch, width], looked up in a table of sines and cosines."""
        model, inner = self.model, self.shape.channels[0]
        table = model.known("times", sinusoids(_TIMES, inner))
        x = model.op("time", "Gather", [table, model.input("t", self.batch, dtype=DType.INT64)], (self.batch, inner),
                     axis=0)  # fmt: skip
        x = model.silu("time1", model.project("time1", x, width, bias=True))
        return model.silu("time2", model.project("time2", x, width, bias=True))

    def _norm(self, layer: str, x: str, *, epsilon: float) -> str:
        return self.model.group_norm(layer, x, self.shape.groups, epsilon=epsilon)

    def _layer(self, layer: str, x: str, channels: int, *, attends: bool) -> str:
        x = self._residual(f"{layer}.residual", x, channels)
        return self._transformer(f"{layer}.attention", x) if attends else x

    def _residual(self, layer: str, x: str, channels: int) -> str:
        """Two convolutions beside the identity, or beside a 1x1; the time is added between them."""
        model = self.model
        shortcut = x
        if model.shape(x)[1] != channels:
            shortcut = model.conv(f"{layer}.shortcut", x, channels, 1, bias=True)
        x = model.silu(f"{layer}.norm1", self._norm(f"{layer}.norm1", x, epsilon=1e-5))
        x = model.conv(f"{layer}.conv1", x, channels, 3, pad=1, bias=True)
        time = model.project(f"{layer}.time", self.time, channels, bias=True)
        x = model.each(f"{layer}.timed", "Add", x, model.reshape(f"{layer}.at", time, self.batch, channels, 1, 1))
        x = model.silu(f"{layer}.norm2", self._norm(f"{layer}.norm2", x, epsilon=1e-5))
        x = model.conv(f"{layer}.conv2", x, channels, 3, pad=1, bias=True)
        return model.each(f"{layer}.add", "Add", shortcut, x)

    def _transformer(self, layer: str, x: str) -> str:
        """Pixels attend to one another and to the text, between two 1x1 convolutions."""
        model = self.model
        before = x
        _, channels, rows, columns = model.shape(x)
        x = model.conv(f"{layer}.in", self._norm(f"{layer}.norm", x, epsilon=1e-6), channels, 1, bias=True)
        x = model.reshape(f"{layer}.pixels", x, self.batch, channels, rows * columns)
        x = model.transpose(f"{layer}.turned", x, 0, 2, 1)
        x = model.reshape(f"{layer}.rows", x, self.batch * rows * columns, channels)
        for name, source in (("self", ""), ("cross", self.text)):
            inner = model.layer_norm(f"{layer}.{name}.norm", x, bias=True)
            mixed = multi_head(
                model, f"{layer}.{name}", inner, source or inner, batch=self.batch, heads=self.shape.heads,
                width=channels, bias=_BIASES,
            )  # fmt: skip
            x = model.each(f"{layer}.{name}.add", "Add", x, mixed)
        x = self._geglu(layer, x)
        x = model.reshape(f"{layer}.samples", x, self.batch, rows * columns, channels)
        x = model.transpose(f"{layer}.back", x, 0, 2, 1)
        x = model.reshape(f"{layer}.image", x, self.batch, channels, rows, columns)
        x = model.conv(f"{layer}.out", x, channels, 1, bias=True)
        return model.each(f"{layer}.add", "Add", x, before)

    def _geglu(self, layer: str, x: str) -> str:
        """The rows plus W₂ (gelu(W₁ x) V x) of them normalised (Shazeer 2020)."""
        model = self.model
        width = model.shape(x)[1]
        inner = model.layer_norm(f"{layer}.inner.norm", x, bias=True)
        gate = model.each(f"{layer}.gelu", "Gelu", model.project(f"{layer}.gate", inner, 4 * width, bias=True))
        wide = model.each(f"{layer}.gated", "Mul", model.project(f"{layer}.up", inner, 4 * width, bias=True), gate)
        narrow = model.project(f"{layer}.narrow", wide, width, bias=True)
        return model.each(f"{layer}.inner.add", "Add", x, narrow)

    def _twice(self, layer: str, x: str) -> str:
        """Each pixel four times, and a convolution."""
        model = self.model
        samples, channels, rows, columns = model.shape(x)
        scales = model.known("twice", np.array([1, 1, 2, 2], np.float32))
        x = model.op(
            f"{layer}.nearest", "Resize", [x, "", scales], (samples, channels, 2 * rows, 2 * columns), mode="nearest",
            coordinate_transformation_mode="asymmetric", nearest_mode="floor",
        )  # fmt: skip
        return model.conv(layer, x, channels, 3, pad=1, bias=True)
