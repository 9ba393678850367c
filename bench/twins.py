"""One network, written in several ways: what its plans cost, over the cheapest of its group.

    python bench/twins.py [--workers 2 4 8] [--only NAME ...] [--run]

Cost is bytes moved and excess, in kB. All spellings of a group compute the same numbers; "step" groups are training
steps with SGD (``tofu grad``), the others run forward. ``--run`` runs each plan on 3 workers and verifies it.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from onnx import ModelProto, TensorProto, helper, numpy_helper
from rich.console import Console
from rich.table import Table

from planner import api


@dataclass
class Network:
    """Nodes and weights of a network with one input ``x`` and one output ``y``."""

    x: tuple[int, ...]
    y: tuple[int, ...]
    opset: int = 21
    nodes: list[Any] = field(default_factory=list)
    weights: dict[str, np.ndarray] = field(default_factory=dict)

    def weight(self, name: str, *shape: int) -> str:
        """A drawn weight, the same in every spelling that asks for this name and size."""
        drawn = np.random.default_rng(sum(map(ord, name))).normal(size=shape) / np.sqrt(shape[0])
        return self.constant(name, drawn.astype(np.float32))

    def constant(self, name: str, value: Any) -> str:
        """A given array."""
        self.weights[name] = np.asarray(value)
        return name

    def ints(self, name: str, *values: int) -> str:
        """A list of int64."""
        return self.constant(name, np.array(values, np.int64))

    def add(self, op_type: str, inputs: str, outputs: str, **attributes: Any) -> str:
        """A node of operands that are named with blanks between; gives the first output."""
        self.nodes.append(helper.make_node(op_type, inputs.split(), outputs.split(), **attributes))
        return outputs.split()[0]

    def model(self) -> ModelProto:
        """As a message."""
        graph = helper.make_graph(
            self.nodes, "twin",
            [helper.make_tensor_value_info("x", TensorProto.FLOAT, self.x)],
            [helper.make_tensor_value_info("y", TensorProto.FLOAT, self.y)],
            [numpy_helper.from_array(value, name) for name, value in self.weights.items()],
        )  # fmt: skip
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", self.opset)], ir_version=9)


def gated(*, packed: bool) -> Network:
    """silu(x Wg) * (x Wu), [Wg | Wu] as one matrix or as two, and a product behind it."""
    net = Network((256, 64), (256, 64))
    gate, up = np.split(net.weights.pop(net.weight("gate_up", 64, 512)), 2, axis=1)
    if packed:
        net.constant("gate_up", np.concatenate([gate, up], axis=1))
        net.add("MatMul", "x gate_up", "both")
        net.add("Split", "both", "g u", axis=1, num_outputs=2)
    else:
        net.constant("gate", gate), net.constant("up", up)
        net.add("MatMul", "x gate", "g"), net.add("MatMul", "x up", "u")
    net.add("Sigmoid", "g", "s"), net.add("Mul", "g s", "silu"), net.add("Mul", "silu u", "h")
    net.weight("down", 256, 64)
    net.add("MatMul", "h down", "y")
    return net


def attention(*, packed: bool) -> Network:
    """An attention of 4 heads over [2, 32, 64], q, k, v by one matrix or by three."""
    net = Network((2, 32, 64), (2, 32, 64))
    q, k, v = np.split(net.weights.pop(net.weight("qkv", 64, 192)), 3, axis=1)
    net.ints("heads", 2, 32, 4, 16), net.ints("flat", 2, 32, 64)
    if packed:
        net.constant("qkv", np.concatenate([q, k, v], axis=1))
        net.add("MatMul", "x qkv", "all")
        net.add("Split", "all", "q k v", axis=2, num_outputs=3)
    else:
        for name, matrix in (("q", q), ("k", k), ("v", v)):
            net.constant(f"w{name}", matrix)
            net.add("MatMul", f"x w{name}", name)
    for name, perm in (("q", (0, 2, 1, 3)), ("k", (0, 2, 3, 1)), ("v", (0, 2, 1, 3))):
        net.add("Reshape", f"{name} heads", f"{name}r")
        net.add("Transpose", f"{name}r", f"{name}h", perm=perm)
    net.add("MatMul", "qh kh", "scores"), net.add("Softmax", "scores", "p", axis=-1), net.add("MatMul", "p vh", "o")
    net.add("Transpose", "o", "ot", perm=(0, 2, 1, 3)), net.add("Reshape", "ot flat", "of")
    net.weight("out", 64, 64)
    net.add("MatMul", "of out", "y")
    return net


def leading(*, order: tuple[int, int]) -> Network:
    """Two layers over the last dim of samples and positions, in either order."""
    shape = tuple((64, 8)[dim] for dim in order)
    net = Network((*shape, 32), (*shape, 32))
    net.weight("a", 32, 64), net.weight("b", 64, 32)
    net.add("MatMul", "x a", "h"), net.add("Relu", "h", "r"), net.add("MatMul", "r b", "y")
    return net


def normalised(*, opset: int) -> Network:
    """Convolutions around a normalisation of groups, as PyTorch's exporter writes it at an opset."""
    net = Network((2, 3, 32, 32), (2, 3, 32, 32), opset)
    net.weight("first", 16, 3, 3, 3), net.weight("last", 3, 16, 3, 3)
    scale, bias = (net.weights.pop(net.weight(name, 16)) for name in ("scale", "bias"))
    net.add("Conv", "x first", "c", pads=[1] * 4)
    if opset >= 21:
        net.constant("scale", scale), net.constant("bias", bias)
        net.add("GroupNormalization", "c scale bias", "n", num_groups=4)
    else:
        net.constant("scale", scale.reshape(16, 1, 1)), net.constant("bias", bias.reshape(16, 1, 1))
        net.constant("ones", np.ones(4, np.float32)), net.constant("zeros", np.zeros(4, np.float32))
        net.ints("merged", 0, 4, -1), net.ints("whole", 2, 16, 32, 32)
        net.add("Reshape", "c merged", "m"), net.add("InstanceNormalization", "m ones zeros", "i")
        net.add("Reshape", "i whole", "w"), net.add("Mul", "w scale", "ws"), net.add("Add", "ws bias", "n")
    net.add("Relu", "n", "r"), net.add("Conv", "r last", "y", pads=[1] * 4)
    return net


def between(body: Callable[[Network], object], size: int = 32) -> Network:
    """Two convolutions, and between them what a body makes of ``h``, as ``m``."""
    net = Network((2, 3, 32, 32), (2, 3, size, 32))
    net.weight("first", 8, 3, 3, 3), net.weight("last", 3, 8, 3, 3)
    net.add("Conv", "x first", "h", pads=[1] * 4)
    body(net)
    net.add("Conv", "m last", "y", pads=[1] * 4)
    return net


def looked_up(places: np.ndarray) -> Callable[[Network], object]:
    """A Gather of rows."""
    return lambda net: net.add("Gather", f"h {net.constant('places', places.astype(np.int64))}", "m", axis=2)


def repeated(net: Network) -> None:
    """Every row twice, by a Resize."""
    scales = net.constant("scales", np.array([1, 1, 2, 1], np.float32))
    net.nodes.append(
        helper.make_node("Resize", ["h", "", scales], ["m"], mode="nearest", nearest_mode="floor",
                         coordinate_transformation_mode="asymmetric")
    )  # fmt: skip


def sliced(net: Network) -> None:
    """Every second row."""
    net.ints("start", 0), net.ints("end", 32), net.ints("axis", 2), net.ints("step", 2)
    net.add("Slice", "h start end axis step", "m")


def halves(net: Network, *, swaps: int) -> None:
    """Rows in two halves, which are put together again, swapped so many times."""
    name = "h"
    for number in range(swaps):
        net.add("Split", name, f"a{number} b{number}", axis=2, num_outputs=2)
        name = net.add("Concat", f"b{number} a{number}", f"s{number}", axis=2)
    net.add("Identity", name, "m")


def depthwise(*, by_shifts: bool) -> Network:
    """A depthwise convolution over 3 positions between two layers, as one op or as shifted products."""
    net = Network((16, 8, 64), (16, 8, 64))
    net.weight("mix", 8, 8, 1)
    taps = net.weights.pop(net.weight("taps", 8, 1, 3))
    net.add("Conv", "x mix", "c")
    if by_shifts:
        net.ints("pads", 0, 0, 1, 0, 0, 1), net.ints("axis", 2), net.add("Pad", "c pads", "p")
        for tap in range(3):
            (
                net.ints(f"s{tap}", tap),
                net.ints(f"e{tap}", tap + 64),
                net.constant(f"w{tap}", taps[:, :, tap : tap + 1][:, 0]),
            )
            net.add("Slice", f"p s{tap} e{tap} axis", f"v{tap}"), net.add("Mul", f"v{tap} w{tap}", f"t{tap}")
        net.add("Sum", "t0 t1 t2", "y")
    else:
        net.constant("taps", taps), net.add("Conv", "c taps", "y", group=8, pads=[1, 1])
    return net


GROUPS: Mapping[str, Mapping[str, Callable[[], Network]]] = {
    "gate and up, step": {"separate": lambda: gated(packed=False), "packed": lambda: gated(packed=True)},
    "q, k, v, step": {"separate": lambda: attention(packed=False), "packed": lambda: attention(packed=True)},
    "samples, step": {"first dim": lambda: leading(order=(0, 1)), "second dim": lambda: leading(order=(1, 0))},
    "group norm": {f"opset {opset}": lambda opset=opset: normalised(opset=opset) for opset in (21, 20, 17)},  # type: ignore[misc]
    "group norm, step": {f"opset {opset}": lambda opset=opset: normalised(opset=opset) for opset in (21, 20)},  # type: ignore[misc]
    "upsampling": {
        "Resize": lambda: between(repeated, 64), "Gather": lambda: between(looked_up(np.arange(64) // 2), 64),
    },
    "upsampling, step": {
        "Resize": lambda: between(repeated, 64), "Gather": lambda: between(looked_up(np.arange(64) // 2), 64),
    },
    "every second row": {
        "Slice": lambda: between(sliced, 16), "Gather": lambda: between(looked_up(np.arange(0, 32, 2)), 16),
    },
    "halves": {
        "nothing": lambda: between(lambda net: halves(net, swaps=0)),
        "swapped twice": lambda: between(lambda net: halves(net, swaps=2)),
    },
    "depthwise, step": {"products": lambda: depthwise(by_shifts=True), "Conv": lambda: depthwise(by_shifts=False)},
}  # fmt: skip


def measured(name: str, workers: list[int], folder: Path, *, runs: bool) -> list[list[str]]:
    """A row for each spelling of a group: costs, and the ratio to the cheapest."""
    costs: dict[str, list[int]] = {}
    verdicts: dict[str, str] = {}
    for spelling, build in GROUPS[name].items():
        file = folder / "model.onnx"
        file.write_bytes(build().model().SerializeToString())
        if name.endswith(", step"):
            api.grad(file, loss="mse", optimizer="sgd", lr=0.1, output=folder / "step.onnx")
            file = folder / "step.onnx"
        plans = [api.plan(file, gpus=count, out=folder / "plan", force=True).plan for count in workers]
        costs[spelling] = [plan.cost for plan in plans]
        verdicts[spelling] = ""
        if runs:
            api.plan(file, gpus=3, out=folder / "plan", force=True)
            verdicts[spelling] = "right" if api.run(folder / "plan", verify=True).verified else "WRONG"
    least = [max(1, min(column)) for column in zip(*costs.values(), strict=True)]
    return [
        [name, spelling, *(f"{cost / 1e3:,.1f}  {cost / best:.2f}" for cost, best in zip(row, least, strict=True)),
         verdicts[spelling]]
        for spelling, row in costs.items()
    ]  # fmt: skip


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workers", type=int, nargs="+", default=[2, 4, 8])
    parser.add_argument("--only", nargs="+", default=list(GROUPS), choices=list(GROUPS))
    parser.add_argument("--run", action="store_true", help="run each on 3 workers and verify it")
    options = parser.parse_args()
    table = Table("network", "written as", *(f"{count} workers" for count in options.workers), "run")
    with tempfile.TemporaryDirectory() as folder:
        for name in options.only:
            for row in measured(name, options.workers, Path(folder), runs=options.run):
                table.add_row(*row)
    Console(width=110).print(table)


if __name__ == "__main__":
    main()
