"""Functions of workers that somebody harmed: of any op a node that is malformed is not proven, and ends no proof."""

from __future__ import annotations

import re
from collections.abc import Iterator

import numpy as np
import onnx
import pytest
from onnx import AttributeProto, FunctionProto, NodeProto, helper, numpy_helper

from planner.algebra.region import Region
from planner.artifacts.program import Buffer
from planner.descriptions import in_force
from planner.errors import ModelError
from planner.features.ops.cases.case import Case, execute_case
from planner.features.ops.cases.examples import all_cases
from planner.features.prove.proof.calls import Array, Calls
from planner.features.prove.proof.claims import Claim
from planner.features.prove.proof.whole import Whole
from planner.graph.files.protos import op_to_node
from planner.graph.reading.from_onnx import graph_from_proto
from prove_by_hand import ByHand, whole_of

NUMBERS = (-100, -1, 0, 7, 2**40)


def harmed(node: NodeProto, opset: int) -> Iterator[NodeProto]:
    """The node with one thing wrong, or perhaps only another: an input or output, an attribute, its type or number."""

    def copy() -> NodeProto:
        return NodeProto.FromString(node.SerializeToString())

    for place in range(len(node.input)):
        harmed_node = copy()
        harmed_node.input[place] = ""
        yield harmed_node
        harmed_node = copy()
        del harmed_node.input[place:]
        yield harmed_node
    if len(node.output) > 1:
        harmed_node = copy()
        harmed_node.output[0] = ""
        yield harmed_node
    is_known = onnx.defs.has(node.op_type, opset, node.domain)
    schema = onnx.defs.get_schema(node.op_type, opset, node.domain).attributes if is_known else ()
    stated = [attribute.name for attribute in node.attribute]
    for name in sorted({*stated, *schema}):
        for value in (*NUMBERS, [], [-100], [7, 7], 1.5, "text"):
            harmed_node = copy()
            attributes = [attribute for attribute in harmed_node.attribute if attribute.name != name]
            del harmed_node.attribute[:]
            harmed_node.attribute.extend([*attributes, helper.make_attribute(name, value, attr_type=_type_of(value))])
            yield harmed_node
    for name in stated:
        harmed_node = copy()
        attributes = [attribute for attribute in harmed_node.attribute if attribute.name != name]
        del harmed_node.attribute[:]
        harmed_node.attribute.extend(attributes)
        yield harmed_node


def _type_of(value: object) -> int | None:
    return AttributeProto.INTS if value == [] else None


def outlived(case: Case, count: int, draw: np.random.Generator) -> int:
    """Follows functions of a case's op that are harmed; how many there were."""
    descriptions = in_force(None, "replicate")[0]
    graph, _, results = execute_case(case)
    reference = Whole(graph, descriptions.bind_all(graph), descriptions)
    [op] = graph.ops

    def buffer(name: str) -> Buffer:
        tensor = graph.tensors[name]
        return Buffer(name, name, Region.whole(tensor.shape), tensor.shape, tensor.dtype)

    def claim(name: str) -> Claim:
        shape = graph.tensors[name].shape
        return Claim(reference.symbol(name), (0,) * len(shape), shape)

    constant_values = {name: value for name, value in graph.constants.items() if value is not None}
    constants = [
        helper.make_node("Constant", [], [name], value=numpy_helper.from_array(np.ascontiguousarray(value)))
        for name, value in constant_values.items()
    ]
    names = [name for name in dict.fromkeys(op.inputs) if name and name not in constant_values]
    outputs = [name for name, value in results.items() if value.size]
    read: list[Array] = [(buffer(name), claim(name)) for name in names]
    stated: list[Array] = [(buffer(name), claim(name)) for name in outputs]
    nodes = list(harmed(op_to_node(op), graph.opset))
    opsets = [helper.make_opsetid("", graph.opset), *([helper.make_opsetid(op.domain, 1)] if op.domain else [])]
    for number in draw.permutation(len(nodes))[:count] if outputs else ():
        function: FunctionProto = helper.make_function(
            "tofu.segments", "f", names, outputs, [*constants, nodes[number]], opsets
        )
        Calls(reference).effect(function, (op.name,), read, stated)
    return min(count, len(nodes))


def test_a_harmed_node_of_any_op_ends_no_proof() -> None:
    draw = np.random.default_rng(7)
    cases = [case for case in all_cases() if case.opset >= 13]
    assert sum(outlived(cases[number], 4, draw) for number in draw.permutation(len(cases))[:12]) > 24


@pytest.mark.nightly
def test_many_harmed_nodes_end_no_proof() -> None:
    draw = np.random.default_rng()
    first = {case.op_type: case for case in all_cases() if case.opset >= 13}
    assert sum(outlived(case, 40, draw) for case in first.values()) > 1000


MALFORMED = {
    "Resize of nothing": "s = Constant <value = float[4] {1, 1, 2, 2}> () n = Resize(, , s)",
    "Resize along no axis": "s = Constant <value = float[2] {2, 2}> () n = Resize <axes = [2, 9]> (x, , s)",
    "Resize along a number": "s = Constant <value = float[2] {2, 2}> () n = Resize <axes = 2> (x, , s)",
    "CastLike of nothing": "n = CastLike(, x)",
    "CastLike to nothing": "n = CastLike(x, , )",
    "Compress of nothing": "s = Constant <value = bool[4] {1, 1, 1, 1}> () n = Compress(, s)",
    "Mod of nothing": "n = Mod(, x)",
    "a shape of 100": "a = Constant <value = int64[1] {100}> () z = ConstantOfShape <value = int64[1] {1}> (a) "
    "n = ConstantOfShape(z)",
}


@pytest.mark.parametrize("name", MALFORMED)
def test_a_malformed_node_is_refused_in_a_model_and_not_proven_in_a_function(name: str) -> None:
    body = MALFORMED[name]
    model = onnx.parser.parse_model(
        '<ir_version: 10, opset_import: ["": 21]> net '
        f"(float[1,1,4,4] x) => (float[1,1,8,8] y) {{ {body} y = Relu(n) }}"
    )
    with pytest.raises(ModelError):
        graph_from_proto(model, state_pairs=())
    reference = whole_of("(float[1,1,4,4] x) => (float[1,1,4,4] y) { y = Relu(x) }")
    text = re.sub(r"\bx\b", "i0", body)
    program = ByHand.read(
        reference,
        f"0: x = x[0:1, 0:1, 0:4, 0:4]\n0: y = y[0:1, 0:1, 0:4, 0:4] by Relu (x) {{ {text} o0 = Relu(n) }}\n0: give y",
    )
    assert not program.proof.is_proven
