"""Equal ops beside each other are found: none depends on its like, and what is one lane's own is no other's."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from unittest.mock import patch

from hypothesis import given
from hypothesis import strategies as st

from fast_suite import examples
from planner.algebra.lane import Lane
from planner.features.zoo.models import build
from planner.graph.core.model import Graph, Op, lanes_of_tensors
from planner.graph.rewriting import lanes
from planner.graph.rewriting.canonical import canonical
from planner.graph.rewriting.lanes import lanes_of, marked
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
def test_lanes_are_equal_and_depend_on_no_others(network: Graph, count: int, seed: int) -> None:
    graph = canonical(beside_each_other(network, count, seed)).graph
    with patch.object(lanes, "LEAST_PRODUCTS", 1):  # so that more of these small networks have lanes
        _hold_apart(graph)


def _hold_apart(graph: Graph) -> None:
    """Every op of a lane is as the others in its place, from which nothing leads to it; a tensor is of one lane."""
    seen: set[str] = set()
    for found in lanes_of(graph):
        assert seen.isdisjoint(op.name for ops in found.ops for op in ops)
        seen.update(op.name for ops in found.ops for op in ops)
        lane_of: dict[str, int] = {}
        for ops in found.ops:
            assert len(ops) == found.count
            assert (
                len({(op.op_type, op.attributes, *(graph.tensors[name].shape for name in op.outputs)) for op in ops})
                == 1
            )
            for lane, op in enumerate(ops):
                others = {other.name for other in ops if other is not op}
                assert others.isdisjoint(_before(graph, op))
                assert all(lane_of.setdefault(name, lane) == lane for name in op.outputs)
    told = marked(graph, lanes_of(graph))
    assert told.lanes.keys() == seen
    assert all(lane.count > lane.number >= 0 for lane in lanes_of_tensors(told).values())


def _before(graph: Graph, op: Op) -> set[str]:
    """Names of the ops that an op depends on."""
    found: set[str] = set()
    waiting = [op]
    while waiting:
        makers = [graph.producer[name] for name in waiting.pop().inputs if name in graph.producer]
        waiting += [maker for maker in makers if maker.name not in found]
        found.update(maker.name for maker in makers)
    return found


def newton_schulz(read: Read, count: int) -> Graph:
    """A matrix, times its own product with itself, as Muon has it; once for each of some matrices."""
    lines = "".join(
        f"""t{i} = Transpose(x{i}) a{i} = MatMul(x{i}, t{i}) b{i} = MatMul(a{i}, a{i}) c{i} = Mul(b{i}, half)
            d{i} = Add(a{i}, c{i}) e{i} = MatMul(d{i}, x{i}) f{i} = Mul(x{i}, half) y{i} = Add(e{i}, f{i})
            z{i} = Mul(y{i}, w{i})"""
        for i in range(count)
    )
    reads = ", ".join(f"float[4,6] x{i}, float[4,6] w{i}" for i in range(count))
    makes = ", ".join(f"float[4,6] z{i}" for i in range(count))
    return read(f"g ({reads}) => ({makes}) <float half = {{0.5}}> {{ {lines} }}")


def test_a_loop_over_matrices_has_lanes(read: Read) -> None:
    graph = canonical(newton_schulz(read, 3)).graph
    (found,) = lanes_of(graph)
    assert (found.count, found.operands) == (3, (("x0", "x1", "x2"), ("w0", "w1", "w2")))
    assert [ops[0].outputs[0] for ops in found.ops] == ["a0", "b0", "c0", "d0", "e0", "f0", "y0", "z0"]
    told = marked(graph, [found])
    assert told.lanes[found.ops[1][2].name] == Lane(2, 3)
    assert lanes_of_tensors(told)["x1"] == Lane(1, 3)


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


def test_a_tensor_that_two_lanes_read_is_no_operand_of_its_own(read: Read) -> None:
    """The second matrix is the first lane's right factor, and the second lane's left one."""
    graph = read(
        """g (float[4,4] x, float[4,4] y, float[4,4] z, float[4,4] v) => (float[4,4] c, float[4,4] d) {
            a = MatMul(x, y) c = MatMul(a, v)
            b = MatMul(y, z) d = MatMul(b, v)
        }"""
    )
    _hold_apart(canonical(graph).graph)


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
        _hold_apart(canonical(graph).graph)


def test_layers_one_after_another_are_no_lanes() -> None:
    """A layer's activation is an operand of the next layer's gradient, beside that which the layer before made."""
    network = build("mlp-4x24", batch=64)
    for decayed in range(len(network.ops)):
        ops = tuple(
            replace(op, op_type="Div") if number == decayed and op.op_type == "Mul" else op
            for number, op in enumerate(network.ops)
        )
        graph = canonical(replace(network, ops=ops)).graph
        _hold_apart(graph)
