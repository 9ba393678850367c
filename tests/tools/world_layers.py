"""Networks of PyTorch's own layers in the corpus of `make world`: recurrent, U-Nets, detection, speech, graphs."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

BATCH = 4
TOKENS = 12
Made = tuple[nn.Module, tuple[Tensor, ...]]
"""A network, and inputs to trace it with."""


def images(size: int = 32, channels: int = 3) -> tuple[Tensor, ...]:
    """A batch of square images."""
    return (torch.randn(BATCH, channels, size, size),)


def tokens(vocabulary: int = 64, length: int = TOKENS, batch: int = BATCH) -> tuple[Tensor, ...]:
    """A batch of token ids."""
    return (torch.randint(2, vocabulary, (batch, length)),)


class Recurrent(nn.Module):
    """An embedding, a recurrent layer, a classifier of the last step."""

    def __init__(self, layer: nn.Module, width: int) -> None:
        super().__init__()
        self.table, self.layer, self.out = nn.Embedding(64, 16), layer, nn.Linear(width, 10)

    def forward(self, ids: Tensor) -> Tensor:
        """Scores of ten classes."""
        return self.out(self.layer(self.table(ids))[0][:, -1])


class Unrolled(nn.Module):
    """A cell applied step by step."""

    def __init__(self) -> None:
        super().__init__()
        self.cell, self.out = nn.GRUCell(16, 24), nn.Linear(24, 10)

    def forward(self, x: Tensor) -> Tensor:
        """Scores of ten classes."""
        state = torch.zeros(x.shape[0], 24)
        for step in range(x.shape[1]):
            state = self.cell(x[:, step], state)
        return self.out(state)


class UNet(nn.Module):
    """Two levels down and up, with skips."""

    def __init__(self, mode: str, conv: type[nn.Module] = nn.Conv2d) -> None:
        super().__init__()
        self.mode = mode
        self.one, self.two, self.three = (self._block(*c) for c in ((3, 8), (8, 16), (16, 16)))
        self.up = nn.ConvTranspose2d(16, 16, 2, 2) if mode == "transposed" else nn.Upsample(
            scale_factor=2, mode=mode, align_corners=None if mode == "nearest" else False)  # fmt: skip
        self.last = self._block(32, 8)
        self.out = nn.Conv2d(16, 4, 1)

    def _block(self, read: int, made: int) -> nn.Module:
        return nn.Sequential(nn.Conv2d(read, made, 3, padding=1), nn.GroupNorm(4, made), nn.SiLU())

    def forward(self, x: Tensor) -> Tensor:
        """Scores of four classes by pixel."""
        one = self.one(x)
        two = self.two(nn.functional.max_pool2d(one, 2))
        three = self.three(nn.functional.avg_pool2d(two, 2))
        two = self.last(torch.cat([self.up(three), two], 1))
        return self.out(torch.cat([nn.functional.interpolate(two, scale_factor=2.0, mode="nearest"), one], 1))


class Detector(nn.Module):
    """A backbone, a feature pyramid, and a head shared by its levels, in the manner of YOLO."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 8, 3, 2, 1), nn.BatchNorm2d(8), nn.SiLU())
        self.down = nn.ModuleList(
            nn.Sequential(nn.Conv2d(c, 2 * c, 3, 2, 1), nn.BatchNorm2d(2 * c), nn.SiLU()) for c in (8, 16)
        )
        self.side = nn.ModuleList(nn.Conv2d(c, 16, 1) for c in (8, 16, 32))
        self.head = nn.Conv2d(16, 3 * 6, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        """Boxes of all levels: centre, size, objectness, class."""
        maps = [self.stem(x)]
        for block in self.down:
            maps.append(block(maps[-1]))
        top: Tensor | None = None
        found = []
        for side, level in reversed(list(zip(self.side, maps, strict=True))):
            here = side(level)
            top = here if top is None else here + nn.functional.interpolate(top, scale_factor=2.0, mode="nearest")
            cells = self.head(top)
            batch, _, high, wide = cells.shape
            found.append(cells.view(batch, 3, 6, high * wide).permute(0, 1, 3, 2).reshape(batch, -1, 6))
        raw = torch.cat(found, 1)
        return torch.cat([raw[..., :2].sigmoid(), raw[..., 2:4].exp(), raw[..., 4:].sigmoid()], -1)


class Speech(nn.Module):
    """A spectrogram by convolution, a bidirectional GRU, scores by step."""

    def __init__(self) -> None:
        super().__init__()
        self.front = nn.Sequential(nn.ReflectionPad1d(4), nn.Conv1d(1, 16, 9, 4), nn.BatchNorm1d(16), nn.ReLU())
        self.rnn = nn.GRU(16, 12, batch_first=True, bidirectional=True)
        self.out = nn.Linear(24, 8)

    def forward(self, x: Tensor) -> Tensor:
        """Log probabilities."""
        steps = self.front(x[:, None]).transpose(1, 2)
        return self.out(self.rnn(steps)[0]).log_softmax(-1)


class Autoencoder(nn.Module):
    """Convolutions down, transposed convolutions up, a bottleneck with noise left out."""

    def __init__(self) -> None:
        super().__init__()
        self.down = nn.Sequential(nn.Conv2d(3, 8, 4, 2, 1), nn.LeakyReLU(0.2), nn.Conv2d(8, 16, 3, 2, 1), nn.ELU())
        self.mean, self.spread = nn.Linear(16 * 64, 6), nn.Linear(16 * 64, 6)
        self.back = nn.Linear(6, 16 * 64)
        self.up = nn.Sequential(nn.ConvTranspose2d(16, 8, 3, 2, 1, 1), nn.PReLU(), nn.ConvTranspose2d(8, 3, 4, 2, 1))

    def forward(self, x: Tensor) -> Tensor:
        """The picture again."""
        flat = self.down(x).flatten(1)
        hidden = self.mean(flat) + (0.5 * self.spread(flat)).exp()
        return self.up(self.back(hidden).view(-1, 16, 8, 8)).tanh()


class Recommender(nn.Module):
    """Tables for sparse features, a perceptron for dense ones, products of all pairs (DLRM)."""

    def __init__(self) -> None:
        super().__init__()
        self.tables = nn.ModuleList(nn.EmbeddingBag(50, 8, mode="sum") if i == 9 else nn.Embedding(50, 8)
                                    for i in range(4))  # fmt: skip
        self.dense = nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 8), nn.ReLU())
        self.top = nn.Sequential(nn.Linear(8 + 10, 16), nn.ReLU(), nn.Linear(16, 1))

    def forward(self, dense: Tensor, ids: Tensor) -> Tensor:
        """A click's log odds."""
        x = self.dense(dense)
        rows = torch.stack([x, *(table(ids[:, i]) for i, table in enumerate(self.tables))], 1)
        pairs = rows @ rows.transpose(1, 2)
        left, right = torch.tril_indices(5, 5, -1)
        return self.top(torch.cat([x, pairs[:, left, right]], 1))


class Graphs(nn.Module):
    """Two rounds of messages along the edges of a graph (scatter-add)."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.two = nn.Linear(8, 16), nn.Linear(16, 4)

    def forward(self, x: Tensor, edges: Tensor) -> Tensor:
        """Scores by node."""
        for layer in (self.one, self.two):
            sent = layer(x)[edges[0]]
            x = torch.zeros(x.shape[0], sent.shape[1]).index_add(0, edges[1], sent).relu() + layer(x)
        return x


LAYERS: dict[str, Callable[[], Made]] = {
    "lstm": lambda: (Recurrent(nn.LSTM(16, 24, batch_first=True), 24), tokens()),
    "lstm-2-both-ways": lambda: (Recurrent(nn.LSTM(16, 12, 2, batch_first=True, bidirectional=True), 24), tokens()),
    "gru": lambda: (Recurrent(nn.GRU(16, 24, batch_first=True), 24), tokens()),
    "rnn": lambda: (Recurrent(nn.RNN(16, 24, batch_first=True), 24), tokens()),
    "gru-unrolled": lambda: (Unrolled(), (torch.randn(BATCH, 6, 16),)),
    "unet-nearest": lambda: (UNet("nearest"), images()),
    "unet-bilinear": lambda: (UNet("bilinear"), images()),
    "unet-transposed": lambda: (UNet("transposed"), images()),
    "detector": lambda: (Detector(), images()),
    "speech-gru": lambda: (Speech(), (torch.randn(BATCH, 200),)),
    "autoencoder": lambda: (Autoencoder(), images()),
    "torch-transformer": lambda: (nn.Transformer(32, 4, 1, 1, 48, batch_first=True), (torch.randn(BATCH, 9, 32),
                                  torch.randn(BATCH, 7, 32))),
    "recommender": lambda: (Recommender(), (torch.randn(BATCH, 6), torch.randint(0, 50, (BATCH, 4)))),
    "graph-network": lambda: (Graphs(), (torch.randn(12, 8), torch.randint(0, 12, (2, 30)))),
}  # fmt: skip
