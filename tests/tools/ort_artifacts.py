"""Makes the artifacts of onnxruntime-training in tests/models, and what its own runtime computes with them.

    python -m venv ort && ort/bin/pip install onnxruntime-training==1.19.2 onnx==1.16.2 "numpy<2" torch==2.13.0
    ort/bin/python tests/tools/ort_artifacts.py [NAME ...]

The environment is one of its own: onnxruntime-training stands in the place of onnxruntime, its Python parts want an
older numpy and onnx, and they import torch. Small networks are exported by torch's TorchScript exporter in training
mode, which is the way that the makers of these artifacts describe; ``generate_artifacts`` differentiates them. Each
folder ``ort_training_NAME`` holds

- training_model.onnx and optimizer_model.onnx, as they were made;
- oracle_feed.npz: data and parameters, by name;
- oracle_grads.npz: the loss, the gradient of each parameter (``W_grad``), and what follows each running statistic
  (``S.next``), as the training runtime computes them.
"""

from __future__ import annotations

import argparse
import io
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
import torch
from onnxruntime.training import artifacts
from onnxruntime.training.api import CheckpointState, Module
from torch import nn

MODELS = Path(__file__).parents[1] / "models"


class Residual(nn.Module):
    """Convolution, BatchNorm, MaxPool, a residual, AveragePool, and a mean over positions."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 3, stride=2, padding=1, bias=False)
        self.norm1 = nn.BatchNorm2d(8)
        self.pool = nn.MaxPool2d(3, stride=2, padding=1)
        self.conv1 = nn.Conv2d(8, 8, 3, padding=1, bias=False)
        self.norm2 = nn.BatchNorm2d(8)
        self.conv2 = nn.Conv2d(8, 8, 3, padding=1, groups=2)
        self.average = nn.AvgPool2d(2)
        self.head = nn.Conv2d(8, 12, 1)
        self.linear = nn.Linear(12, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.pool(torch.relu(self.norm1(self.stem(x))))
        x = torch.relu(x + self.conv2(torch.relu(self.norm2(self.conv1(x)))))
        x = torch.sigmoid(self.head(self.average(x)))
        return self.linear(nn.functional.adaptive_avg_pool2d(x, 1).flatten(1))


class Attention(nn.Module):
    """Attention written out, with a mask that is added to the scores."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.query, self.key, self.value = (nn.Linear(width, width) for _ in range(3))
        self.out = nn.Linear(width, width)

    def forward(self, x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        def apart(y: torch.Tensor) -> torch.Tensor:
            return y.view(y.size(0), y.size(1), self.heads, y.size(2) // self.heads).transpose(1, 2)

        query, key, value = apart(self.query(x)), apart(self.key(x)), apart(self.value(x))
        scores = query @ key.transpose(-1, -2) / (query.size(-1) ** 0.5) + mask
        mixed = (nn.functional.dropout(scores.softmax(-1), 0.0, training=True) @ value).transpose(1, 2)
        return self.out(mixed.reshape(x.size()))


class Transformer(nn.Module):
    """A BERT of two layers: embeddings of tokens, places and segments; Gelu; the first token is classified."""

    def __init__(self, width: int = 16, heads: int = 2, tokens: int = 8, words: int = 24) -> None:
        super().__init__()
        self.words = nn.Embedding(words, width, padding_idx=0)
        self.places = nn.Embedding(tokens, width)
        self.register_buffer("range", torch.arange(tokens)[None])
        self.norm = nn.LayerNorm(width)
        self.attentions = nn.ModuleList([Attention(width, heads) for _ in range(2)])
        self.widen = nn.ModuleList([nn.Linear(width, 2 * width) for _ in range(2)])
        self.narrow = nn.ModuleList([nn.Linear(2 * width, width) for _ in range(2)])
        self.norms = nn.ModuleList([nn.LayerNorm(width) for _ in range(4)])
        self.pooler = nn.Linear(width, width)
        self.classifier = nn.Linear(width, 3)

    def forward(self, tokens: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        added = (1.0 - mask[:, None, None, :].to(torch.float32)) * -10000.0
        x = self.norm(self.words(tokens) + self.places(self.range[:, : tokens.size(1)]))
        for layer, attention in enumerate(self.attentions):
            x = self.norms[2 * layer](x + attention(x, added))
            x = self.norms[2 * layer + 1](x + self.narrow[layer](nn.functional.gelu(self.widen[layer](x))))
        return self.classifier(torch.tanh(self.pooler(x[:, 0])))


class Recurrent(nn.Module):
    """An LSTM over tokens, a GRU behind it; the last hidden state and the last cell state are read."""

    def __init__(self, width: int = 6, hidden: int = 8, words: int = 16) -> None:
        super().__init__()
        self.words = nn.Embedding(words, width)
        self.lstm = nn.LSTM(width, hidden, batch_first=True)
        self.gru = nn.GRU(hidden, hidden, batch_first=True)
        self.classifier = nn.Linear(2 * hidden, 3)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x, (_, cell) = self.lstm(self.words(tokens))
        x, _ = self.gru(x)
        return self.classifier(torch.cat([x[:, -1], cell[0]], dim=1))


@dataclass(frozen=True)
class Case:
    """What a folder is made of."""

    network: Callable[[], nn.Module]
    feeds: Callable[[np.random.Generator], dict[str, np.ndarray]]
    loss: artifacts.LossType
    optimizer: artifacts.OptimType
    target: Callable[[np.random.Generator], np.ndarray]


CLASSES, SQUARES = artifacts.LossType.CrossEntropyLoss, artifacts.LossType.MSELoss
ADAMW, SGD = artifacts.OptimType.AdamW, artifacts.OptimType.SGD


def _tokens(rng: np.random.Generator) -> dict[str, np.ndarray]:
    mask = np.ones((4, 8), np.int64)
    mask[1, 5:], mask[3, 6:] = 0, 0
    return {"tokens": rng.integers(1, 24, (4, 8)) * mask, "mask": mask}


CASES = {
    "cnn": Case(Residual, lambda rng: {"x": rng.standard_normal((8, 3, 16, 16)).astype(np.float32)}, CLASSES, ADAMW,
                lambda rng: rng.integers(0, 5, 8)),
    "transformer": Case(Transformer, _tokens, CLASSES, ADAMW, lambda rng: rng.integers(0, 3, 4)),
    "lstm": Case(Recurrent, lambda rng: {"tokens": rng.integers(0, 16, (4, 5))}, SQUARES, SGD,
                 lambda rng: rng.standard_normal((4, 3)).astype(np.float32)),
}  # fmt: skip


def computed(
    made: Path, data: Sequence[np.ndarray], running: Sequence[str] = ()
) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    """What the training runtime makes of the artifacts in a folder.

    Args:
        made: the folder, with a checkpoint.
        data: the model's inputs in their order.
        running: parameters that it writes in place.

    Returns:
        Data and parameters by name; and the loss, ``W_grad`` of each trained parameter, ``S.next`` of each running one.
    """
    state = CheckpointState.load_checkpoint(made / "checkpoint")
    values = {key: parameter.data.copy() for key, parameter in state.parameters}
    module = Module(made / "training_model.onnx", state)
    module.train()
    given = dict(zip(module.input_names(), data, strict=True))
    loss = np.asarray(module(*data))
    gradients = {f"{key}_grad": parameter.grad for key, parameter in state.parameters if parameter.requires_grad}
    following = {f"{key}.next": state.parameters[key].data for key in running}
    return {**given, **values}, {"loss": loss, **gradients, **following}


def make(name: str, folder: Path) -> None:
    """One folder."""
    case, rng = CASES[name], np.random.default_rng(1)
    torch.manual_seed(0)
    network = case.network().train()
    feeds, target = case.feeds(rng), case.target(rng)
    exported = io.BytesIO()
    torch.onnx.export(
        network, tuple(torch.from_numpy(value) for value in feeds.values()), exported, dynamo=False, opset_version=15,
        input_names=list(feeds), output_names=["y"], training=torch.onnx.TrainingMode.TRAINING,
        do_constant_folding=False, export_params=True, keep_initializers_as_inputs=False,
    )  # fmt: skip
    forward = onnx.load_from_string(exported.getvalue())
    floats = [proto.name for proto in forward.graph.initializer if proto.data_type == onnx.TensorProto.FLOAT]
    running = [key for key in floats if "running_" in key]
    trained = [key for key in floats if key not in running]
    with tempfile.TemporaryDirectory() as scratch:
        made = Path(scratch)
        artifacts.generate_artifacts(
            forward, requires_grad=trained, frozen_params=running, loss=case.loss, optimizer=case.optimizer,
            artifact_directory=made,
        )  # fmt: skip
        given, found = computed(made, [*feeds.values(), target], running)
        folder.mkdir(parents=True, exist_ok=True)
        for file in ("training_model.onnx", "optimizer_model.onnx"):
            (folder / file).write_bytes((made / file).read_bytes())
    np.savez_compressed(folder / "oracle_feed.npz", **given)
    np.savez_compressed(folder / "oracle_grads.npz", **found)
    size = sum(file.stat().st_size for file in folder.iterdir())
    operators = {node.op_type for node in onnx.load(folder / "training_model.onnx").graph.node if node.domain}
    print(f"{folder.name}: {size / 1000:.0f} kB, loss {float(found['loss']):.6f}, {sorted(operators)}")


def main() -> None:
    """All folders, or those that are named."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("name", nargs="*", help=f"one of {', '.join(CASES)}; all by default")
    parser.add_argument("--into", type=Path, default=MODELS)
    options = parser.parse_args()
    for name in options.name or CASES:
        make(name, options.into / f"ort_training_{name}")


if __name__ == "__main__":
    main()
