"""Inception-v3 (Szegedy et al. 2016), on 299x299 images."""

from __future__ import annotations

from planner.features.zoo.models.convolutional import CLASSES
from planner.features.zoo.models.forward import Forward
from planner.features.zoo.models.step import training_step
from planner.graph.core.model import Graph


def inception_v3(*, batch: int, optimizer: str = "sgd") -> Graph:
    """Inception-v3 as torchvision has it, without the auxiliary classifier: 23,834,568 parameters.

    ICML'18 (section 6) counts its 102 layers and takes a batch of 32 for each GPU.
    """
    net = _Inception(Forward("inception-v3"))
    x = net.model.input("x", batch, 3, 299, 299)
    x = net.conv("stem1", x, 32, 3, stride=2)
    x = net.conv("stem2", x, 32, 3)
    x = net.conv("stem3", x, 64, 3, pad=1)
    x = net.max_pool("stem4", x)
    x = net.conv("stem5", x, 80, 1)
    x = net.conv("stem6", x, 192, 3)
    x = net.max_pool("stem7", x)
    for number, pooled in enumerate((32, 64, 64), start=1):
        x = net.block_a(f"a{number}", x, pooled)
    x = net.block_b("b", x)
    for number, narrow in enumerate((128, 160, 160, 192), start=1):
        x = net.block_c(f"c{number}", x, narrow)
    x = net.block_d("d", x)
    for number in (1, 2):
        x = net.block_e(f"e{number}", x)
    x = net.model.global_average_pool("pool", x)
    x = net.model.linear("fc", x, CLASSES)
    return training_step(net.model, x, loss="softmax_cross_entropy", optimizer=optimizer)


_ROW, _COLUMN = ((1, 7), (0, 3)), ((7, 1), (3, 0))
"""Kernel and padding of the factorised 7x7."""


class _Inception:
    """The blocks; the letters are torchvision's."""

    def __init__(self, model: Forward) -> None:
        self.model = model

    def conv(
        self,
        layer: str,
        x: str,
        filters: int,
        kernel: int | tuple[int, int],
        *,
        stride: int = 1,
        pad: int | tuple[int, int] = 0,
    ) -> str:
        """Convolution, normalisation, activation."""
        x = self.model.conv(f"{layer}.conv", x, filters, kernel, stride=stride, pad=pad)
        x = self.model.batch_norm(f"{layer}.norm", x, epsilon=1e-3)
        return self.model.relu(f"{layer}.relu", x)

    def max_pool(self, layer: str, x: str) -> str:
        return self.model.pool(layer, "MaxPool", x, 3, stride=2)

    def pooled(self, block: str, x: str, filters: int) -> str:
        """The branch of an average pool."""
        x = self.model.pool(f"{block}.pool", "AveragePool", x, 3, stride=1, pad=1)
        return self.conv(f"{block}.pool1", x, filters, 1)

    def chain(self, layer: str, x: str, filters: tuple[int, ...], kinds: tuple[str, ...]) -> str:
        """7x7 convolutions in factors: rows and columns in turn."""
        for number, (width, kind) in enumerate(zip(filters, kinds, strict=True), start=2):
            kernel, pad = _ROW if kind == "row" else _COLUMN
            x = self.conv(f"{layer}_{number}", x, width, kernel, pad=pad)
        return x

    def joined(self, block: str, *branches: str) -> str:
        return self.model.concat(f"{block}.concat", branches, axis=1)

    def block_a(self, block: str, x: str, pool_filters: int) -> str:
        pointwise = self.conv(f"{block}.one", x, 64, 1)
        five = self.conv(f"{block}.five_2", self.conv(f"{block}.five_1", x, 48, 1), 64, 5, pad=2)
        three = self.conv(f"{block}.three_2", self.conv(f"{block}.three_1", x, 64, 1), 96, 3, pad=1)
        three = self.conv(f"{block}.three_3", three, 96, 3, pad=1)
        return self.joined(block, pointwise, five, three, self.pooled(block, x, pool_filters))

    def block_b(self, block: str, x: str) -> str:
        three = self.conv(f"{block}.three", x, 384, 3, stride=2)
        double = self.conv(f"{block}.double_2", self.conv(f"{block}.double_1", x, 64, 1), 96, 3, pad=1)
        double = self.conv(f"{block}.double_3", double, 96, 3, stride=2)
        return self.joined(block, three, double, self.max_pool(f"{block}.pool", x))

    def block_c(self, block: str, x: str, narrow: int) -> str:
        pointwise = self.conv(f"{block}.one", x, 192, 1)
        seven = self.conv(f"{block}.seven_1", x, narrow, 1)
        seven = self.chain(f"{block}.seven", seven, (narrow, 192), ("row", "column"))
        double = self.conv(f"{block}.double_1", x, narrow, 1)
        double = self.chain(
            f"{block}.double", double, (narrow, narrow, narrow, 192), ("column", "row", "column", "row")
        )
        return self.joined(block, pointwise, seven, double, self.pooled(block, x, 192))

    def block_d(self, block: str, x: str) -> str:
        three = self.conv(f"{block}.three_2", self.conv(f"{block}.three_1", x, 192, 1), 320, 3, stride=2)
        seven = self.conv(f"{block}.seven_1", x, 192, 1)
        seven = self.chain(f"{block}.seven", seven, (192, 192), ("row", "column"))
        seven = self.conv(f"{block}.seven_4", seven, 192, 3, stride=2)
        return self.joined(block, three, seven, self.max_pool(f"{block}.pool", x))

    def block_e(self, block: str, x: str) -> str:
        pointwise = self.conv(f"{block}.one", x, 320, 1)
        three = self.forked(f"{block}.three", self.conv(f"{block}.three_1", x, 384, 1))
        double = self.conv(f"{block}.double_2", self.conv(f"{block}.double_1", x, 448, 1), 384, 3, pad=1)
        double = self.forked(f"{block}.double", double)
        return self.joined(block, pointwise, three, double, self.pooled(block, x, 192))

    def forked(self, layer: str, x: str) -> str:
        """1x3 beside 3x1."""
        row = self.conv(f"{layer}_row", x, 384, (1, 3), pad=(0, 1))
        column = self.conv(f"{layer}_column", x, 384, (3, 1), pad=(1, 0))
        return self.joined(layer, row, column)
