"""The rule of writing in place, held against stock ONNX Runtime: its kernels compute in place all that is allowed."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import onnx
import onnx.parser
import pytest
from onnx import FunctionProto, ModelProto

from planner.artifacts.in_place import UPDATING, overwriting
from planner.graph.core.traits import ELEMENT_WISE
from stock_runtime import onnxruntime

HEAD = '<ir_version: 10, opset_import: ["": 21]>\n'
OPTIONAL = {"Gemm": 2, "FusedConv": 3}
"""Of kernels that multiply, the operand that they add: they copy it to their result first, if it lies elsewhere."""
GELUS = {"BiasGelu", "FastGelu", "QuickGelu"}
"""Element-wise kernels of the runtime's own: as readers of a result they are what they were made of."""

FLAT = "float[48,48] h, float[48,48] a, float[48,48] b, float[48] v"
FOUR = "float[2,8,9,9] h, float[2,8,9,9] a, float[8,8,3,3] w, float[8] v"
GELU = "d = Div(%s, r) e = Erf(d) f = Add(e, one) g = Mul(%s, f) %s = Mul(g, half)"
CONSTANTS = (
    "r = Constant <value = float {1.4142135}> () one = Constant <value = float {1.0}> () "
    "half = Constant <value = float {0.5}> () k = Constant <value = float {1.702}> () "
)

REFUSED = {
    "product and sum": "t = MatMul(h, a) n = Add(t, v)",
    "product and scale": "t = MatMul(h, a) n = Mul(t, k)",
    "product and nothing": "t = MatMul(h, a) n = Identity(t)",
    "gemm and activation": "t = Gemm(h, a, v) n = Relu(t)",
    "product of a copy": "t = Identity(h) y = MatMul(t, a) n = Add(t, b)",
    "product of a multiple": "t = Mul(h, k) y = MatMul(t, a) n = Add(t, b)",
    "product of the next": "n = Mul(h, k) y = MatMul(n, a)",
    "norm of the next": "n = Add(h, a) y = LayerNormalization(n, v)",
    "another reader": "n = Add(h, a) y = Mul(h, b)",
    "silu": "s = Sigmoid(h) n = Mul(h, s)",
    "quick gelu": "t = Mul(h, k) s = Sigmoid(t) n = Mul(h, s)",
    "gelu": GELU % ("h", "h", "n"),
    "gelu of a sum": "t = Add(h, v) " + GELU % ("t", "t", "n"),
    "tanh of a product": "t = MatMul(h, a) n = Tanh(t)",
    "transposed": "t = Transpose <perm = [1, 0]> (h) n = Add(t, a)",
    "several at once": "n = Sum(a, b, h)",
}
ALLOWED = {
    "sum": "n = Add(h, a)",
    "decay": "t = Mul(h, k) u = Mul(a, half) w = Add(t, u) n = Sub(h, w)",
    "added to a product": "t = MatMul(a, b) n = Add(t, h)",
    "added to a product, on the left": "t = MatMul(a, b) n = Add(h, t)",
    "scaled product": "t = MatMul(a, b) u = Mul(t, k) n = Sub(h, u)",
    "added to a gemm": "t = Gemm(a, b, v) n = Add(h, t)",
    "turned product": "x = Transpose <perm = [1, 0]> (a) t = MatMul(x, b) u = Mul(half, t) n = Sub(h, u)",
    "after a norm": "t = LayerNormalization(a, v) n = Add(h, t)",
    "after a mean": "t = ReduceMean(a) n = Add(h, t)",
    "moments": "t = Mul(h, half) g = Mul(a, a) n = Add(t, g) s = Sqrt(n) u = Add(s, one) y = Div(b, u)",
    "silu of the next": "n = Mul(h, k) s = Sigmoid(n) y = Mul(n, s)",
    "gelu of the next": "n = Add(h, v) " + GELU % ("n", "n", "y"),
    "maximum of the next": "n = Add(h, a) y = Max(n, b)",
}


def made(nodes: str, inputs: str = FLAT) -> ModelProto:
    """A model of some nodes, whose results are n and, where it is made, y."""
    kind = inputs.split(" h,")[0]
    results = f"{kind} n" + (f", {kind} y" if " y = " in f" {nodes}" else "")
    return onnx.parser.parse_model(f"{HEAD}net ({inputs}) => ({results}) {{ {CONSTANTS} {nodes} }}")


def is_over(model: ModelProto) -> bool:
    graph = model.graph
    body = FunctionProto(
        node=graph.node, input=[one.name for one in graph.input], output=[o.name for o in graph.output]
    )
    return overwriting({"f": body})("f", 0, 0)


def joined(model: ModelProto, file: Path) -> tuple[bool, ModelProto]:
    """Whether n has the same bits where it lies over h, and what the runtime has made of the model."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level, options.intra_op_num_threads = 4, 1
    options.optimized_model_filepath = str(file)
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"], disabled_optimizers=["NchwcTransformer"]
    )
    draw = np.random.default_rng(0)
    shapes = {one.name: tuple(dim.dim_value for dim in one.type.tensor_type.shape.dim) for one in model.graph.input}
    values = {name: draw.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}
    names = [one.name for one in model.graph.output]
    wanted = dict(zip(names, session.run(names, values), strict=True))
    places = {**values, **{name: np.zeros(shapes["h"], np.float32) for name in names}, "n": values["h"]}
    binding = session.io_binding()
    for name in shapes:
        binding.bind_input(name, "cpu", 0, 1, places[name].shape, places[name].ctypes.data)
    for name in names:
        binding.bind_output(name, "cpu", 0, 1, places[name].shape, places[name].ctypes.data)
    session.run_with_iobinding(binding)
    return all(places[name].tobytes() == wanted[name].tobytes() for name in names), onnx.load(file)


def assert_right(model: ModelProto, file: Path) -> None:
    """The runtime computes the right bits in place, and the rule allows the runtime's own form, too.

    A kernel that adds at the end counts as the sum.
    """
    is_right, form = joined(model, file)
    assert is_right, form.graph.node
    for node in form.graph.node:
        if node.op_type in GELUS:
            node.op_type, node.domain = "Gelu", ""
        slot = OPTIONAL.get(node.op_type, len(node.input))
        if node.input[slot : slot + 1] == ["h"]:
            node.op_type, node.domain = "Add", ""
            node.ClearField("attribute")
    assert is_over(form), form.graph.node


@pytest.mark.parametrize("nodes", [pytest.param(nodes, id=name) for name, nodes in REFUSED.items()])
def test_what_the_runtime_may_join_is_refused(nodes: str) -> None:
    assert not is_over(made(nodes))


# A Gelu is left out: on processors with AVX-512 its kernel happens to be right in place.
@pytest.mark.parametrize("name", ["product and sum", "product and nothing", "quick gelu"])
def test_the_runtime_does_join_it(name: str, tmp_path: Path) -> None:
    """What is refused comes out wrong: the rule asks for nothing that costs memory in vain."""
    assert not joined(made(REFUSED[name]), tmp_path / "joined.onnx")[0]


@pytest.mark.parametrize("nodes", [pytest.param(nodes, id=name) for name, nodes in ALLOWED.items()])
def test_what_is_allowed_the_runtime_computes_in_place(nodes: str, tmp_path: Path) -> None:
    model = made(nodes)
    assert is_over(model)
    assert_right(model, tmp_path / "joined.onnx")


@pytest.mark.parametrize("after", ["n = Add(h, t)", "n = Add(t, h)", "u = Mul(h, half) n = Sub(t, u)"])
def test_a_residual_of_a_convolution_is_added_in_place(after: str, tmp_path: Path) -> None:
    model = made(f"t = Conv <pads = [1, 1, 1, 1]> (a, w, v) {after}", FOUR)
    assert is_over(model)
    assert_right(model, tmp_path / "joined.onnx")
    assert not is_over(made(f"t = Conv <pads = [1, 1, 1, 1]> (h, w, v) {after}", FOUR))


ALONE = (
    "Abs Clip Elu Erf Exp Floor Gelu HardSigmoid Identity LeakyRelu Mish Neg Relu Selu Sigmoid Sign Softplus Sqrt Tanh"
)
BESIDE = "Add Div Max Mean Min Mul Pow PRelu Sub Sum"
READERS = {**{name: ["n"] for name in ALONE.split()}, **{name: ["n", "b"] for name in BESIDE.split()}}
"""Element-wise operators of floats, with operands."""


def calls(op_type: str, operands: Sequence[str], result: str) -> str:
    attributes = " <to = 1>" if op_type == "Cast" else ""
    return f"{result} = {op_type}{attributes} ({', '.join(operands)}) "


def test_every_operator_of_the_list_updates_in_place_whatever_reads_the_result(tmp_path: Path) -> None:
    """Each alone and after each other one, in either place; element-wise ops of floats read what comes of it."""
    one = sorted(UPDATING - {"Add", "Div", "Mul", "Sub"})
    two = [
        (op_type, *pair)
        for op_type in ("Add", "Div", "Mul", "Sub")
        for pair in (("%s", "a"), ("a", "%s"), ("%s", "%s"))
    ]
    updates = [*((op_type, "%s") for op_type in one), *two]
    assert READERS.keys() <= ELEMENT_WISE
    readers = sorted(READERS)
    for number, (op_type, *operands) in enumerate(updates):
        for other, *others in updates[number % 3 :: 3]:
            reader = readers[number % len(readers)]
            number += 1
            text = calls(op_type, [name.replace("%s", "h") for name in operands], "t")
            text += calls(other, [name.replace("%s", "t") for name in others], "n")
            model = made(text + calls(reader, READERS[reader], "y"))
            assert is_over(model), text
            assert_right(model, tmp_path / "joined.onnx")
