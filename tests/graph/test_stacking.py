"""Equal ops beside each other are found, and a stack of them computes what they compute one by one."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fast_suite import examples
from planner.graph.check import check_graph
from planner.graph.model import DType, Graph
from planner.graph.rewriting import lanes
from planner.graph.rewriting.canonical import canonical
from planner.graph.rewriting.lanes import lanes_of
from planner.graph.rewriting.stacking import stacked
from planner.runtime.judge.compare import errors
from planner.runtime.judge.reference import Reference
from planner.runtime.judge.whole import WholeModel
from planner.zoo import build
from respelled import networks

Read = Callable[..., Graph]


def beside_each_other(network: Graph, count: int, seed: int) -> Graph:
    """So many copies of a network, of which some inputs are the same; their ops are in a mixed order."""
    source = random.Random(seed)
    shared = {*network.constants, *(name for name in network.inputs if source.random() < 0.4)}
    tensors, constants, queues = {}, dict(network.constants), []
    inputs: dict[str, None] = {}
    outputs: list[str] = []
    for lane in range(count):
        new = {name: name if name in shared else f"{name}.lane{lane}" for name in network.tensors} | {"": ""}
        tensors.update({new[name]: replace(tensor, name=new[name]) for name, tensor in network.tensors.items()})
        inputs.update(dict.fromkeys(new[name] for name in network.inputs))
        outputs.extend(new[name] for name in network.outputs)
        queues.append(
            [
                replace(
                    op,
                    name=f"{op.name}.lane{lane}",
                    inputs=tuple(new[name] for name in op.inputs),
                    outputs=tuple(new[name] for name in op.outputs),
                )
                for op in network.ops
            ]
        )
    ops = []
    while any(queues):
        ops.append(source.choice([queue for queue in queues if queue]).pop(0))
    return replace(
        network, tensors=tensors, ops=tuple(ops), inputs=tuple(inputs), outputs=tuple(outputs), constants=constants
    )


@examples(40)
@given(networks(), st.integers(2, 4), st.integers(0, 2**32))
def test_stacks_compute_what_their_lanes_compute(network: Graph, count: int, seed: int) -> None:
    graph = canonical(beside_each_other(network, count, seed)).graph
    with patch.object(lanes, "LEAST_PRODUCTS", 1):  # so that more of these small networks have lanes
        found = stacked(graph, [one.name for one in lanes_of(graph)])
    check_graph(found.graph)
    assert (found.graph.inputs, found.graph.outputs) == (graph.inputs, graph.outputs)
    _hold_equal(graph, found.graph, seed)


def _hold_equal(graph: Graph, other: Graph, seed: int) -> None:
    """Both compute the same, as the operators are defined and as the runtime computes them."""
    rng = np.random.default_rng(seed)
    values = {name: rng.standard_normal(graph.tensors[name].shape).astype(np.float32) for name in graph.inputs}
    exact, alike = Reference(graph).step(values), Reference(other).step(values)
    run = WholeModel(other).step(values)
    assert graph.outputs
    for name in graph.outputs:
        assert errors(alike[name], exact[name])[0] < 1e-13
        assert errors(run[name], exact[name])[0] < 1e-5


def newton_schulz(read: Read, count: int, dtype: str = "float") -> Graph:
    """A matrix, times its own product with itself, as Muon has it; once for each of some matrices."""
    lines = "".join(
        f"""t{i} = Transpose(x{i}) a{i} = MatMul(x{i}, t{i}) b{i} = MatMul(a{i}, a{i}) c{i} = Mul(b{i}, half)
            d{i} = Add(a{i}, c{i}) e{i} = MatMul(d{i}, x{i}) f{i} = Mul(x{i}, half) y{i} = Add(e{i}, f{i})
            z{i} = Mul(y{i}, w{i})"""
        for i in range(count)
    )
    reads = ", ".join(f"{dtype}[4,6] x{i}, {dtype}[4,6] w{i}" for i in range(count))
    makes = ", ".join(f"{dtype}[4,6] z{i}" for i in range(count))
    return read(f"g ({reads}, {dtype}[1] half) => ({makes}) {{ {lines} }}")


def test_a_loop_over_matrices_is_a_stack_of_them(read: Read) -> None:
    graph = canonical(newton_schulz(read, 3)).graph
    (found_lanes,) = lanes_of(graph)
    assert (found_lanes.count, found_lanes.operands) == (3, (("x0", "x1", "x2"),))
    assert [ops[0].outputs[0] for ops in found_lanes.ops] == ["a0", "b0", "c0", "d0", "e0", "f0", "y0"]
    found = stacked(graph, [found_lanes.name])
    kinds = [op.op_type for op in found.graph.ops]
    assert kinds.count("Concat") == kinds.count("Split") == 1
    assert kinds.count("Mul") == 2 + 3, "who reads a result reads it under its own name"
    assert found.within["b1"] == found.within["b0"]
    assert "y1" not in found.within
    assert found.graph.tensors[found.within["b0"]].shape == (3, 4, 4)


def test_stacks_of_bfloat16_are_turned_before_they_are_multiplied(read: Read) -> None:
    """Gemm turns one matrix, and no product of stacks that stock kernels have turns any of that dtype."""
    graph = canonical(newton_schulz(read, 3, "bfloat16")).graph
    assert "Gemm" in {op.op_type for op in graph.ops}
    found = stacked(graph, [own.name for own in lanes_of(graph)]).graph
    kinds = [op.op_type for op in found.ops]
    assert (kinds.count("Gemm"), kinds.count("Transpose"), kinds.count("MatMul")) == (0, 1, 3)
    check_graph(found)
    rng = np.random.default_rng(0)
    values = {
        name: rng.standard_normal(graph.tensors[name].shape).astype(DType.BFLOAT16.array_dtype) for name in graph.inputs
    }
    exact, alike = Reference(graph).step(values), Reference(found).step(values)
    assert all(errors(alike[name], exact[name])[0] < 1e-13 for name in graph.outputs)


def test_lanes_that_read_each_other_are_none(read: Read) -> None:
    """The second one multiplies by what is made of the first one's result."""
    graph = read(
        """g (float[4,6] x, float[4,6] y, float[6,4] v, float[4,4] u) => (float[4,4] d) {
            a = MatMul(x, v) b = MatMul(a, u)
            s = Relu(b)
            c = MatMul(y, v) d = MatMul(c, s)
        }"""
    )
    assert lanes_of(canonical(graph).graph) == ()


def test_a_single_product_is_no_lane(read: Read) -> None:
    graph = read(
        """g (float[4,4] x, float[4,4] y, float[4,4] v) => (float[4,4] a, float[4,4] b) {
            a = MatMul(x, v) b = MatMul(y, v)
        }"""
    )
    assert lanes_of(canonical(graph).graph) == ()


@pytest.mark.parametrize("name", ["", "no such lanes"])
def test_other_names_stack_nothing(read: Read, name: str) -> None:
    graph = canonical(newton_schulz(read, 2)).graph
    assert stacked(graph, [name]).graph is graph


def test_a_tensor_that_two_lanes_read_is_no_operand_of_its_own(read: Read) -> None:
    """The second matrix is the first lane's right factor, and the second lane's left one."""
    graph = read(
        """g (float[4,4] x, float[4,4] y, float[4,4] z, float[4,4] v) => (float[4,4] c, float[4,4] d) {
            a = MatMul(x, y) c = MatMul(a, v)
            b = MatMul(y, z) d = MatMul(b, v)
        }"""
    )
    graph = canonical(graph).graph
    _hold_equal(graph, stacked(graph, [own.name for own in lanes_of(graph)]).graph, 0)


def test_what_all_lanes_read_is_no_lane_s_own(read: Read) -> None:
    """The first lane's matrix is a factor of both lanes, and its first product of both second ones."""
    for second in ("MatMul(c, x)", "MatMul(c, a)"):
        graph = read(
            f"""g (float[4,4] x, float[4,4] y, float[4,4] v) => (float[4,4] e, float[4,4] f) {{
                a = MatMul(x, v) b = MatMul(y, v)
                c = Relu(a) d = Relu(b)
                e = {second} f = {second.replace("c", "d")}
            }}"""
        )
        graph = canonical(graph).graph
        _hold_equal(graph, stacked(graph, [own.name for own in lanes_of(graph)]).graph, 0)


def test_layers_one_after_another_are_no_lanes() -> None:
    """A layer's activation is an operand of the next layer's gradient, beside that which the layer before made."""
    network = build("mlp-4x24", batch=64)
    for decayed in range(len(network.ops)):
        ops = tuple(
            replace(op, op_type="Div") if number == decayed and op.op_type == "Mul" else op
            for number, op in enumerate(network.ops)
        )
        graph = canonical(replace(network, ops=ops)).graph
        found = stacked(graph, [own.name for own in lanes_of(graph)])
        check_graph(found.graph)
