"""Older forms of operators that ONNX's version converter leaves wrong.

- Hardmax took all dims from ``axis`` (default 1) on together until opset 13; now it works along one dim.
- Upsample and Resize 10 read at ``i / scale``. Today's Resize reads at the middles of elements, unless it is told
  otherwise. Where the nearest element is taken, ONNX Runtime's old kernels take the one before along a dim that grows,
  and the one after along a dim that shrinks.
- RoiAlign read without the shift by half an element until opset 16.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import numpy as np
from onnx import GraphProto, ModelProto, NodeProto, TensorProto, helper

from planner.errors import UnsupportedError
from planner.graph.core.subgraph import graphs_of
from planner.graph.core.wellformed import fresh_name, node_label
from planner.graph.files.protos import stored_array

_RIGHT_FROM: Final = {"Hardmax": 13, "Resize": 11, "RoiAlign": 16, "Upsample": 11}
"""The opset by operator from which on the converter's form is right."""


def restated(older: ModelProto, opset: int, converted: ModelProto) -> None:
    """Have a converted model say what the older one said, in branches and loops, too.

    Args:
        older: as it was, with the constants that it holds.
        opset: of the older one.
        converted: changed in place. Ops are found by their order, which stays: what the converter replaces gets a name
            of its own.

    Raises:
        UnsupportedError: the converter makes other ops of them; a Resize that takes the nearest element, of scales that
            are not known or both grow and shrink.
    """
    _restate(older.graph, opset, converted.graph, {})


def _restate(older: GraphProto, opset: int, converted: GraphProto, around: Mapping[str, np.ndarray]) -> None:
    scales = {**around, **_constants(older)}
    were, are = (tuple(filter(_matters, graph.node)) for graph in (older, converted))
    if [node.op_type.replace("Upsample", "Resize") for node in were] != [node.op_type for node in are]:
        kinds = ", ".join(sorted({node.op_type for node in were}))
        raise UnsupportedError(
            f"ONNX's converter makes other ops of {kinds}", hint="export the model again at opset 21"
        )
    nodes: dict[int, list[NodeProto]] = {}
    reserved = {name for node in converted.node for name in (*node.input, *node.output)}
    for was, node in zip(were, are, strict=True):
        if opset < _RIGHT_FROM.get(was.op_type, 0):
            match was.op_type:
                case "Hardmax":
                    nodes[id(node)] = _hardmax(node, int(_stated(was, "axis", 1)), reserved)
                case "RoiAlign":
                    _state(node, "coordinate_transformation_mode", "output_half_pixel")
                case _:
                    _state(node, "coordinate_transformation_mode", "asymmetric")
                    if _stated(was, "mode", b"nearest") == b"nearest":
                        _state(node, "nearest_mode", _nearest(was, scales))
        # Bodies of control flow have older forms as well.
        within = {attribute.name: attribute.g for attribute in was.attribute if attribute.HasField("g")}
        for attribute in node.attribute:
            if attribute.HasField("g"):
                _restate(within[attribute.name], opset, attribute.g, scales)
    nodes_after = [substitute for node in converted.node for substitute in nodes.get(id(node), [node])]
    del converted.node[:]
    converted.node.extend(nodes_after)


def _matters(node: NodeProto) -> bool:
    return node.domain in ("", "ai.onnx") and (node.op_type in _RIGHT_FROM or bool(graphs_of(node)))


def _hardmax(node: NodeProto, axis: int, reserved: set[str]) -> list[NodeProto]:
    """By way of a matrix, whose second dim is all from ``axis`` on."""
    x, y = node.input[0], node.output[0]
    names = [fresh_name(f"{y}.{part}", reserved) for part in ("shape", "rows", "hardmax")]
    reserved.update(names)
    shape, rows, chosen = names
    return [
        helper.make_node("Shape", [x], [shape], name=shape),
        helper.make_node("Flatten", [x], [rows], name=rows, axis=axis),
        helper.make_node("Hardmax", [rows], [chosen], name=node.name or chosen, axis=-1),
        helper.make_node("Reshape", [chosen, shape], [y]),
    ]


def _nearest(node: NodeProto, constants: Mapping[str, np.ndarray]) -> str:
    if node.op_type == "Upsample":
        return "floor"  # its scales are 1 or more, by its specification
    scales = constants.get(node.input[1])
    if scales is None or ((scales > 1).any() and (scales < 1).any()):
        reason = "are not known" if scales is None else "are above 1 for one dim and below 1 for another"
        raise UnsupportedError(
            f"{node_label(node)}: a Resize of opset 10 to the nearest element, whose scales {reason}",
            hint="export the model again at opset 21",
        )
    return "ceil" if (scales < 1).any() else "floor"


def _constants(graph: GraphProto) -> dict[str, np.ndarray]:
    constants = {
        tensor.name: stored_array(tensor, f"initializer {tensor.name!r}")
        for tensor in graph.initializer
        if tensor.data_location != TensorProto.EXTERNAL
    }
    for node in graph.node:
        if node.op_type == "Constant" and node.attribute and node.attribute[0].HasField("t"):
            constants[node.output[0]] = stored_array(node.attribute[0].t, node_label(node))
    return constants


def _stated(node: NodeProto, name: str, default: bytes | int) -> bytes | int:
    values = (helper.get_attribute_value(attribute) for attribute in node.attribute if attribute.name == name)
    return next(values, default)


def _state(node: NodeProto, name: str, value: str) -> None:
    attributes = [attribute for attribute in node.attribute if attribute.name != name]
    del node.attribute[:]
    node.attribute.extend([*attributes, helper.make_attribute(name, value)])
