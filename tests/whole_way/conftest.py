"""Models that are small enough to be planned, cut, run and judged in a test."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from planner import api
from planner.graph.core.model import DType, Graph, Op, Tensor
from planner.graph.files.to_onnx import write_model
from planner.results import PlanResult
from planner.runtime.plan_files import LoadedPlan, load_plan
from planner.training.build import build_training_graph


class Forward:
    """A forward model under construction."""

    def __init__(self, seed: int = 0) -> None:
        self.tensors: dict[str, Tensor] = {}
        self.ops: list[Op] = []
        self.weights: dict[str, np.ndarray] = {}
        self.rng = np.random.default_rng(seed)

    def tensor(self, name: str, *shape: int) -> str:
        self.tensors[name] = Tensor(name, shape, DType.FLOAT32)
        return name

    def weight(self, name: str, *shape: int) -> str:
        fan_in = int(np.prod(shape[1:])) or 1
        self.weights[name] = self.rng.normal(0, fan_in**-0.5, shape).astype(np.float32)
        return self.tensor(name, *shape)

    def constant(self, name: str, value: np.ndarray) -> str:
        self.weights[name] = value
        self.tensors[name] = Tensor(name, value.shape, DType(str(value.dtype)))
        return name

    def op(
        self, op_type: str, inputs: tuple[str, ...], output: str, shape: tuple[int, ...], **attributes: object
    ) -> str:
        listed = tuple(sorted(attributes.items()))
        self.ops.append(Op(f"{output}_op", op_type, inputs, (self.tensor(output, *shape),), listed))  # type: ignore[arg-type]
        return output

    def graph(self, inputs: tuple[str, ...], output: str) -> Graph:
        return Graph("small", self.tensors, tuple(self.ops), inputs, (output,), self.weights)


def conv(
    model: Forward,
    source: str,
    name: str,
    channels: int,
    kernel: int,
    *,
    stride: int = 1,
    dilation: int = 1,
    pads: tuple[int, int, int, int] = (0, 0, 0, 0),
) -> str:
    """A convolution with bias; ``pads`` in ONNX's order (top, left, bottom, right)."""
    batch, depth, height, width = model.tensors[source].shape
    reach = dilation * (kernel - 1) + 1
    high = (height + pads[0] + pads[2] - reach) // stride + 1
    wide = (width + pads[1] + pads[3] - reach) // stride + 1
    weights = (model.weight(f"{name}.w", channels, depth, kernel, kernel), model.weight(f"{name}.b", channels))
    return model.op(
        "Conv",
        (source, *weights),
        f"{name}.y",
        (batch, channels, high, wide),
        kernel_shape=(kernel, kernel),
        strides=(stride, stride),
        dilations=(dilation, dilation),
        pads=pads,
    )


def cnn_forward(batch: int = 4) -> Graph:
    """Convolutions with every kind of border: stride, dilation, asymmetric pads, odd sizes; pool; normalisation."""
    model = Forward()
    model.tensor("x.y", batch, 3, 17, 15)
    one = conv(model, "x.y", "one", 4, 3, pads=(1, 1, 1, 1))
    scale = [
        model.constant(f"one.{part}", np.full(4, value, np.float32))
        for part, value in (("scale", 1.0), ("shift", 0.1), ("mean", 0.0), ("var", 1.0))
    ]
    model.op("BatchNormalization", (one, *scale), "normal.y", model.tensors[one].shape)
    model.op("Relu", ("normal.y",), "active.y", model.tensors[one].shape)
    two = conv(model, "active.y", "two", 6, 3, stride=2, pads=(0, 1, 1, 0))
    three = conv(model, two, "three", 6, 3, dilation=2, pads=(2, 2, 2, 2))
    model.op("Add", (two, three), "sum.y", model.tensors[two].shape)
    _, _, high, wide = model.tensors["sum.y"].shape
    model.op(
        "MaxPool",
        ("sum.y",),
        "pool",
        (batch, 6, (high - 1) // 2 + 1, (wide - 1) // 2 + 1),
        kernel_shape=(3, 3),
        strides=(2, 2),
        pads=(1, 1, 1, 1),
    )
    flat = 6 * ((high - 1) // 2 + 1) * ((wide - 1) // 2 + 1)
    model.op("Flatten", ("pool",), "flat", (batch, flat), axis=1)
    model.op("Gemm", ("flat", model.weight("fc.w", 5, flat), model.weight("fc.b", 5)), "logits", (batch, 5), transB=1)
    return model.graph(("x.y",), "logits")


def mlp_forward(batch: int = 12) -> Graph:
    """Three dense layers with bias, Relu and Tanh."""
    model = Forward()
    source = model.tensor("x", batch, 10)
    for layer, (width, activation) in enumerate(((16, "Relu"), (14, "Tanh"), (5, ""))):
        _, depth = model.tensors[source].shape
        weights = (model.weight(f"w{layer}", depth, width), model.weight(f"b{layer}", width))
        source = model.op("Gemm", (source, *weights), f"dense{layer}", (batch, width))
        if activation:
            source = model.op(activation, (source,), f"active{layer}", (batch, width))
    return model.graph(("x",), source)


@dataclass(frozen=True)
class Planned:
    """A plan in a folder."""

    directory: Path
    result: PlanResult

    def load(self) -> LoadedPlan:
        return load_plan(self.directory)


Planner = Callable[..., Planned]


@pytest.fixture
def plan_of(tmp_path: Path) -> Planner:
    """Writes a training graph (or takes a file) and plans it."""

    def make(model: Graph | Path, workers: int, **options: object) -> Planned:
        file = model if isinstance(model, Path) else tmp_path / "train.onnx"
        if isinstance(model, Graph):
            write_model(model, file)
        directory = tmp_path / f"plan{workers}"
        return Planned(directory, api.plan(file, gpus=workers, out=directory, **options))  # type: ignore[arg-type]

    return make


@pytest.fixture(scope="session")
def cnn_step() -> Graph:
    """One training step of the small CNN."""
    return build_training_graph(cnn_forward(), loss="softmax_cross_entropy", optimizer="momentum", learning_rate=0.05)


@pytest.fixture(scope="session")
def tiny_step() -> Graph:
    """One training step of the small CNN that changes its only states, the weights, by some 1e-6 of themselves."""
    return build_training_graph(
        cnn_forward(), loss="softmax_cross_entropy", optimizer="sgd", learning_rate=3e-6, batchnorm="frozen"
    )


@pytest.fixture(scope="session")
def mlp_step() -> Graph:
    """One training step of the MLP."""
    return build_training_graph(mlp_forward(), loss="softmax_cross_entropy", optimizer="sgd", learning_rate=0.1)


@pytest.fixture(scope="session")
def spatial_pins() -> Callable[[Graph, str], Mapping[str, str]]:
    """A pin that cuts every activation of the small CNN's convolutions along height or width.

    One for all: each pin is priced by a plan without it.
    """

    def pins(graph: Graph, tiling: str) -> Mapping[str, str]:
        layers = {name.removesuffix(".y") for name in graph.tensors if name.endswith(".y")}
        assert layers - {"normal"} == {"x", "one", "active", "two", "three", "sum"}
        return {"*.y": tiling}

    return pins
