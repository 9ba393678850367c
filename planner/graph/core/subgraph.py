"""Graphs inside of ops (If, Loop, Scan): what they read from outside, and how an Op holds them.

An Op's inputs are then its own and, after them, what its graphs read by name from around it, so that all of it is
brought to where the op runs. Inside, names are replaced: ``@in0`` ... for what is read from outside, ``@0`` ... for the
rest, so that an op can be executed under other names, and equal graphs are equal.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import count

from onnx import GraphProto, NodeProto, TensorProto

from planner.graph.core.model import GraphAttribute, of_types
from planner.graph.core.traits import DRAWING, RANDOM


def graphs_of(node: NodeProto) -> tuple[GraphProto, ...]:
    """The graphs that a node has as attributes, by the attributes' names."""
    return tuple(
        graph
        for attribute in sorted(node.attribute, key=lambda attribute: attribute.name)
        for graph in (*((attribute.g,) if attribute.HasField("g") else ()), *attribute.graphs)
    )


def read_names(node: NodeProto) -> tuple[str, ...]:
    """All tensors that a node reads: its inputs, and what graphs inside of it read from outside."""
    return (*node.input, *captured_names(node))


def captured_names(node: NodeProto) -> tuple[str, ...]:
    """The names that the graphs of a node read from around it, each once."""
    return tuple(dict.fromkeys(name for graph in graphs_of(node) for name in _free_names(graph)))


def _free_names(graph: GraphProto) -> Iterator[str]:
    definitions = {value.name for value in graph.input} | {tensor.name for tensor in graph.initializer}
    definitions |= {sparse.values.name for sparse in graph.sparse_initializer}
    for node in graph.node:
        yield from (name for name in read_names(node) if name and name not in definitions)
        definitions.update(node.output)
    yield from (value.name for value in graph.output if value.name not in definitions)


def external_holders(nodes: Iterable[NodeProto]) -> Iterator[str]:
    """The holders of external data among nodes and the graphs inside of them, in words: attributes and initializers.

    Args:
        nodes: of a graph or of a function.
    """
    for node in nodes:
        for attribute in node.attribute:
            single = [attribute.sparse_tensor] if attribute.HasField("sparse_tensor") else []
            parts = [part for coo in (*single, *attribute.sparse_tensors) for part in (coo.values, coo.indices)]
            tensors = [*([attribute.t] if attribute.HasField("t") else ()), *attribute.tensors, *parts]
            if any(map(is_external, tensors)):
                yield f"attribute {attribute.name!r} of {node.op_type} {node.name!r}"
        for graph in graphs_of(node):
            sparse = tuple(graph.sparse_initializer)
            held = (*graph.initializer, *(part for coo in sparse for part in (coo.values, coo.indices)))
            yield from (f"initializer {tensor.name!r}" for tensor in held if is_external(tensor))
            yield from external_holders(graph.node)


def is_external(tensor: TensorProto) -> bool:
    """Whether a tensor's data lie in a file beside the model."""
    return bool(tensor.data_location == TensorProto.EXTERNAL or tensor.external_data)


def obstacle(node: NodeProto, functions: Iterable[tuple[str, str]] = ()) -> str:
    """The reason why a control-flow op cannot be executed whole by every worker; "" if it can.

    Args:
        node: an op of ``CONTROL_FLOW``.
        functions: (domain, name) of the model's local functions.
    """
    called = set(functions)
    for holder in external_holders([node]):
        return f"a graph inside of it has external data ({holder})"
    for graph in graphs_of(node):
        for inner in graph.node:
            # A Dropout without training_mode drops nothing; with it, its value may be known nowhere but in a run.
            if of_types(inner, DRAWING if any(inner.input[2:3]) else RANDOM):
                return f"a graph inside of it draws random numbers ({inner.op_type}), other ones on every worker"
            if (inner.domain, inner.op_type) in called:
                return f"a graph inside of it calls local function {inner.op_type}"
            reason = obstacle(inner, called)
            if reason:
                return reason
    return ""


def graph_attribute(graph: GraphProto, captured: tuple[str, ...]) -> GraphAttribute:
    """A node's graph as an Op holds it.

    Args:
        graph: is left as it is.
        captured: of the node, ``captured_names``.
    """
    names = {name: f"@in{number}" for number, name in enumerate(captured)}
    copy = GraphProto()
    copy.CopyFrom(graph)
    _rename(copy, names, count())
    copy.name, copy.doc_string = "graph", ""
    return GraphAttribute(copy.SerializeToString(deterministic=True), len(captured))


def graph_proto(attribute: GraphAttribute, captured: tuple[str, ...]) -> GraphProto:
    """The graph as ONNX writes it, where what it reads from outside has these names."""
    graph = GraphProto()
    graph.ParseFromString(attribute.content)
    _rename(graph, {f"@in{number}": name for number, name in enumerate(captured)}, None)
    return graph


def _rename(graph: GraphProto, outer: Mapping[str, str], numbers: Iterator[int] | None) -> None:
    """Renames what a graph reads from outside; and, given numbers, everything that it defines."""
    names = dict(outer)

    def defined(name: str) -> str:
        if not name or numbers is None:
            return name
        names[name] = f"@{next(numbers)}"
        return names[name]

    for value in graph.input:
        value.name = defined(value.name)
    for tensor in graph.initializer:
        # Before IR version 4 an initializer is an input, too.
        tensor.name = names[tensor.name] if tensor.name in names else defined(tensor.name)
    for sparse in graph.sparse_initializer:
        sparse.values.name = defined(sparse.values.name)
    for number, node in enumerate(graph.node):
        if numbers is not None:
            node.name, node.doc_string = f"@op{number}", ""
        node.input[:] = [names.get(name, name) for name in node.input]
        for inner in graphs_of(node):
            _rename(inner, names, numbers)
        node.output[:] = [defined(name) for name in node.output]
    for value in graph.output:
        value.name = names.get(value.name, value.name)
    if numbers is not None:
        del graph.value_info[:]
