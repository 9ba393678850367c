"""Training steps as PyTorch traces them: ``make_fx`` of a forward and backward pass, its ATen ops written as ONNX's.

    python tests/tools/spellings_of_torch.py [NETWORK ...]    # where torch and onnx are installed; all by default

Nothing is simplified: views, copies, transposes and expansions stand in the file as they are traced. What ATen has as
one op and ONNX has not is several here: the gradients of a convolution are a ConvTranspose and a Conv of Transposes.
"""

from __future__ import annotations

import argparse
import ast
import operator
from collections.abc import Callable, Mapping, Sequence
from math import sqrt
from pathlib import Path
from typing import Any

import numpy as np
import torch
from onnx import ModelProto, TensorProto, checker, helper, numpy_helper, save_model
from torch._decomp import core_aten_decompositions, get_decompositions
from torch.fx.experimental.proxy_tensor import make_fx

HERE = Path(__file__).parent
FOLDER = HERE.parent / "models" / "spellings"
RATE = 0.01
EPSILON = 1e-5
aten = torch.ops.aten
Step = tuple[Callable[..., Any], dict[str, tuple[int, ...]]]


def mlp(layers: int, width: int, batch: int) -> Step:
    """Linear layers whose weights are [out, in]."""
    shapes = {"x": (batch, width), "target": (batch, width)} | {f"w{n}": (width, width) for n in range(layers)}

    def forward(x: torch.Tensor, weights: Sequence[torch.Tensor]) -> torch.Tensor:
        for number, weight in enumerate(weights):
            x = torch.nn.functional.linear(torch.relu(x) if number else x, weight)
        return x

    return _step(forward), shapes


def cnn(layers: int, channels: int, image: int, batch: int) -> Step:
    """Convolutions."""
    images = (batch, channels, image, image)
    shapes = {"x": images, "target": images} | {f"w{n}": (channels, channels, 3, 3) for n in range(layers)}

    def forward(x: torch.Tensor, weights: Sequence[torch.Tensor]) -> torch.Tensor:
        for number, weight in enumerate(weights):
            x = torch.nn.functional.conv2d(torch.relu(x) if number else x, weight, padding=1)
        return x

    return _step(forward), shapes


def gpt(blocks: int, width: int, heads: int, sequence: int, batch: int) -> Step:
    """Blocks on [samples, tokens, width], attention in its own ops."""
    rows = (batch, sequence, width)
    shapes: dict[str, tuple[int, ...]] = {"x": rows, "target": rows, "mask": (sequence, sequence)}
    for block in range(blocks):
        for name, shape in (
            *(("norm1", (width,)), ("qkv", (3 * width, width)), ("out", (width, width))),
            *(("norm2", (width,)), ("wide", (4 * width, width)), ("narrow", (width, 4 * width))),
        ):
            shapes[f"b{block}.{name}"] = shape
    functional = torch.nn.functional

    def attention(x: torch.Tensor, qkv: torch.Tensor, out: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        parts = functional.linear(x, qkv).view(batch, sequence, heads, 3 * width // heads)
        q, k, v = (part.transpose(1, 2) for part in parts.split(width // heads, dim=3))
        scores = (q @ k.transpose(2, 3)) * (1 / sqrt(width // heads))
        weights = torch.softmax(torch.where(mask, scores, -1e9), dim=-1)
        return functional.linear((weights @ v).transpose(1, 2).reshape(rows), out)

    def forward(x: torch.Tensor, weights: Sequence[torch.Tensor]) -> torch.Tensor:
        mask, *others = weights
        for block in range(blocks):
            norm1, qkv, out, norm2, wide, narrow = others[6 * block : 6 * block + 6]
            x = x + attention(functional.layer_norm(x, (width,), norm1, eps=EPSILON), qkv, out, mask)
            inner = functional.linear(functional.layer_norm(x, (width,), norm2, eps=EPSILON), wide)
            x = x + functional.linear(functional.gelu(inner, approximate="tanh"), narrow)
        return x

    return _step(forward), shapes


def _step(forward: Callable[..., torch.Tensor]) -> Callable[..., Any]:
    def step(x: torch.Tensor, target: torch.Tensor, *weights: torch.Tensor) -> tuple[torch.Tensor, ...]:
        loss = torch.nn.functional.mse_loss(forward(x, weights), target)
        trained = [weight for weight in weights if weight.is_floating_point()]
        gradients = torch.autograd.grad(loss, trained)
        return (loss, *(weight - gradient * RATE for weight, gradient in zip(trained, gradients, strict=True)))

    return step


def traced(step: Callable[..., Any], shapes: Mapping[str, tuple[int, ...]]) -> torch.fx.GraphModule:
    """The step in ATen's core ops, from fake tensors: nothing is computed."""
    table = core_aten_decompositions()
    more = (aten.mse_loss, aten.mse_loss_backward, aten.gelu_backward, aten.native_layer_norm_backward)
    table.update(get_decompositions([*more, aten.gelu, aten.threshold_backward, aten.native_layer_norm, aten._softmax]))
    with torch._subclasses.FakeTensorMode():
        values = [
            torch.empty(shape, dtype=torch.bool)
            if name == "mask"
            else torch.empty(shape, requires_grad=name not in ("x", "target"))
            for name, shape in shapes.items()
        ]
        return make_fx(step, decomposition_table=table, tracing_mode="fake")(*values)


class Writer:
    """ATen ops as nodes.

    Args:
        name: of the model.
        module: the trace.
        inputs: names of its inputs.
    """

    def __init__(self, name: str, module: torch.fx.GraphModule, inputs: Sequence[str]) -> None:
        self._nodes: list[Any] = []
        self._constants: dict[str, np.ndarray] = {}
        self._names: dict[torch.fx.Node, str] = {}
        self._several: dict[torch.fx.Node, tuple[str, ...]] = {}
        self._count = 0
        given = iter(inputs)
        values, outputs = [], []
        for node in module.graph.nodes:
            if node.op == "placeholder":
                self._names[node] = next(given)
                values.append(self._info(self._names[node], node))
            elif node.op == "call_function":
                self._call(node)
            elif node.op == "output":
                trained = [other for other in inputs if other not in ("x", "target", "mask")]
                for made, to in zip(node.args[0], ("loss", *(f"{other}.next" for other in trained)), strict=True):
                    self("Identity", self._names[made], made=to)
                    outputs.append(self._info(to, made))
            else:
                raise NotImplementedError(node.op)
        constants = [numpy_helper.from_array(value, key) for key, value in self._constants.items()]
        graph = helper.make_graph(self._nodes, name, values, outputs, constants)
        self.model: ModelProto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
        checker.check_model(self.model, full_check=True)

    def __call__(self, op_type: str, *inputs: str, made: str = "", **attributes: object) -> str:
        self._count += 1
        name = made or f"v{self._count}"
        self._nodes.append(helper.make_node(op_type, inputs, [name], name=f"n{self._count}", **attributes))
        return name

    @staticmethod
    def _info(name: str, node: torch.fx.Node) -> Any:
        value = node.meta["val"]
        kind = TensorProto.BOOL if value.dtype == torch.bool else TensorProto.FLOAT
        return helper.make_tensor_value_info(name, kind, tuple(value.shape))

    def _ints(self, values: Sequence[int]) -> str:
        name = "i" + "x".join(map(str, values))
        self._constants[name] = np.array(values, np.int64)
        return name

    def _operand(self, value: object) -> str:
        if isinstance(value, torch.fx.Node):
            return self._names[value]
        number = float(value)  # type: ignore[arg-type]
        name = f"c{number:.9g}"
        self._constants[name] = np.array(number, np.float32)
        return name

    def _call(self, node: torch.fx.Node) -> None:
        if node.target is operator.getitem:
            self._names[node] = self._several[node.args[0]][node.args[1]]  # type: ignore[index]
            return
        if node.target is aten.convolution_backward.default:
            self._several[node] = self._convolution_backward(node)
            return
        if node.target in (aten.split.Tensor, aten.split_with_sizes.default):
            self._several[node] = self._split(node)
            return
        name = str(node.target).removeprefix("aten.").split(".")[0]
        if name in _ELEMENTWISE:
            self._names[node] = self(_ELEMENTWISE[name], *map(self._operand, node.args))
            return
        self._names[node] = getattr(self, f"_{name}")(node, *node.args)

    @staticmethod
    def _shape(node: torch.fx.Node) -> tuple[int, ...]:
        return tuple(node.meta["val"].shape)

    def _t(self, node: torch.fx.Node, x: torch.fx.Node) -> str:
        return self("Transpose", self._names[x], perm=(1, 0))

    def _permute(self, node: torch.fx.Node, x: torch.fx.Node, dims: Sequence[int]) -> str:
        rank = len(self._shape(x))
        return self("Transpose", self._names[x], perm=[dim % rank for dim in dims])

    def _transpose(self, node: torch.fx.Node, x: torch.fx.Node, one: int, two: int) -> str:
        perm = list(range(len(self._shape(x))))
        perm[one], perm[two] = perm[two], perm[one]
        return self("Transpose", self._names[x], perm=perm)

    def _view(self, node: torch.fx.Node, x: torch.fx.Node, *_: object) -> str:
        return self("Reshape", self._names[x], self._ints(self._shape(node)))

    __unsafe_view = _unsafe_view = _reshape = _squeeze = _unsqueeze = _view

    def _expand(self, node: torch.fx.Node, x: torch.fx.Node, *_: object) -> str:
        return self("Expand", self._names[x], self._ints(self._shape(node)))

    def _clone(self, node: torch.fx.Node, x: torch.fx.Node) -> str:
        return self("Identity", self._names[x])

    _detach = _alias = __to_copy = _clone

    def _rsqrt(self, node: torch.fx.Node, x: torch.fx.Node) -> str:
        return self("Reciprocal", self("Sqrt", self._names[x]))

    def _sum(self, node: torch.fx.Node, x: torch.fx.Node, dims: Sequence[int] = (), keep: bool = False) -> str:
        return self._reduce("ReduceSum", x, dims, keep)

    def _mean(self, node: torch.fx.Node, x: torch.fx.Node, dims: Sequence[int] = (), keep: bool = False) -> str:
        return self._reduce("ReduceMean", x, dims, keep)

    def _amax(self, node: torch.fx.Node, x: torch.fx.Node, dims: Sequence[int] = (), keep: bool = False) -> str:
        return self._reduce("ReduceMax", x, dims, keep)

    def _reduce(self, op_type: str, x: torch.fx.Node, dims: Sequence[int], keep: bool) -> str:
        rank = len(self._shape(x))
        axes = [dim % rank for dim in dims] or list(range(rank))
        return self(op_type, self._names[x], self._ints(axes), keepdims=int(keep))

    def _var_mean_correction(self, node: torch.fx.Node) -> None:
        x, dims = node.args[0], node.args[1]
        mean = self._reduce("ReduceMean", x, dims, True)  # type: ignore[arg-type]
        centred = self("Sub", self._names[x], mean)  # type: ignore[index]
        rank = len(self._shape(x))  # type: ignore[arg-type]
        axes = self._ints([dim % rank for dim in dims])  # type: ignore[union-attr]
        self._several[node] = (self("ReduceMean", self("Mul", centred, centred), axes), mean)

    def _var_mean(self, node: torch.fx.Node, *_: object) -> str:
        self._var_mean_correction(node)
        return ""

    def _scalar_tensor(self, node: torch.fx.Node, value: float) -> str:
        return self._operand(value)

    def _full(self, node: torch.fx.Node, shape: Sequence[int], value: float) -> str:
        return self("Expand", self._operand(value), self._ints(shape)) if shape else self._operand(value)

    def _full_like(self, node: torch.fx.Node, x: torch.fx.Node, value: float) -> str:
        return self._full(node, self._shape(x), value)

    def _ones_like(self, node: torch.fx.Node, x: torch.fx.Node) -> str:
        return self._full(node, self._shape(x), 1.0)

    def _slice(self, node: torch.fx.Node, x: torch.fx.Node, dim: int, start: int, end: int) -> str:
        stop = min(end, self._shape(x)[dim])
        return self("Slice", self._names[x], *(self._ints([value]) for value in (start, stop, dim)))

    def _cat(self, node: torch.fx.Node, parts: Sequence[torch.fx.Node], dim: int = 0) -> str:
        return self("Concat", *(self._names[part] for part in parts), axis=dim % len(self._shape(node)))

    def _split(self, node: torch.fx.Node) -> tuple[str, ...]:
        x, _, *rest = node.args
        dim = rest[0] if rest else node.kwargs.get("dim", 0)
        sizes = [part.shape[dim] for part in node.meta["val"]]
        self._count += 1
        names = [f"v{self._count}.{number}" for number in range(len(sizes))]
        read = [self._names[x], self._ints(sizes)]  # type: ignore[index]
        self._nodes.append(helper.make_node("Split", read, names, name=f"n{self._count}", axis=dim))
        return tuple(names)

    def _convolution(self, node: torch.fx.Node, x: torch.fx.Node, w: torch.fx.Node, *_: object) -> str:
        return self("Conv", self._names[x], self._names[w], pads=(1, 1, 1, 1))

    def _convolution_backward(self, node: torch.fx.Node) -> tuple[str, ...]:
        gradient, x, w = (self._names[one] for one in node.args[:3])  # type: ignore[index]
        wanted = node.args[-1]
        turned = (self("Transpose", one, perm=(1, 0, 2, 3)) for one in (x, gradient))
        of_weight = self("Conv", *turned, pads=(1, 1, 1, 1))
        of_x = self("ConvTranspose", gradient, w, pads=(1, 1, 1, 1)) if wanted[0] else ""  # type: ignore[index]
        return of_x, self("Transpose", of_weight, perm=(1, 0, 2, 3)), ""


_ELEMENTWISE = {
    "mm": "MatMul",
    "bmm": "MatMul",
    "matmul": "MatMul",
    "relu": "Relu",
    "sub": "Sub",
    "add": "Add",
    "mul": "Mul",
    "div": "Div",
    "pow": "Pow",
    "where": "Where",
    "le": "LessOrEqual",
    "exp": "Exp",
    "tanh": "Tanh",
    "neg": "Neg",
    "sqrt": "Sqrt",
    "reciprocal": "Reciprocal",
}


def _networks() -> dict[str, tuple[str, tuple[int, ...]]]:
    """Kind and sizes of the networks of ``spellings.py``, which wants another environment; read, and not imported."""
    tree = ast.parse((HERE / "spellings.py").read_text())
    for statement in tree.body:
        if isinstance(statement, ast.Assign) and getattr(statement.targets[0], "id", "") == "NETWORKS":
            assert isinstance(statement.value, ast.Dict), "NETWORKS is a dict"
            found = {}
            for key, value in zip(statement.value.keys, statement.value.values, strict=True):
                sizes = value.args[0]  # type: ignore[attr-defined]
                found[ast.literal_eval(key)] = (sizes.func.id.lower(), tuple(map(ast.literal_eval, sizes.args)))  # type: ignore[arg-type]
            return found
    raise LookupError("spellings.py has no NETWORKS")


def main() -> None:
    networks = _networks()
    parser = argparse.ArgumentParser(description="Training steps as PyTorch traces them.")
    parser.add_argument("networks", nargs="*", metavar="NETWORK", help=f"of {', '.join(networks)}; all by default")
    for name in parser.parse_args().networks or networks:
        kind, sizes = networks[name]
        step, shapes = {"mlp": mlp, "cnn": cnn, "gpt": gpt}[kind](*sizes)
        file = FOLDER / f"{name}.torch.onnx"
        save_model(Writer(name, traced(step, shapes), list(shapes)).model, file)
        print(f"{file.name}: {file.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
