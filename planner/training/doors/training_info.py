"""ONNX's own training format: ``TrainingInfoProto`` in.

The training step is the inference graph and the algorithm graph together (onnx.proto, TrainingInfoProto); initializers
that ``update_binding`` names are state. Operators of ai.onnx.preview.training are expanded.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np
from onnx import ModelProto, NodeProto, helper

from planner.errors import ModelError, UnsupportedError, repeated
from planner.graph.core.model import Graph
from planner.graph.core.notes import STATE
from planner.graph.core.wellformed import node_label
from planner.graph.files.to_onnx import to_model
from planner.graph.reading.from_onnx import graph_from_proto
from planner.training.build import INPUTS, sample_of
from planner.training.doors.preview import DOMAIN, written_out
from planner.training.doors.rewriting import read_rewritten


def is_training_model(model: ModelProto) -> bool:
    """Whether a model says how it is trained: by training information, or by operators of the preview domain."""
    return bool(model.training_info) or any(node.domain == DOMAIN for node in model.graph.node)


def read_training_info(model: ModelProto, state_pairs: Sequence[tuple[str, str]] | None = None) -> Graph:
    """The training step of a model that says how it is trained.

    Args:
        model: with training information, or with operators of the preview domain.
        state_pairs: (state, next state) of a model without training information; None: they are inferred.

    Returns:
        Inputs: those of both graphs, and the initializers that are updated (state). Outputs: those of both graphs that
        no binding uses up, and the next states.

    Raises:
        ModelError: bindings that name what is not there, or a malformed graph.
        UnsupportedError: several algorithms; an operator that cannot be differentiated, or that has no standard form.
    """
    if len(model.training_info) > 1:
        raise UnsupportedError(f"the model has {len(model.training_info)} training algorithms; only one is taken")
    if model.functions:
        raise UnsupportedError("a model with training information and local functions is not taken")
    combined, pairs = _combined(model)
    following = dict(pairs)
    outputs = [value.name for value in combined.graph.output]
    results = {name: name for name in outputs if name not in following.values()}
    # Reading drops what leads nowhere, so all that is asked for is an output, with a type that is inferred later.
    targets = dict.fromkeys((*following.values(), *_differentiated(combined.graph.node)))
    combined.graph.output.extend(helper.make_empty_tensor_value_info(name) for name in targets if name not in outputs)
    graph = read_rewritten(combined)
    # A next state needs a name of its own: one tensor may be the next value of several states.
    named: dict[str, str] = {}
    for current, name in pairs:
        following[current] = name if name in graph.producer and name not in named else f"{current}.next"
        named[following[current]] = name
    graph = written_out(graph, results | named)
    initial = {**graph.initial, **_initial(model)}
    written = to_model(graph)
    if model.training_info:
        state_pairs = list(following.items())
    elif state_pairs is None:
        # It says nothing of its states, so they are inferred.
        written.metadata_props.remove(next(entry for entry in written.metadata_props if entry.key == STATE))
    graph = graph_from_proto(written, state_pairs=state_pairs)
    return _with_initial(graph, initial)


def _with_initial(graph: Graph, initial: Mapping[str, np.ndarray | None]) -> Graph:
    """The graph with these first values, and with what says how sample data of the rest is drawn."""
    input_values = {name: value for name, value in initial.items() if name in graph.inputs}
    first = {**graph.initial, **input_values}
    states = {pair.current for pair in graph.state}
    drawn = {name: sample_of(graph, name) for name in graph.inputs if name not in states and first.get(name) is None}
    return replace(graph, initial=first, notes={**graph.notes, INPUTS: json.dumps(drawn)})


def _combined(model: ModelProto) -> tuple[ModelProto, list[tuple[str, str]]]:
    """Both graphs as one, in which states are inputs; and the pairs of state and next state."""
    combined = ModelProto(ir_version=model.ir_version)
    combined.opset_import.extend(model.opset_import)
    combined.metadata_props.extend(model.metadata_props)
    graph = combined.graph
    graph.CopyFrom(model.graph)
    del graph.value_info[:]
    pairs: list[tuple[str, str]] = []
    for info in model.training_info:
        part = info.algorithm
        graph.node.extend(part.node)
        graph.initializer.extend(part.initializer)
        graph.input.extend(part.input)
        output_names = {value.name for value in graph.output}
        graph.output.extend(value for value in part.output if value.name not in output_names)
        pairs.extend((entry.key, entry.value) for entry in info.update_binding)
    initializers = {tensor.name: tensor for tensor in graph.initializer}
    inputs = {value.name for value in graph.input}
    tensor_names = {name for node in graph.node for name in node.output} | inputs | initializers.keys()
    faults = [f"it updates {current!r}, which is no initializer" for current, _ in pairs if current not in initializers]
    faults += [f"{current!r} becomes {following!r}, which nothing makes" for current, following in pairs
               if following not in tensor_names]  # fmt: skip
    names = [current for current, _ in pairs]
    faults += [f"{name!r} is updated twice" for name in repeated(names)]
    if faults:
        raise ModelError("the bindings of the training information do not hold", facts=tuple(faults))
    states = [initializers[name] for name in names if name not in inputs]
    graph.input.extend(helper.make_tensor_value_info(state.name, state.data_type, state.dims) for state in states)
    return combined, pairs


def _differentiated(nodes: Iterable[NodeProto]) -> Iterator[str]:
    """The ``y`` of each Gradient, which only an attribute names.

    Raises:
        UnsupportedError: inputs other than ``xs`` and ``zs`` themselves: the gradient at other values.
    """
    for node in nodes:
        if (node.domain, node.op_type) == (DOMAIN, "Gradient"):
            stated = {attribute.name: attribute for attribute in node.attribute}
            operands = [name for key in ("xs", "zs") if key in stated for name in stated[key].strings]
            if operands != [name.encode() for name in node.input]:
                what = "it asks for the gradient at other values than those of the graph"
                raise UnsupportedError(f"{node_label(node)}: {what}")
            if "y" in stated:
                yield stated["y"].s.decode(errors="replace")


def _initial(model: ModelProto) -> dict[str, np.ndarray | None]:
    """First values that the initialization graph gives; None where it draws them at random."""
    values: dict[str, np.ndarray | None] = {}
    for info in model.training_info:
        values.update((entry.key, None) for entry in info.initialization_binding)
        alone = ModelProto(ir_version=model.ir_version, opset_import=model.opset_import, graph=info.initialization)
        try:
            graph = graph_from_proto(alone, state_pairs=[])
        except ModelError:
            continue
        for entry in info.initialization_binding:
            if op := graph.made_by(entry.value, "Identity"):
                values[entry.key] = graph.constants.get(op.inputs[0])
    return values
