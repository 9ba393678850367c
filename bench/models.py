"""The models that the benchmarks of the runtime share: planned into a folder, small enough for two cores.

It measures nothing; ``python bench/models.py`` lists them.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from planner import api
from planner.folder import PLAN
from planner.graph.to_onnx import write_model
from planner.zoo import mlp

_MODELS = Path(__file__).parent.parent / "tests" / "models"


def _mlp(path: Path) -> None:
    write_model(mlp(4, 1024, 512, learning_rate=1e-6), path)


def _resnet(path: Path) -> None:
    api.grad(
        _MODELS / "resnet50.raw.onnx",
        loss="softmax_cross_entropy",
        optimizer="momentum",
        lr=0.01,
        batch=32,
        output=path,
    )


def _bert(path: Path) -> None:
    path.write_bytes((_MODELS / "bert_step.onnx").read_bytes())


MODELS: dict[str, Callable[[Path], None]] = {
    "MLP 4x1024, batch 512": _mlp,
    "ResNet-50, narrow, batch 32": _resnet,
    "BERT step, tiny": _bert,
}
"""By name, what writes the training graph."""


def planned(name: str, workers: int, folder: Path) -> Path:
    """The plan of a model on a number of workers, in a folder of its own."""
    train = folder / f"{list(MODELS).index(name)}.onnx"
    if not train.exists():
        MODELS[name](train)
    directory = folder / f"{train.stem}.tofu{workers}"
    if not (directory / PLAN).exists():
        api.plan(train, gpus=workers, out=directory)
    return directory


if __name__ == "__main__":
    print("\n".join(MODELS))
