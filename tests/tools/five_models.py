"""Five networks whose plans are put on trial: convolutions, attention, recurrence; small enough for two cores.

Each is a training step, written to a file by ``write``, and the pins that its plan for some workers must keep:
the small CNN is cut along height and width, so that every kind of border has a halo somewhere.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from planner import api
from planner.features.zoo.models.forward import Forward
from planner.features.zoo.models.transformer import GptShape, gpt
from planner.graph.core.model import Graph
from planner.graph.files.to_onnx import write_model
from planner.training.build import build_training_graph

MODELS = Path(__file__).parent.parent / "models"
WORKERS = (1, 2, 3, 4, 8)

SPATIAL = {2: "S(2)", 3: "S(3)", 4: "S(2)/2 S(3)/2", 8: "S(2)/2 S(3)/2 S(2)/2"}
"""By workers, the tiling of the CNN's image and of its activations up to the last convolution."""
CUT = "cut.*.y"
"""Their names."""


def resnet50(path: Path, *, batch: int = 8) -> None:
    """ResNet-50 with a sixteenth of the channels; statistics of the batch, momentum."""
    api.grad(
        MODELS / "resnet50.raw.onnx", loss="softmax_cross_entropy", optimizer="momentum", lr=0.01, batch=batch,
        output=path,
    )  # fmt: skip


def bert(path: Path) -> None:
    """A training step of a small BERT, as a framework has exported it."""
    path.write_bytes((MODELS / "bert_step.onnx").read_bytes())


def lstm(path: Path, *, batch: int = 8, steps: int = 3, width: int = 16) -> None:
    """Two layers of LSTMs, the lower one in both directions, and a classifier of every time step."""
    model = Forward("lstm")
    below, size = model.input("x", steps, batch, width), width
    for layer, directions in (("lower", 2), ("upper", 1)):
        weight, recurrent, bias = (
            model.parameter(f"{layer}.{name}", directions, *shape)
            for name, shape in (
                ("weight", (4 * width, size)),
                ("recurrent", (4 * width, width)),
                ("bias", (8 * width,)),
            )
        )
        states = (directions, batch, width)
        shapes = [(steps, directions, batch, width), states, states]
        direction = "bidirectional" if directions == 2 else "forward"
        above, _, _ = model.ops(
            layer, "LSTM", [below, weight, recurrent, bias], shapes, hidden_size=width, direction=direction
        )
        size = directions * width
        above = model.transpose(f"{layer}.turned", above, 0, 2, 1, 3)
        below = model.reshape(f"{layer}.joined", above, steps, batch, size)
    rows = model.reshape("rows", below, steps * batch, size)
    output = model.linear("classifier", rows, 5)
    _write(model.graph(output), path, optimizer="adagrad", learning_rate=0.05)


def gpt_block(path: Path, *, batch: int = 4, width: int = 32, sequence: int = 16) -> None:
    """One decoder block with causal attention."""
    write_model(gpt("gpt-block", GptShape(1, width, 4, sequence, bias=True), batch=batch), path)


def cnn(path: Path, *, batch: int = 4, channels: int = 4) -> None:
    """3x3 convolutions with every kind of border: padded, strided, dilated, both, padded unevenly; odd sizes."""
    model = Forward("cnn")
    x = model.input("cut.image.y", batch, 3, 29, 31)
    one = _conv(model, "cut.one", x, channels, pads=(1, 1, 1, 1))
    active = model.relu("cut.relu", model.batch_norm("cut.norm", one))
    strided = _conv(model, "cut.strided", active, channels + 2, stride=2, pads=(0, 1, 1, 0))
    dilated = _conv(model, "cut.dilated", strided, channels + 2, dilation=2, pads=(2, 2, 2, 2))
    joined = model.each("cut.sum", "Add", strided, dilated)
    both = _conv(model, "cut.both", joined, channels + 2, stride=2, dilation=2, pads=(1, 2, 2, 1))
    uneven = _conv(model, "cut.uneven", both, channels + 2, pads=(2, 0, 0, 1))
    pooled = model.pool("pool", "MaxPool", uneven, 3, stride=2, pad=1)
    output = model.linear("classifier", model.flatten("flat", pooled), 5)
    _write(model.graph(output), path, optimizer="momentum", learning_rate=0.02)


def _conv(
    model: Forward,
    layer: str,
    x: str,
    filters: int,
    *,
    stride: int = 1,
    dilation: int = 1,
    pads: tuple[int, int, int, int],
) -> str:
    """A 3x3 convolution with bias; ``pads`` in ONNX's order (top, left, bottom, right)."""
    batch, channels, *image = model.shape(x)
    sizes = [(image[dim] + pads[dim] + pads[dim + 2] - 2 * dilation - 1) // stride + 1 for dim in range(2)]
    weights = [model.parameter(f"{layer}.weight", filters, channels, 3, 3), model.parameter(f"{layer}.bias", filters)]
    return model.op(
        layer, "Conv", [x, *weights], (batch, filters, *sizes),
        kernel_shape=(3, 3), strides=(stride, stride), dilations=(dilation, dilation), pads=pads,
    )  # fmt: skip


def _write(forward: Graph, path: Path, *, optimizer: str, learning_rate: float) -> None:
    graph = build_training_graph(
        forward, loss="softmax_cross_entropy", optimizer=optimizer, learning_rate=learning_rate
    )
    write_model(graph, path)


WRITERS: Mapping[str, Callable[[Path], None]] = {
    "resnet50": resnet50,
    "bert": bert,
    "lstm": lstm,
    "gpt-block": gpt_block,
    "cnn-spatial": cnn,
}
"""By name, what writes a training step."""


def planned(name: str, workers: int, folder: Path) -> Path:
    """The plan of a network on a number of workers, in a folder of its own."""
    train, directory = folder / f"{name}.onnx", folder / f"{name}.tofu{workers}"
    if not train.exists():
        WRITERS[name](train)
    if not directory.exists():
        pins = {CUT: SPATIAL[workers]} if name == "cnn-spatial" and workers > 1 else {}
        # Each convolution with a delivery of its own: what is on trial is that it joins its tile with a neighbour's.
        api.plan(train, gpus=workers, pin=pins, share="none" if pins else "auto", out=directory)
    return directory
