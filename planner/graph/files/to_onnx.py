"""The writer from a Graph to an ONNX file that the stock runtime loads, and that reads back as the same graph."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Final

import numpy as np
from onnx import ModelProto, StringStringEntryProto, TensorProto, ValueInfoProto, defs, helper, numpy_helper

from planner.errors import ModelError
from planner.graph.core.model import Graph, Tensor
from planner.graph.core.notes import FOLDED, STATE, UNLOADED, UNLOADED_INITIAL, external_of, is_structural
from planner.graph.core.wellformed import fresh_name
from planner.graph.files.fills import fill_nodes, is_large_fill
from planner.graph.files.protos import MAX_IR_VERSION, elem_type_of, op_to_node
from planner.whole import whole_file

__all__ = ["domain_version", "op_to_node", "to_model", "value_info", "write_model"]

_MIN_IR_VERSION: Final = 10
_MAX_FILE_BYTES: Final = 2**31 - 1


def value_info(tensor: Tensor) -> ValueInfoProto:
    """A tensor's name, dtype and shape as ONNX writes them."""
    return helper.make_tensor_value_info(tensor.name, elem_type_of(tensor.dtype), tensor.shape)


def to_model(graph: Graph) -> ModelProto:
    """The graph as an ONNX model.

    Constants are initializers, but for large fills (see ``fills``), which are ops; initial values are initializers
    that are inputs, too, that is, defaults. Every other tensor has a value_info. A value that was not loaded is
    written as the reference to external data that the graph's notes carry; such a model is to be stored in the folder
    of the one that was read. Without a reference its tensor becomes an input of the model, and metadata says that it
    stands for a constant (``tofu.unloaded``), so that reading the model gives this graph again. States, folded
    constants and notes are metadata.

    Args:
        graph: a consistent graph (see ``check.check_graph``).

    Returns:
        A model of the graph's opset, at the lowest IR version from 10 on that has it.

    Raises:
        ModelError: more than 2 GiB of values, which no protobuf can hold.
    """
    fills = {
        name: value
        for name, value in graph.constants.items()
        if value is not None and name in graph.folded and is_large_fill(value, graph.opset)
    }
    values = {name: value for name, value in {**graph.constants, **graph.initial}.items() if name not in fills}
    total_bytes = sum(graph.tensors[name].size_bytes for name, value in values.items() if value is not None)
    if total_bytes > _MAX_FILE_BYTES:
        raise ModelError(
            f"graph {graph.name!r} carries {total_bytes} bytes of values, more than the 2 GiB of an ONNX file",
            hint="start from a model whose weights are external data: they are then not loaded",
        )
    external = external_of(graph.notes)
    unloaded = [name for name, value in graph.constants.items() if value is None and name not in external]
    model = ModelProto(producer_name="tofu", ir_version=_ir_version(graph.opset))
    domains = sorted({op.domain for op in graph.ops} - {""})
    model.opset_import.extend(helper.make_opsetid(domain, domain_version(graph, domain)) for domain in domains)
    model.opset_import.insert(0, helper.make_opsetid("", graph.opset))
    proto = model.graph
    proto.name = graph.name
    for name, value in fills.items():
        proto.node.extend(fill_nodes(name, value, fresh_name(f"{name}.shape", graph.tensors)))
    proto.node.extend(op_to_node(op) for op in graph.ops)
    proto.input.extend(value_info(graph.tensors[name]) for name in (*graph.inputs, *unloaded))
    proto.output.extend(value_info(graph.tensors[name]) for name in graph.outputs)
    proto.initializer.extend(
        _external(graph.tensors[name], external[name]) if value is None else _tensor(name, value)
        for name, value in values.items()
        if value is not None or name in external
    )
    # Fills are constants of the graph, but made by ops of the file: they need a value_info.
    declared = {*graph.inputs, *graph.outputs, *graph.constants} - fills.keys()
    proto.value_info.extend(value_info(tensor) for name, tensor in graph.tensors.items() if name not in declared)
    no_value = [name for name, value in graph.initial.items() if value is None and name not in external]
    model.metadata_props.extend(_metadata(graph, unloaded, no_value))
    return model


def write_model(graph: Graph, path: str | os.PathLike[str]) -> None:
    """Write a graph as an ONNX file: whole, or not at all.

    The bytes go to a temporary name beside the target, are synced, and renamed.

    Raises:
        ModelError: see ``to_model``.
        UsageError: the file cannot be written.
    """
    data = to_model(graph).SerializeToString(deterministic=True)
    with whole_file(Path(path)) as stream:
        stream.write(data)


def _ir_version(opset: int) -> int:
    needed = helper.find_min_ir_version_for([helper.make_opsetid("", opset)], ignore_unknown=True)
    return min(max(needed, _MIN_IR_VERSION), MAX_IR_VERSION)


def domain_version(graph: Graph, domain: str) -> int:
    """The version of an operator domain: the file's, else the last that ONNX knows of it, else 1."""
    if not domain:
        return graph.opset
    if domain in graph.domains:
        return graph.domains[domain]
    return max((int(schema.since_version) for schema in defs.get_all_schemas() if schema.domain == domain), default=1)


def _tensor(name: str, value: np.ndarray) -> TensorProto:
    return numpy_helper.from_array(np.ascontiguousarray(value).reshape(value.shape), name)


def _external(tensor: Tensor, location: dict[str, str]) -> TensorProto:
    proto = TensorProto(name=tensor.name, dims=tensor.shape, data_type=elem_type_of(tensor.dtype))
    proto.data_location = TensorProto.EXTERNAL
    proto.external_data.extend(StringStringEntryProto(key=key, value=value) for key, value in sorted(location.items()))
    return proto


def _metadata(graph: Graph, unloaded: Iterable[str], no_value: Iterable[str]) -> list[StringStringEntryProto]:
    entries = {key: value for key, value in graph.notes.items() if not is_structural(key)}
    lists: dict[str, list[str] | list[list[str]]] = {
        STATE: [[pair.current, pair.following] for pair in graph.state],
        FOLDED: sorted(graph.folded),
        UNLOADED: list(unloaded),
        UNLOADED_INITIAL: sorted(no_value),
    }
    entries.update((key, json.dumps(names)) for key, names in lists.items() if names or key == STATE)
    return [StringStringEntryProto(key=key, value=value) for key, value in sorted(entries.items())]
