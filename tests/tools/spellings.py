"""Networks, each in several spellings: steps written by hand, built by ``tofu grad`` from forward models, traced.

    python tests/tools/spellings.py [NETWORK ...]                 writes the files that tofu can make
    python tests/tools/spellings_of_torch.py [NETWORK ...]        the traced ones; where torch is installed
    python tests/tools/spellings.py --plan [NETWORK ...]          plans them; prints bytes and gaps
                                    --effort quick                with another effort
                                    --as-written                  in the ops of the file, not in the canonical form

All spellings of a network compute the same step of SGD at the rate 0.01, without biases: ReLU between the layers (GPT:
tanh-GELU inside of its blocks, normalisation before each half of a block), and the mean squared distance from a target.
Files are in tests/models/spellings and hold no weights.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from math import prod, sqrt
from pathlib import Path

import numpy as np
from onnx import ModelProto, TensorProto, checker, helper, numpy_helper, save_model

from planner import opdefs
from planner.features.zoo.models.forward import Forward
from planner.graph.core.model import DType, Graph
from planner.graph.decompositions.randomness import lower_randomness
from planner.graph.files.to_onnx import write_model
from planner.graph.reading.from_onnx import read_model
from planner.graph.rewriting.canonical import canonical
from planner.planning.bodies import decide_with_bodies
from planner.search.request import SearchRequest
from planner.training.build import build_training_graph

FOLDER = Path(__file__).parent.parent / "models" / "spellings"
RATE = 0.01
EPSILON = 1e-5
_GELU = sqrt(2 / np.pi)
_CUBIC = 0.044715
Shape = tuple[int, ...]


@dataclass(frozen=True)
class Mlp:
    """Products of equal width."""

    layers: int
    width: int
    batch: int


@dataclass(frozen=True)
class Cnn:
    """Convolutions of 3x3 with padding, as many channels in as out."""

    layers: int
    channels: int
    image: int
    batch: int


@dataclass(frozen=True)
class Gpt:
    """Blocks on rows that are there, as the zoo's ``gpt-2x1024``; the mask of attention is an input."""

    blocks: int
    width: int
    heads: int
    sequence: int
    batch: int

    @property
    def rows(self) -> int:
        return self.batch * self.sequence

    @property
    def head(self) -> int:
        return self.width // self.heads

    @property
    def split(self) -> Shape:
        return self.batch, self.sequence, self.heads, 3 * self.head


@dataclass(frozen=True)
class Network:
    """What is spelled, and for how many workers it is planned."""

    sizes: Mlp | Cnn | Gpt
    workers: int


NETWORKS = {
    "mlp-4x8192-512": Network(Mlp(4, 8192, 512), 8),
    "mlp-4x8192-2048": Network(Mlp(4, 8192, 2048), 8),
    "mlp-5x300-400": Network(Mlp(5, 300, 400), 16),
    "cnn-5x2048-6": Network(Cnn(5, 2048, 6, 256), 8),
    "cnn-5x512-24": Network(Cnn(5, 512, 24, 256), 8),
    "gpt-2x1024": Network(Gpt(2, 1024, 16, 1024, 8), 8),
}


class Written:
    """A step of training that is written down node by node."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._nodes: list[object] = []
        self._inputs: list[tuple[str, int, Shape]] = []
        self._outputs: list[tuple[str, Shape]] = []
        self._constants: dict[str, np.ndarray] = {}
        self._count = 0

    def input(self, name: str, *shape: int, dtype: int = TensorProto.FLOAT) -> str:
        self._inputs.append((name, dtype, shape))
        return name

    def number(self, value: float) -> str:
        return self._constant(f"c{value:.8g}", np.array(value, np.float32))

    def ints(self, *values: int) -> str:
        return self._constant("i" + "x".join(map(str, values)), np.array(values, np.int64))

    def _constant(self, name: str, value: np.ndarray) -> str:
        self._constants[name] = value
        return name

    def __call__(self, op_type: str, *inputs: str, made: str = "", **attributes: object) -> str:
        """A node of one output."""
        return self.several(op_type, *inputs, made=(made,), **attributes)[0]

    def several(self, op_type: str, *inputs: str, made: Sequence[str], **attributes: object) -> tuple[str, ...]:
        names = []
        for name in made:
            self._count += 1
            names.append(name or f"{op_type.lower()}{self._count}")
        self._nodes.append(helper.make_node(op_type, inputs, names, name=f"n{self._count}", **attributes))
        return tuple(names)

    def turned(self, x: str, *perm: int) -> str:
        return self("Transpose", x, perm=perm or (1, 0))

    def loss(self, y: str, target: str, shape: Shape) -> str:
        """The mean squared distance; and its gradient."""
        distance = self("Sub", y, target)
        self("ReduceMean", self("Mul", distance, distance), made="loss", keepdims=0)
        self._outputs.append(("loss", ()))
        return self("Mul", distance, self.number(2 / prod(shape)))

    def update(self, weight: str, gradient: str, shape: Shape) -> None:
        step = self("Mul", gradient, self.number(RATE))
        self("Sub", weight, step, made=f"{weight}.next")
        self._outputs.append((f"{weight}.next", shape))

    def through_relu(self, gradient: str, before: str) -> str:
        return self("Where", self("Greater", before, self.number(0.0)), gradient, self.number(0.0))

    def model(self) -> ModelProto:
        graph = helper.make_graph(
            self._nodes,
            self.name,
            [helper.make_tensor_value_info(*one) for one in self._inputs],
            [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in self._outputs],
            [numpy_helper.from_array(value, name) for name, value in self._constants.items()],
        )
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
        checker.check_model(model, full_check=True)
        return model


def written_mlp(name: str, sizes: Mlp) -> ModelProto:
    """MatMuls of Transposes."""
    step = Written(name)
    shape, square = (sizes.batch, sizes.width), (sizes.width, sizes.width)
    read = [step.input("x", *shape)]
    target = step.input("target", *shape)
    weights = [step.input(f"w{number}", *square) for number in range(sizes.layers)]
    made: list[str] = []
    for weight in weights:
        made.append(step("MatMul", read[-1], weight))
        read.append(step("Relu", made[-1]))
    gradient = step.loss(made[-1], target, shape)
    for number in reversed(range(sizes.layers)):
        step.update(weights[number], step("MatMul", step.turned(read[number]), gradient), square)
        if number:
            back = step("MatMul", gradient, step.turned(weights[number]))
            gradient = step.through_relu(back, made[number - 1])
    return step.model()


def written_cnn(name: str, sizes: Cnn) -> ModelProto:
    """Gradients of weights by Convs of Transposes, those of images by ConvTransposes."""
    step = Written(name)
    shape = (sizes.batch, sizes.channels, sizes.image, sizes.image)
    kernel = (sizes.channels, sizes.channels, 3, 3)
    read = [step.input("x", *shape)]
    target = step.input("target", *shape)
    weights = [step.input(f"w{number}", *kernel) for number in range(sizes.layers)]
    made: list[str] = []
    for weight in weights:
        made.append(step("Conv", read[-1], weight, kernel_shape=(3, 3), pads=(1, 1, 1, 1)))
        read.append(step("Relu", made[-1]))
    gradient = step.loss(made[-1], target, shape)
    for number in reversed(range(sizes.layers)):
        images, filters = step.turned(read[number], 1, 0, 2, 3), step.turned(gradient, 1, 0, 2, 3)
        of_weight = step("Conv", images, filters, pads=(1, 1, 1, 1))
        step.update(weights[number], step.turned(of_weight, 1, 0, 2, 3), kernel)
        if number:
            back = step("ConvTranspose", gradient, weights[number], kernel_shape=(3, 3), pads=(1, 1, 1, 1))
            gradient = step.through_relu(back, made[number - 1])
    return step.model()


def written_gpt(name: str, sizes: Gpt) -> ModelProto:
    """Everything in products, Transposes and element-wise ops."""
    step = Written(name)
    x = step.input("x", sizes.rows, sizes.width)
    target = step.input("target", sizes.rows, sizes.width)
    mask = step.input("mask", sizes.sequence, sizes.sequence, dtype=TensorProto.BOOL)
    backs: list[Callable[[str], str]] = []
    for block in range(sizes.blocks):
        for half in (_attention, _feed_forward):
            inner, back = half(step, f"b{block}", x, mask, sizes)
            x = step("Add", x, inner)
            backs.append(back)
    gradient = step.loss(x, target, (sizes.rows, sizes.width))
    for back in reversed(backs):
        gradient = step("Add", gradient, back(gradient))
    return step.model()


def _normalised(step: Written, weight: str, x: str, width: int) -> tuple[str, Callable[[str], str]]:
    scale = step.input(weight, width)

    def mean(values: str) -> str:
        return step("ReduceMean", values, step.ints(-1))

    centred = step("Sub", x, mean(x))
    variance = mean(step("Mul", centred, centred))
    deviation = step("Sqrt", step("Add", variance, step.number(EPSILON)))
    normal = step("Div", centred, deviation)

    def back(gradient: str) -> str:
        step.update(weight, step("ReduceSum", step("Mul", gradient, normal), step.ints(0), keepdims=0), (width,))
        inner = step("Mul", gradient, scale)
        along = step("Mul", normal, mean(step("Mul", inner, normal)))
        return step("Div", step("Sub", step("Sub", inner, mean(inner)), along), deviation)

    return step("Mul", normal, scale), back


def _projected(step: Written, weight: str, x: str, shape: Shape) -> tuple[str, Callable[[str], str]]:
    step.input(weight, *shape)

    def back(gradient: str) -> str:
        step.update(weight, step("MatMul", step.turned(x), gradient), shape)
        return step("MatMul", gradient, step.turned(weight))

    return step("MatMul", x, weight), back


def _feed_forward(step: Written, block: str, x: str, mask: str, sizes: Gpt) -> tuple[str, Callable[[str], str]]:
    normal, norm_back = _normalised(step, f"{block}.norm2", x, sizes.width)
    wide, wide_back = _projected(step, f"{block}.wide", normal, (sizes.width, 4 * sizes.width))
    one, half = step.number(1.0), step.number(0.5)
    square = step("Mul", wide, wide)
    bent = step("Add", wide, step("Mul", step("Mul", square, wide), step.number(_CUBIC)))
    tanh = step("Tanh", step("Mul", bent, step.number(_GELU)))
    active = step("Mul", step("Mul", wide, half), step("Add", tanh, one))
    narrow, narrow_back = _projected(step, f"{block}.narrow", active, (4 * sizes.width, sizes.width))

    def back(gradient: str) -> str:
        outer = narrow_back(gradient)
        direct = step("Mul", step("Add", tanh, one), half)
        slope = step("Add", step("Mul", square, step.number(3 * _CUBIC * _GELU)), step.number(_GELU))
        through = step("Mul", step("Mul", wide, half), step("Sub", one, step("Mul", tanh, tanh)))
        return norm_back(wide_back(step("Mul", outer, step("Add", direct, step("Mul", through, slope)))))

    return narrow, back


def _attention(step: Written, block: str, x: str, mask: str, sizes: Gpt) -> tuple[str, Callable[[str], str]]:
    normal, norm_back = _normalised(step, f"{block}.norm1", x, sizes.width)
    qkv, qkv_back = _projected(step, f"{block}.qkv", normal, (sizes.width, 3 * sizes.width))
    parts = step.several(
        "Split", step("Reshape", qkv, step.ints(*sizes.split)), made=("", "", ""), axis=3, num_outputs=3
    )
    q, k, v = (step.turned(part, 0, 2, 1, 3) for part in parts)
    scale, low = step.number(1 / sqrt(sizes.head)), step.number(-1e9)
    scores = step("Mul", step("MatMul", q, step.turned(k, 0, 1, 3, 2)), scale)
    weights = step("Softmax", step("Where", mask, scores, low), axis=-1)
    mixed = step.turned(step("MatMul", weights, v), 0, 2, 1, 3)
    out, out_back = _projected(
        step, f"{block}.out", step("Reshape", mixed, step.ints(sizes.rows, sizes.width)), (sizes.width, sizes.width)
    )

    def back(gradient: str) -> str:
        heads = step.ints(sizes.batch, sizes.sequence, sizes.heads, sizes.head)
        of_mixed = step.turned(step("Reshape", out_back(gradient), heads), 0, 2, 1, 3)
        of_weights = step("MatMul", of_mixed, step.turned(v, 0, 1, 3, 2))
        of_v = step("MatMul", step.turned(weights, 0, 1, 3, 2), of_mixed)
        total = step("ReduceSum", step("Mul", of_weights, weights), step.ints(-1))
        of_scores = step("Mul", weights, step("Sub", of_weights, total))
        of_scores = step("Mul", step("Where", mask, of_scores, step.number(0.0)), scale)
        of_q, of_k = step("MatMul", of_scores, k), step("MatMul", step.turned(of_scores, 0, 1, 3, 2), q)
        joined = step("Concat", *(step.turned(part, 0, 2, 1, 3) for part in (of_q, of_k, of_v)), axis=3)
        return norm_back(qkv_back(step("Reshape", joined, step.ints(sizes.rows, 3 * sizes.width))))

    return out, back


Project = Callable[[Forward, str, str, int], str]


def by_gemm(model: Forward, layer: str, x: str, width: int) -> str:
    """Gemm, whose gradients are Gemms."""
    return model.project(layer, x, width)


def by_matmul(model: Forward, layer: str, x: str, width: int) -> str:
    """MatMul, whose gradients are MatMuls of Transposes."""
    *lead, features = model.shape(x)
    weight = model.parameter(f"{layer}.weight", features, width)
    return model.op(layer, "MatMul", [x, weight], (*lead, width))


def by_turned(model: Forward, layer: str, x: str, width: int) -> str:
    """MatMul with a Transpose of the weight, as PyTorch's exporter writes its linear layers."""
    *lead, features = model.shape(x)
    weight = model.transpose(f"{layer}.turned", model.parameter(f"{layer}.weight", width, features), 1, 0)
    return model.op(layer, "MatMul", [x, weight], (*lead, width))


def by_einsum(model: Forward, layer: str, x: str, width: int) -> str:
    """Einsum."""
    *lead, features = model.shape(x)
    weight = model.parameter(f"{layer}.weight", features, width)
    return model.op(
        layer, "Einsum", [x, weight], (*lead, width), equation="...i,io->...o" if len(lead) > 1 else "bi,io->bo"
    )


def forward_mlp(name: str, sizes: Mlp, project: Project) -> Graph:
    """The forward model of products."""
    model = Forward(name)
    x = model.input("x", sizes.batch, sizes.width)
    for number in range(sizes.layers):
        if number:
            x = model.relu(f"relu{number}", x)
        x = project(model, f"w{number}", x, sizes.width)
    return _trained(model, x)


def forward_cnn(name: str, sizes: Cnn, *, channels_last: bool) -> Graph:
    """The forward model of Convs; with channels last, Transposes stand around each, as such frameworks export it."""
    model = Forward(name)
    n, c, h = sizes.batch, sizes.channels, sizes.image
    x = model.input("x", *((n, h, h, c) if channels_last else (n, c, h, h)))
    for number in range(sizes.layers):
        if number:
            x = model.relu(f"relu{number}", x)
        if channels_last:
            x = model.transpose(f"first{number}", x, 0, 3, 1, 2)
        x = model.conv(f"w{number}", x, c, 3, pad=1)
        if channels_last:
            x = model.transpose(f"last{number}", x, 0, 2, 3, 1)
    return _trained(model, x)


def forward_gpt(name: str, sizes: Gpt, project: Project, *, stacked: bool) -> Graph:
    """The forward model of blocks; ``stacked``: samples and tokens are two dims, and not one of rows."""
    model = Forward(name)
    lead = (sizes.batch, sizes.sequence) if stacked else (sizes.rows,)
    mask = model.input("mask", sizes.sequence, sizes.sequence, dtype=DType.BOOL)
    x = model.input("x", *lead, sizes.width)
    for number in range(sizes.blocks):
        block = f"b{number}"
        inner = model.layer_norm(f"{block}.norm1", x, bias=False)
        qkv = model.reshape(f"{block}.heads", project(model, f"{block}.qkv", inner, 3 * sizes.width), *sizes.split)
        q, k, v = model.split(f"{block}.split", qkv, 3)
        q, k, v = (
            model.transpose(f"{block}.{letter}", part, *perm)
            for letter, part, perm in (("q", q, (0, 2, 1, 3)), ("k", k, (0, 2, 3, 1)), ("v", v, (0, 2, 1, 3)))
        )
        square = (sizes.batch, sizes.heads, sizes.sequence, sizes.sequence)
        scores = model.op(f"{block}.scores", "MatMul", [q, k], square)
        scale = model.known("scale", np.full((), 1 / sqrt(sizes.head), np.float32))
        scores = model.each(f"{block}.scaled", "Mul", scores, scale)
        low = model.known("low", np.full((), -1e9, np.float32))
        scores = model.op(f"{block}.masked", "Where", [mask, scores, low], square)
        weights = model.op(f"{block}.softmax", "Softmax", [scores], square, axis=-1)
        mixed = model.op(f"{block}.mixed", "MatMul", [weights, v], (*square[:3], sizes.head))
        mixed = model.transpose(f"{block}.back", mixed, 0, 2, 1, 3)
        mixed = model.reshape(f"{block}.joined", mixed, *lead, sizes.width)
        x = model.each(f"{block}.add1", "Add", x, project(model, f"{block}.out", mixed, sizes.width))
        inner = project(model, f"{block}.wide", model.layer_norm(f"{block}.norm2", x, bias=False), 4 * sizes.width)
        inner = model.each(f"{block}.gelu", "Gelu", inner, approximate="tanh")
        x = model.each(f"{block}.add2", "Add", x, project(model, f"{block}.narrow", inner, sizes.width))
    return _trained(model, x)


def _trained(model: Forward, output: str) -> Graph:
    return build_training_graph(model.graph(output), loss="mse", optimizer="sgd", learning_rate=RATE)


def spellings(name: str, sizes: Mlp | Cnn | Gpt) -> dict[str, ModelProto | Graph]:
    """All that can be made without PyTorch, by spelling."""
    match sizes:
        case Mlp():
            found: dict[str, ModelProto | Graph] = {"written": written_mlp(name, sizes)}
            for spelling, project in _PROJECTS.items():
                found[spelling] = forward_mlp(name, sizes, project)
        case Cnn():
            found = {"written": written_cnn(name, sizes)}
            found["grad-conv"] = forward_cnn(name, sizes, channels_last=False)
            found["grad-channels-last"] = forward_cnn(name, sizes, channels_last=True)
        case _:
            found = {"written": written_gpt(name, sizes)}
            found["grad-gemm"] = forward_gpt(name, sizes, by_gemm, stacked=False)
            found["grad-matmul"] = forward_gpt(name, sizes, by_matmul, stacked=True)
            found["grad-turned"] = forward_gpt(name, sizes, by_turned, stacked=True)
    return found


_PROJECTS: dict[str, Project] = {
    "grad-matmul": by_matmul,
    "grad-gemm": by_gemm,
    "grad-turned": by_turned,
    "grad-einsum": by_einsum,
}


def write(names: Iterable[str]) -> None:
    """Writes the files."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    for name in names:
        for spelling, model in spellings(name, NETWORKS[name].sizes).items():
            file = FOLDER / f"{name}.{spelling}.onnx"
            if isinstance(model, Graph):
                write_model(model, file)
            else:
                save_model(model, file)
            print(f"{file.name}: {file.stat().st_size:,} bytes")


def plan(names: Iterable[str], effort: str, *, as_written: bool) -> None:
    """Plans every file of the networks, and prints what the plans move."""
    descriptions = opdefs.standard()
    print(f"{'network':<18} {'spelling':<20} {'ops':>5} {'planned':>8} {'MB':>9} {'gap':>7} {'excess MB':>9} {'s':>6}")
    for name in names:
        for file in sorted(FOLDER.glob(f"{name}.*.onnx")):
            graph = lower_randomness(read_model(file))
            planned = graph if as_written else canonical(graph).graph
            started = time.perf_counter()
            found = decide_with_bodies(planned, descriptions, SearchRequest(NETWORKS[name].workers, effort=effort))
            gap = "-" if found.certified_gap is None else f"{found.certified_gap:.2%}"
            print(
                f"{name:<18} {file.name.removeprefix(f'{name}.').removesuffix('.onnx'):<20} {len(graph.ops):>5} "
                f"{len(planned.ops):>8} {found.moved_bytes / 1e6:>9.1f} {gap:>7} {found.excess_bytes / 1e6:>9.1f} "
                f"{time.perf_counter() - started:>6.1f}",
                flush=True,
            )


def main() -> None:
    parser = argparse.ArgumentParser(description="Networks in several spellings.")
    parser.add_argument("networks", nargs="*", metavar="NETWORK", help=f"of {', '.join(NETWORKS)}; all by default")
    parser.add_argument("--plan", action="store_true", help="plan the files that are there")
    parser.add_argument("--effort", choices=("quick", "normal", "thorough"), default="normal")
    parser.add_argument("--as-written", action="store_true", help="plan the ops of the files, as they are")
    given = parser.parse_args()
    names = given.networks or list(NETWORKS)
    if given.plan:
        plan(names, given.effort, as_written=given.as_written)
    else:
        write(names)


if __name__ == "__main__":
    main()
