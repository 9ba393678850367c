"""The models that the benchmarks of the runtime share: of any batch, planned into a folder, small enough for two cores.

It measures nothing; ``python bench/models.py`` lists them.
"""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from planner import api
from planner.artifacts.place import PLAN
from planner.features.zoo.models import mlp
from planner.features.zoo.models.convolutional import cnn
from planner.features.zoo.models.recurrent import rnn
from planner.features.zoo.models.transformer import GptShape, gpt
from planner.graph.files.to_onnx import write_model
from planner.search.effort import EffortName

_T = TypeVar("_T")
_MODELS = Path(__file__).parent.parent / "tests" / "models"


@dataclass(frozen=True, slots=True)
class Model:
    """A model of a benchmark."""

    write: Callable[[Path, int], None]
    """Writes its training graph for a batch."""
    batch: int
    """The batch that it is measured with."""
    about: str


def _mlp(path: Path, batch: int) -> None:
    write_model(mlp(4, 1024, batch, learning_rate=1e-6), path)


def _deep_mlp(path: Path, batch: int) -> None:
    write_model(mlp(60, 256, batch, learning_rate=1e-6), path)


def _resnet(path: Path, batch: int) -> None:
    api.grad(
        _MODELS / "resnet50.raw.onnx",
        loss="softmax_cross_entropy",
        optimizer="momentum",
        lr=0.01,
        batch=batch,
        output=path,
    )


def _bert(path: Path, batch: int) -> None:
    api.grad(
        _MODELS / "bert.raw.onnx", loss="softmax_cross_entropy", optimizer="adam", lr=1e-4, batch=batch, output=path
    )


def _rnn(path: Path, batch: int) -> None:
    write_model(rnn(2, 256, batch=batch, steps=10), path)


def _gpt(path: Path, batch: int) -> None:
    write_model(gpt("gpt-block", GptShape(1, 256, 8, 128), batch=batch), path)


def _cnn(path: Path, batch: int) -> None:
    write_model(cnn(5, 64, 24, batch=batch), path)


MODELS: dict[str, Model] = {
    "mlp": Model(_mlp, 512, "4 layers of 1024"),
    "mlp-60": Model(_deep_mlp, 64, "60 layers of 256"),
    "resnet-50": Model(_resnet, 32, "a sixteenth of the channels, momentum"),
    "bert": Model(_bert, 32, "2 layers of 64, Adam"),
    "lstm": Model(_rnn, 64, "2 layers of 256, 10 steps, AdaGrad"),
    "gpt-block": Model(_gpt, 8, "one block of 256, 8 heads, 128 tokens"),
    "cnn": Model(_cnn, 16, "5 convolutions 3x3, 64 filters, 24x24"),
}
"""By name."""


def trained(name: str, folder: Path, *, batch: int | None = None) -> Path:
    """The training graph of a model for a batch; None: its own."""
    batch = MODELS[name].batch if batch is None else batch
    train = folder / f"{name}.{batch}.onnx"
    if not train.exists():
        MODELS[name].write(train, batch)
    return train


def planned(
    name: str,
    workers: int,
    folder: Path,
    *,
    batch: int | None = None,
    limit_bytes: int | None = None,
    effort: EffortName = "normal",
) -> Path:
    """The plan of a model on a number of workers, in a folder of its own.

    Raises:
        InfeasibleError: no plan was found that fits a limit on a worker's memory.
    """
    train = trained(name, folder, batch=batch)
    directory = folder / f"{train.stem}.tofu{workers}{'' if limit_bytes is None else f'.{limit_bytes}'}"
    if not (directory / PLAN).exists():
        memory = None if limit_bytes is None else f"{limit_bytes}B"
        api.plan(train, gpus=workers, memory=memory, effort=effort, out=directory)
    return directory


def alone(work: Callable[..., _T], *arguments: object) -> _T:
    """A call in a fresh process, whose thread pools and memory are its own."""
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        return pool.submit(work, *arguments).result()


def largest_batch(fits: Callable[[int], bool], most: int, step: int = 1) -> int:
    """The largest batch up to ``most``, of whole steps, that fits; 0 if not even the first does.

    What is needed grows with the batch but for a few bytes, so halving finds it.
    """
    low, high = 0, most // step + 1
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(step * middle) else (low, middle)
    return step * low


if __name__ == "__main__":
    for name, model in MODELS.items():
        print(f"{name:<10} batch {model.batch:<4} {model.about}")
