"""Makes tests/models/ort_training_operators.npz: gradients of single operators as onnxruntime-training computes them.

    ort/bin/python tests/tools/ort_operators.py [--into FILE]    # in the environment that ort_artifacts.py describes

Each case is one or a few forward ops with all their float operands trained, and the loss Σ dy·y over the outputs.
onnxruntime-training differentiates it, with whatever gradient operators it has, and its runtime computes them. Of each
case the file holds the training model's bytes (``CASE/model``), and the elements of its inputs and of the gradients, in
the order of its inputs and accumulators (``CASE/values``).
What its build for the CPU does not differentiate (ReduceL2, ReduceLogSumExp from opset 13 on, GlobalMaxPool) or has no
kernels for (ConvTranspose, Resize, recurrent ops backwards) is not among them; a case that fails is named.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
from onnx import NodeProto, TensorProto, helper, numpy_helper
from onnxruntime.training import artifacts

from ort_artifacts import MODELS, computed

FILE = MODELS / "ort_training_operators.npz"
MS = "com.microsoft"


@dataclass(frozen=True)
class Case:
    """Forward ops, of operands by shape, which are trained, and by value, which are not."""

    nodes: Sequence[NodeProto]
    shapes: Mapping[str, tuple[int, ...]]
    constants: Mapping[str, Any] = field(default_factory=dict)
    outputs: Sequence[str] = ("y",)
    opset: int = 17
    positive: bool = False
    """Operands in (0.5, 1.5): of logarithms, roots and divisors."""


def op(op_type: str, inputs: str = "x", outputs: str = "y", **attributes: Any) -> NodeProto:
    """A node; names are separated by blanks, ``_`` is an absent one, ``ms.`` before the operator is its domain."""
    domain, _, kind = op_type.rpartition(".")
    read, made = (["" if name == "_" else name for name in names.split()] for names in (inputs, outputs))
    return helper.make_node(kind, read, made, domain=MS if domain else "", **attributes)


def unary(op_type: str, *, positive: bool = False, **attributes: Any) -> Case:
    return Case([op(op_type, **attributes)], {"x": (3, 4)}, positive=positive)


IMAGE = (2, 3, 7, 6)
POOL = {"kernel_shape": [3, 2], "strides": [2, 1], "pads": [1, 0, 1, 1]}
CONV = {"strides": [2, 1], "pads": [1, 0, 1, 1], "dilations": [1, 2]}
LABELS = np.array([0, 3, 1, 1, 2])
WEIGHTS = np.array([0.5, 1, 2, 3], np.float32)
GATES = {"LSTM": 4, "GRU": 3}


def binary(op_type: str, **attributes: Any) -> Case:
    return Case([op(op_type, "a b", **attributes)], {"a": (2, 3, 4), "b": (3, 1)}, positive=op_type in ("Div", "Pow"))


def pool(op_type: str, shape: tuple[int, ...], **attributes: Any) -> Case:
    """Of a tensor that an op makes: the runtime ends where a parameter is pooled."""
    return Case([op("Identity", outputs="z"), op(op_type, "z", **attributes)], {"x": shape})


def norm(op_type: str, operands: str, outputs: str, **attributes: Any) -> Case:
    shapes = {"x": (2, 3, 4), "s": (4,), "b": (4,)}
    return Case([op(op_type, operands, outputs, **attributes)], {key: shapes[key] for key in operands.split()})


def loss(reduction: str, *operands: str, **attributes: Any) -> Case:
    node = op("SoftmaxCrossEntropyLoss", " ".join(("x", "t", *operands)), "y p", reduction=reduction, **attributes)
    return Case([node], {"x": (5, 4)}, {"t": LABELS, "w": WEIGHTS} if operands else {"t": LABELS})


def cell(op_type: str, states: str, outputs: str, **attributes: Any) -> Case:
    """With initial states, and forward: it does not differentiate without, or has no kernel."""
    gates, hidden = GATES[op_type], 3
    shapes = {"x": (4, 2, 5), "w": (1, gates * hidden, 5), "r": (1, gates * hidden, hidden),
              "b": (1, 2 * gates * hidden), **dict.fromkeys(states.split(), (1, 2, hidden))}  # fmt: skip
    node = op(op_type, f"x w r b _ {states}", outputs, hidden_size=hidden, **attributes)
    return Case([node], shapes, outputs=outputs.split())


CASES: dict[str, Case] = {
    **{name: unary(name) for name in ("Relu", "Sigmoid", "Tanh", "Erf", "Exp", "Sin", "Cos", "Abs", "Neg", "Identity",
                                      "LogSoftmax", "Flatten", "ms.Gelu", "ms.FastGelu", "ms.QuickGelu")},
    **{name: unary(name, positive=True) for name in ("Log", "Sqrt", "Reciprocal")},
    "LeakyRelu": unary("LeakyRelu", alpha=0.3),
    "QuickGelu alpha": unary("ms.QuickGelu", alpha=1.3),
    "Softmax": unary("Softmax", axis=0),
    "LogSoftmax axis": Case([op("LogSoftmax", axis=1)], {"x": (2, 3, 4)}),
    "ms.BiasGelu": Case([op("ms.BiasGelu", "x b")], {"x": (2, 3, 4), "b": (4,)}),
    "FastGelu bias": Case([op("ms.FastGelu", "x b")], {"x": (2, 3, 4), "b": (4,)}),
    "Clip": Case([op("Clip", "x low high")], {"x": (3, 4)}, {"low": np.float32(-0.5), "high": np.float32(0.5)}),
    **{name: binary(name) for name in ("Add", "Sub", "Mul", "Div", "Min", "Max")},
    "Pow 2": Case([op("Pow", "x e")], {"x": (3, 4)}, {"e": np.float32(2)}),
    "Pow 3": Case([op("Pow", "x e")], {"x": (3, 4)}, {"e": np.float32(3)}),
    "Where": Case([op("Where", "c a b")], {"a": (2, 3), "b": (2, 3)}, {"c": np.array([[True], [False]])}),
    "MatMul": Case([op("MatMul", "a b")], {"a": (2, 3, 4), "b": (4, 5)}),
    "MatMul batches": Case([op("MatMul", "a b")], {"a": (2, 1, 3, 4), "b": (3, 4, 2)}),
    "Gemm": Case([op("Gemm", "a b c", transA=1, transB=1, alpha=0.5, beta=2.0)], {"a": (3, 2), "b": (4, 3), "c": (4,)}),
    "ReduceMean": Case([op("ReduceMean", axes=[0, 2], keepdims=0)], {"x": (2, 3, 4)}),
    "ReduceMean keepdims": Case([op("ReduceMean", axes=[-1])], {"x": (2, 3, 4)}),
    "ReduceSum": Case([op("ReduceSum", "x axes", keepdims=0)], {"x": (2, 3, 4)}, {"axes": np.array([1])}),
    "Concat": Case([op("Concat", "a b", axis=1)], {"a": (2, 3), "b": (2, 1)}),
    "Split": Case([op("Split", "x sizes", "y z", axis=1)], {"x": (2, 5)}, {"sizes": np.array([2, 3])},
                  outputs=("y", "z")),
    "Reshape": Case([op("Reshape", "x s")], {"x": (2, 6)}, {"s": np.array([3, -1])}),
    "Transpose": Case([op("Transpose", perm=[1, 2, 0])], {"x": (2, 3, 4)}),
    "Squeeze": Case([op("Squeeze", "x axes")], {"x": (2, 1, 3)}, {"axes": np.array([1])}),
    "Unsqueeze": Case([op("Unsqueeze", "x axes")], {"x": (2, 3)}, {"axes": np.array([0, 2])}),
    "Slice": Case([op("Slice", "x f t _ p")], {"x": (5, 6)},
                  {"f": np.array([1, 0]), "t": np.array([4, 6]), "p": np.array([1, 2])}),
    "Expand": Case([op("Expand", "x s")], {"x": (3, 1)}, {"s": np.array([2, 3, 4])}),
    "Tile": Case([op("Tile", "x n")], {"x": (2, 3)}, {"n": np.array([2, 3])}),
    "Pad": Case([op("Pad", "x p")], {"x": (3, 4)}, {"p": np.array([1, 0, 0, 2])}),
    "Gather": Case([op("Gather", "x i", axis=1)], {"x": (3, 4)}, {"i": np.array([[0, 3], [3, -1]])}),
    "GatherElements": Case([op("GatherElements", "x i", axis=1)], {"x": (2, 4)}, {"i": np.array([[0, 3], [1, 1]])}),
    "GatherND": Case([op("GatherND", "x i")], {"x": (3, 4, 2)}, {"i": np.array([[0, 1], [2, 3], [0, 1]])}),
    "ScatterElements": Case([op("ScatterElements", "x i u", axis=1)], {"x": (2, 4), "u": (2, 2)},
                            {"i": np.array([[0, 3], [1, 2]])}),
    "ScatterND": Case([op("ScatterND", "x i u")], {"x": (3, 4), "u": (2, 4)}, {"i": np.array([[2], [0]])}),
    "TopK": Case([op("TopK", "x k", "y i")], {"x": (3, 5)}, {"k": np.array([2])}),
    "Trilu": Case([op("Trilu", upper=0)], {"x": (4, 4)}),
    "ms.Trilu": Case([op("ms.Trilu", upper=0)], {"x": (4, 4)}),
    "MaxPool": pool("MaxPool",  IMAGE, **POOL),
    "MaxPool 1-D": pool("MaxPool",  (2, 3, 9), kernel_shape=[3], strides=[2], dilations=[2]),
    "MaxPool ceil": pool("MaxPool",  IMAGE, kernel_shape=[2, 2], strides=[2, 2], ceil_mode=1),
    "AveragePool": pool("AveragePool",  IMAGE, **POOL),
    "AveragePool include": pool("AveragePool",  IMAGE, count_include_pad=1, **POOL),
    "GlobalAveragePool": Case([op("GlobalAveragePool")], {"x": IMAGE}),
    "Conv": Case([op("Conv", "x w b", **CONV)], {"x": IMAGE, "w": (4, 3, 3, 2), "b": (4,)}),
    "Conv groups": Case([op("Conv", "x w", group=2)], {"x": (2, 4, 5, 6), "w": (6, 2, 3, 3)}),
    "Conv 1-D": Case([op("Conv", "x w b", strides=[2])], {"x": (2, 3, 9), "w": (4, 3, 3), "b": (4,)}),
    "BatchNormalization": Case([op("BatchNormalization", "x s b m v", "y m2 v2", training_mode=1, momentum=0.8,
                                   epsilon=1e-3)], {"x": (4, 3, 5), "s": (3,), "b": (3,)},
                               {"m": np.zeros(3, np.float32), "v": np.ones(3, np.float32)}),
    "LayerNormalization": norm("LayerNormalization", "x s b", "y m v", epsilon=1e-3),
    "root mean square": Case(
        [op("Pow", "x two", "square"), op("ReduceMean", "square", "mean", axes=[-1]), op("Add", "mean e", "shifted"),
         op("Sqrt", "shifted", "root"), op("Div", "x root", "normal"), op("Mul", "normal s", "y")],
        {"x": (2, 3, 4), "s": (4,)}, {"two": np.float32(2), "e": np.float32(1e-3)}),
    "loss mean": loss("mean"),
    "loss sum": loss("sum", ignore_index=1),
    "loss none": loss("none", "w"),
    "loss weights": loss("mean", "w", ignore_index=1),
    "loss places": Case([op("SoftmaxCrossEntropyLoss", "x t", "y p")], {"x": (2, 4, 3)},
                        {"t": np.array([[0, 3, 1], [1, 2, 2]])}),
    "LSTM": cell("LSTM", "h0 c0", "y h c"),
    "GRU": cell("GRU", "h0", "y h", linear_before_reset=1),
    "GRU before reset": cell("GRU", "h0", "y h"),
}  # fmt: skip


def _forward(case: Case, rng: np.random.Generator) -> tuple[onnx.ModelProto, dict[str, np.ndarray]]:
    """The ops with a loss behind them, and its weights ``dy.NAME``, which are the model's only inputs."""
    low, high = (0.5, 1.5) if case.positive else (-1.0, 1.0)
    values = {name: rng.uniform(low, high, shape).astype(np.float32) for name, shape in case.shapes.items()}
    values |= {name: np.asarray(value) for name, value in case.constants.items()}
    imports = [helper.make_opsetid("", case.opset), helper.make_opsetid(MS, 1)]
    kept = [numpy_helper.from_array(value, name) for name, value in values.items()]
    alone = helper.make_graph(case.nodes, "forward", [], [helper.make_empty_tensor_value_info(name)
                                                          for name in case.outputs], kept)  # fmt: skip
    bare = helper.make_model(alone, opset_imports=imports, ir_version=9).SerializeToString()
    made = onnxruntime.InferenceSession(bare, providers=["CPUExecutionProvider"]).run(list(case.outputs), {})
    nodes, weights, total = list(case.nodes), {}, ""
    for name, value in zip(case.outputs, made, strict=True):
        weights[f"dy.{name}"] = rng.uniform(-1, 1, value.shape).astype(np.float32)
        nodes += [op("Mul", f"{name} dy.{name}", f"weighed.{name}")]
        nodes += [op("ReduceSum", f"weighed.{name}", f"part.{name}", keepdims=0)]
        if total:
            nodes += [op("Add", f"{total} part.{name}", f"total.{name}")]
        total = f"total.{name}" if total else f"part.{name}"
    nodes[-1].output[0] = "loss"
    graph = helper.make_graph(
        nodes, "forward", [helper.make_tensor_value_info(name, TensorProto.FLOAT, value.shape)
                           for name, value in weights.items()],
        [helper.make_tensor_value_info("loss", TensorProto.FLOAT, [])], kept,
    )  # fmt: skip
    return helper.make_model(graph, opset_imports=imports, ir_version=9), weights


def make(name: str) -> dict[str, np.ndarray]:
    """What the file holds of one case."""
    case, rng = CASES[name], np.random.default_rng(sum(name.encode()))
    forward, weights = _forward(case, rng)
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        artifacts.generate_artifacts(forward, requires_grad=list(case.shapes), artifact_directory=folder)
        given, found = computed(folder, list(weights.values()))
        model = onnx.load(folder / "training_model.onnx")
    del model.opset_import[:], model.graph.value_info[:]
    model.opset_import.extend([helper.make_opsetid("", case.opset), helper.make_opsetid(MS, 1)])
    names = [value.name for value in model.graph.input if value.name in given]
    assert all(given[key].dtype == np.float32 for key in names), name
    gradients = [node.input[1] for node in model.graph.node if node.op_type == "InPlaceAccumulatorV2"]
    values = [given[key] for key in names] + [found[key] for key in gradients]
    return {
        f"{name}/model": np.frombuffer(model.SerializeToString(), np.uint8),
        f"{name}/values": np.concatenate([value.reshape(-1) for value in values]),
    }


def main() -> None:
    """All cases."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--into", type=Path, default=FILE)
    options = parser.parse_args()
    kept: dict[str, np.ndarray] = {}
    operators: set[str] = set()
    for name in CASES:
        # Each in a process of its own: some end it.
        with ProcessPoolExecutor(1, get_context("fork")) as alone:
            try:
                made = alone.submit(make, name).result()
            except Exception as error:  # noqa: BLE001 -- the bindings raise RuntimeError and others of their own
                print(f"no gradient of {name}: {str(error).strip().splitlines()[0][-200:]}")
                continue
        kept |= made
        nodes = onnx.load_from_string(made[f"{name}/model"].tobytes()).graph.node
        operators |= {node.op_type for node in nodes if node.domain or node.op_type.endswith("Grad")}
    np.savez_compressed(options.into, **kept)
    print(f"{options.into.name}: {options.into.stat().st_size / 1000:.0f} kB, {sorted(operators)}")


if __name__ == "__main__":
    main()
