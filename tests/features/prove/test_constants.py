"""What no data change: parts of constants are proven by their elements, and factors only where a dtype has room."""

from __future__ import annotations

import re
import tracemalloc
from pathlib import Path

import numpy as np
import onnx.parser
import pytest

from planner import api
from planner.features.prove.proof.whole import held
from prove_by_hand import ByHand, whole_of

HEAD = '<ir_version: 10, opset_import: ["": 23]>'
CUT = {
    "Range": (
        """(float[12] x) => (float[12] y) { s = Constant <value = float {0}> ()
        e = Constant <value = float {12}> () d = Constant <value = float {1}> ()
        r = Range(s, e, d) y = Add(x, r) }""",
        0,
    ),
    "EyeLike": ("(float[6,6] x) => (float[6,6] y) { e = EyeLike <k = 1> (x) y = Add(x, e) }", 0),
    "OneHot": (
        """(float[4,6] x) => (float[4,6] y) { i = Constant <value = int64[4] {5, -1, 0, 2}> ()
        n = Constant <value = int64 {6}> () v = Constant <value = float[2] {0.5, 2}> ()
        h = OneHot(i, n, v) y = Add(x, h) }""",
        1,
    ),
    "Xor": (
        """(float[4,6] x) => (float[4,6] y) { a = Constant <value = bool[4,1] {1, 0, 0, 1}> ()
        b = Constant <value = bool[6] {1, 1, 0, 0, 1, 0}> () z = Constant <value = float {0}> ()
        c = Xor(a, b) y = Where(c, x, z) }""",
        1,
    ),
    "Trilu": (
        """(float[6,6] x) => (float[6,6] y) { s = Constant <value = int64[2] {6, 6}> ()
        f = ConstantOfShape <value = float[1] {1}> (s) m = Trilu(f) y = Mul(x, m) }""",
        0,
    ),
    "CumSum": (
        """(float[6,4] x) => (float[6,4] y) { c = Constant <value = float[6,1] {1, 2, 3, 4, 5, 6}> ()
        a = Constant <value = int64 {0}> () m = CumSum(c, a) y = Mul(x, m) }""",
        0,
    ),
    "a window beyond a constant's border": (
        """(float[1,1,6] x) => (float[1,1,6] y) { c = Constant <value = float[1,1,6] {1, 2, 3, 4, 5, 6}> ()
        p = MaxPool <kernel_shape = [3], pads = [1, 1]> (c) y = Mul(x, p) }""",
        2,
    ),
    "an element of a constant": (
        """(int64[4,1] x) => (bool[4,2] y) { c = Constant <value = int64[2] {3, 4}> () y = Equal(x, c) }""",
        1,
    ),
    "an element that scales": (
        """(float[4,2] x) => (float[4,2] y) { c = Constant <value = float[2] {3, 4}> () y = Mul(x, c) }""",
        1,
    ),
    "padding alone, and none": (
        """(float[3] x) => (float[6] y, float[6] z) { a = Constant <value = int64[2] {0, 3}> ()
        b = Constant <value = int64[2] {3, 0}> () y = Pad(x, a) z = Pad(x, b) }""",
        0,
    ),
    "one channel of a normalisation": (
        """(float[4,2,6,6] x) => (float[4,2,6,6] y, float[2] m, float[2] v) {
        s = Constant <value = float[2] {1, 2}> () b = Constant <value = float[2] {3, 4}> ()
        y, m, v = BatchNormalization <training_mode = 1> (x, s, b, b, s) }""",
        1,
    ),
    "a causal mask": (
        """(float[1,2,8,4] x, float[1,2,8,4] k) => (float[1,2,8,4] y) { y = Attention <is_causal = 1> (x, k, k) }""",
        2,
    ),
    "a causal mask beside another, in groups": (
        """(float[1,4,8,4] x, float[1,2,8,4] k, bool[1,1,8,8] m) => (float[1,4,8,4] y) {
        y = Attention <is_causal = 1> (x, k, k, m) }""",
        2,
    ),
    "a causal mask of rows": (
        """(float[1,8,8] x, float[1,8,4] k) => (float[1,8,8] y) {
        y = Attention <is_causal = 1, q_num_heads = 4, kv_num_heads = 2> (x, k, k) }""",
        1,
    ),
    "channels in blocks": (
        "(float[2,12,3,4] x) => (float[2,3,6,8] y) { y = DepthToSpace <blocksize = 2> (x) }",
        1,
    ),
}
"""Models and the dim of ``y`` that is cut."""


LOADED = "0: x = x[0:8]\n0: y = y[0:8]"
SLOW = [name for name in CUT if name not in ("Range", "EyeLike", "an element that scales", "a causal mask")]


def _cut(name: str, folder: Path) -> None:
    text, dim = CUT[name]
    onnx.save(onnx.parser.parse_model(f"{HEAD} net {text}"), folder / "net.onnx")
    plan = api.plan(folder / "net.onnx", gpus=2, effort="quick", pin={"y": f"S({dim})"}, out=folder / "plan")
    proof = api.prove(plan.directory)
    assert proof.is_proven, proof.fault


@pytest.mark.parametrize("name", [name for name in CUT if name not in SLOW])
def test_what_no_data_change_is_proven_where_it_is_cut(name: str, tmp_path: Path) -> None:
    """Ops of constants alone, parts of constants, padding, and masks that count from a worker's own first query."""
    _cut(name, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("name", SLOW)
def test_more_of_what_no_data_change_is_proven_where_it_is_cut(name: str, tmp_path: Path) -> None:
    _cut(name, tmp_path)


CHAINS = [
    ("float", [2.0**-100] * 2 + [2.0**50] * 4, False),
    ("float", [2.0**100] * 2 + [2.0**-100] * 2, False),
    ("float", [2.0**-100, 2.0**100], False),
    ("float", [2.0**-60, 2.0**60], True),
    ("float", [2.0, 0.5], True),
    ("float16", [2.0**-12] * 2 + [2.0**12] * 2, False),
    ("float16", [2.0**12, 2.0**-12], False),
    ("float16", [2.0**-4, 2.0**4], True),
    ("bfloat16", [2.0**-100] * 2 + [2.0**50] * 4, False),
    ("bfloat16", [2.0**-60, 2.0**60], True),
    ("double", [2.0**-100] * 2 + [2.0**50] * 4, True),
    ("double", [2.0**-600] * 2 + [2.0**600] * 2, False),
]


@pytest.mark.parametrize(("dtype", "factors", "is_proven"), CHAINS)
@pytest.mark.parametrize("op_type", ["Mul", "Div"])
def test_factors_are_joined_where_the_dtype_has_room_for_their_partial_products(
    dtype: str, factors: list[float], is_proven: bool, op_type: str
) -> None:
    """All of them are 1 together, and what leaves the dtype in between gives zeros or infinities."""
    nodes, value = "", "i0"
    for number, factor in enumerate(factors):
        stated = factor if op_type == "Mul" else 1 / factor
        kind = f"Constant <value = {dtype} {{{stated!r}}}> ()"
        if dtype in ("float16", "bfloat16"):
            kind = f"Cast <to = {10 if dtype == 'float16' else 16}> (f{number})"
            nodes += f"f{number} = Constant <value = float {{{stated!r}}}> () "
        nodes += f"c{number} = {kind} t{number} = {op_type}({value}, c{number}) "
        value = f"t{number}"
    reference = whole_of(f"({dtype}[8] x) => ({dtype}[8] y) {{ y = Relu(x) }}")
    program = ByHand.read(reference, f"{LOADED} by Relu (x) {{ {nodes} o0 = Relu({value}) }}\n0: give y")
    assert program.proof.is_proven is is_proven


@pytest.mark.parametrize(
    ("model", "body"),
    [
        ("y = Relu(x)", "c = far t = Add(i0, c) z = zero s = Mul(t, z) a = Add(s, i0) o0 = Relu(a)"),
        ("c = far d = near y = Sum(x, c, d)", "c = far d = near t = Add(i0, c) o0 = Add(t, d)"),
        ("y = Relu(x)", "c = far d = near t = Add(c, d) u = Add(i0, t) o0 = Relu(u)"),
    ],
)
def test_a_sum_with_a_constant_that_absorbs_it_is_not_taken_apart(model: str, body: str) -> None:
    def written(text: str) -> str:
        for name, number in (("far", "1e30"), ("near", "-1e30"), ("zero", "0")):
            text = text.replace(f"= {name}", f"= Constant <value = float {{{number}}}> ()")
        return text

    reference = whole_of(f"(float[8] x) => (float[8] y) {{ {written(model)} }}")
    op = "Sum" if "Sum" in model else "Relu"
    program = ByHand.read(reference, f"{LOADED} by {op} (x) {{ {written(body)} }}\n0: give y")
    assert not program.proof.is_proven


@pytest.mark.parametrize("number", [0.0, 1.0, -0.0, float("nan"), float("inf"), 2**62])
def test_a_constant_that_repeats_an_element_takes_no_memory_for_each(number: float) -> None:
    """Whether a file holds the elements or says how many there are, it is one constant."""
    element = np.array(number, np.int64 if isinstance(number, int) else np.float32)
    tracemalloc.start()
    try:
        held(np.broadcast_to(element, (2**15, 2**15)))
        assert tracemalloc.get_traced_memory()[1] < 2**20
    finally:
        tracemalloc.stop()
    assert held(np.broadcast_to(element, (8, 16))) == held(np.full((8, 16), element))
    assert held(np.full((8, 16), element)) != held(np.full((8, 16), element.dtype.type(3)))


BOMBS = {
    "Range": "a = C64 {0} b = C64 {1099511627776} c = C64 {1} r = Range(a, b, c)",
    "Tile": "a = C1 {1} b = C1 {1073741824} r = Tile(a, b)",
    "Expand": "a = C2 {1, 2} b = C2 {536870912, 2} r = Expand(a, b)",
    "OneHot": "a = C1 {1} b = C64 {1073741824} v = C2 {0, 1} r = OneHot(a, b, v)",
    "EyeLike": "a = C2 {32768, 32768} z = ConstantOfShape <value = int64[1] {0}> (a) r = EyeLike(z)",
    "sums of fills": "a = C1 {1073741824} z = ConstantOfShape <value = int64[1] {1}> (a) r = Add(z, z)",
    "a shape of many": "a = C1 {134217728} z = ConstantOfShape <value = int64[1] {1}> (a) r = ConstantOfShape(z)",
    "a spread": "a = C1 {134217728} z = ConstantOfShape <value = int64[1] {1}> (a) o = C64 {1} r = Expand(o, z)",
    "a shape of 100": "a = C1 {100} z = ConstantOfShape <value = int64[1] {1}> (a) r = ConstantOfShape(z)",
    "Gather": "a = C1 {1073741824} z = ConstantOfShape <value = int64[1] {0}> (a) r = Gather(z, z)",
    "random": "r = RandomNormal <shape = [1073741824]> ()",
}
"""What a file of a few bytes says that it makes."""


@pytest.mark.parametrize("name", BOMBS)
def test_a_number_in_a_file_takes_no_memory_of_a_proof(name: str) -> None:
    text = BOMBS[name]
    for short, kind in (("C64", "int64"), ("C1", "int64[1]"), ("C2", "int64[2]")):
        text = re.sub(rf"{short} (\{{[^}}]*\}})", rf"Constant <value = {kind} \1> ()", text)
    reference = whole_of("(float[8] x) => (float[8] y) { y = Relu(x) }")
    body = f"{text} f = Cast <to = 1> (r) s = ReduceSum <keepdims = 0> (f) o0 = Add(i0, s)"
    program = ByHand.read(reference, f"{LOADED} by Relu (x) {{ {body} }}\n0: give y")
    tracemalloc.start()
    try:
        assert not program.proof.is_proven
        assert tracemalloc.get_traced_memory()[1] < 2**26
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("version", [7, 12, 13, 20, 22, 28])
def test_a_function_of_another_opset_is_not_proven(version: int) -> None:
    """It runs at its own: below 13 a Softmax flattens what is right of its axis."""
    program = ByHand.read(
        whole_of("(float[2,4,8] x) => (float[2,4,8] y) { y = Softmax <axis = 1> (x) }"),
        "0: x = x[0:2, 0:4, 0:8]\n0: y = y[0:2, 0:4, 0:8] by Softmax (x) { o0 = Softmax <axis = 1> (i0) }\n0: give y",
    )
    assert program.proof.is_proven
    for body in program.bodies.values():
        body.opset_import[0].version = version
    fault = program.proof.fault
    assert fault is not None
    assert "other versions" in fault.holds
