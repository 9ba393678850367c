"""Shapes of a whole model: vectors' values are followed where they are small, and nowhere else."""

from __future__ import annotations

import resource
from collections.abc import Iterator, Sequence

import numpy as np
import pytest
from onnx import ModelProto, NodeProto, parser, shape_inference

from planner.graph.folding import propagation
from planner.graph.folding.evaluate import MAX_FOLDED_ELEMENTS, evaluate
from planner.graph.folding.propagation import inferred

HEAD = '<ir_version: 8, opset_import: ["" : 17]> g (float[8,8] x, int64[HUGE] v, float[8] u) => (float y) {'
COMPUTED = (
    "s = Shape(x) i = Constant<value=int64[1]{0}>() n = Gather(s, i) m = Mul(n, n) o = Constant<value=int64[1]{2}>()"
    " t = Concat<axis=0>(m, o)"
)
HUGE = 2**40


def model_of(body: str, *, huge: int = 4) -> ModelProto:
    return parser.parse_model(
        f"{HEAD.replace('HUGE', str(huge))} {body} q = Cast<to=1>(r) y = ReduceMax<keepdims=0>(q) }}"
    )


def shape_of_r(model: ModelProto) -> list[int]:
    (value,) = [value for value in model.graph.value_info if value.name == "r"]
    return [dim.dim_value for dim in value.type.tensor_type.shape.dim]


@pytest.mark.parametrize(
    ("op", "shape"),
    [
        ("ConstantOfShape(t)", [64, 2]),
        ("ConstantOfShape(m)", [64]),
        ("Expand(i, t)", [64, 2]),
        ("Reshape(x, m)", [64]),
    ],
)
def test_what_small_vectors_say_is_known(op: str, shape: list[int]) -> None:
    model = model_of(f"{COMPUTED} r = {op}")
    assert shape_of_r(inferred(model)) == shape
    assert shape_of_r(shape_inference.infer_shapes(model)) != shape


BOMBS = {
    "fill": f"n = Constant<value=int64[1]{{{HUGE}}}>() r = ConstantOfShape<value=int64[1]{{1}}>(n)",
    "expand": f"n = Constant<value=int64[1]{{{HUGE}}}>() o = Constant<value=int64[1]{{1}}>() r = Expand(o, n)",
    "tile": f"n = Constant<value=int64[1]{{{HUGE}}}>() o = Constant<value=int64[1]{{1}}>() r = Tile(o, n)",
    "pad": f"n = Constant<value=int64[2]{{0, {HUGE}}}>() o = Constant<value=int64[1]{{1}}>() r = Pad(o, n)",
    "range": f"a = Constant<value=int64{{0}}>() b = Constant<value=int64{{{HUGE}}}>() c = Constant<value=int64{{1}}>()"
    " r = Range(a, b, c)",
    "computed": f"m = Constant<value=int64[1]{{{2**20}}}>() n = Mul(m, m) r = ConstantOfShape<value=int64[1]{{1}}>(n)",
    "input": "r = Cast<to=1>(v)",
    "concat": f"n = Constant<value=int64[1]{{{HUGE}}}>() a = ConstantOfShape<value=int64[1]{{1}}>(n)"
    " r = Concat<axis=0>(a, a)",
    "inside": "c = Constant<value=bool{1}>() r = If (c) <then_branch = t () => (int64[N] d) {"
    f" m = Constant<value=int64[1]{{{2**20}}}>() n = Mul(m, m) d = ConstantOfShape<value=int64[1]{{1}}>(n) }},"
    " else_branch = e () => (int64[M] f) { o = Constant<value=int64[1]{2} >() f = Identity(o) }>",
}


@pytest.fixture
def little_memory() -> Iterator[None]:
    """Four GiB more than the process has; a vector of so many elements would take far more, and the time for them."""
    before = resource.getrlimit(resource.RLIMIT_AS)
    with open("/proc/self/statm") as file:  # noqa: PTH123 -- no file of ours
        taken = int(file.read().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (taken + 2**32, before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_AS, before)


@pytest.mark.usefixtures("little_memory")
@pytest.mark.parametrize("kind", BOMBS)
def test_large_ones_are_not_made(kind: str) -> None:
    """Beside each stands a shape that only values say, so that values would be followed."""
    huge = HUGE if kind == "input" else 4
    found = inferred(model_of(f"{COMPUTED} k = Reshape(x, m) {BOMBS[kind]}", huge=huge))
    assert {value.name for value in found.graph.value_info} >= {"k", "q"}


VECTOR = (
    "a = Constant<value=int64{0}>() e = Constant<value=int64{4096}>() c = Constant<value=int64{1}>()"
    " w = Range(a, e, c) i0 = Constant<value=int64[1]{0}>() i1 = Constant<value=int64[1]{1}>()"
    " left = Unsqueeze(w, i1) right = Unsqueeze(w, i0)"
)


@pytest.mark.parametrize("op", ["OneHot(w, e, p)", "MatMul(left, right)", "Mul(left, right)", "Gather(right, zeros)"])
def test_no_matrix_is_made_of_vectors(op: str, monkeypatch: pytest.MonkeyPatch) -> None:
    sizes: list[int] = []

    def noted(node: NodeProto, operands: Sequence[np.ndarray | None], opset: int) -> tuple[np.ndarray, ...] | None:
        made = evaluate(node, operands, opset)
        sizes.extend(array.size for array in made or ())
        return made

    monkeypatch.setattr(propagation, "evaluate", noted)
    model = model_of(
        f"{COMPUTED} k = Reshape(x, m) {VECTOR} p = Constant<value=int64[2]{{0, 1}}>() zeros = Sub(w, w) r = {op}"
    )
    assert {value.name for value in inferred(model).graph.value_info} >= {"k", "q"}
    assert 4096 in sizes
    assert max(sizes) <= MAX_FOLDED_ELEMENTS
