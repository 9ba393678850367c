"""Names in a model's graph: each tensor defined once and before its use, each op named once."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

from onnx import GraphProto, ModelProto, NodeProto, TensorProto

from planner.errors import ModelError
from planner.graph.core.subgraph import graphs_of, read_names


def initializers_of(model: ModelProto) -> dict[str, TensorProto]:
    """The initializers by name.

    Raises:
        ModelError: one without a name, or two of the same name.
    """
    initializers: dict[str, TensorProto] = {}
    for tensor in model.graph.initializer:
        if not tensor.name:
            raise ModelError("the graph has an initializer without a name")
        if tensor.name in initializers:
            raise ModelError(f"the graph has two initializers named {tensor.name!r}")
        initializers[tensor.name] = tensor
    return initializers


def check_names(graph: GraphProto, initializers: Iterable[str]) -> None:
    """Check that every tensor is defined exactly once, and before it is used.

    Args:
        graph: the graph whose inputs, nodes and outputs are walked, in the file's order.
        initializers: names that are known besides; an input of the same name is its default value.

    Raises:
        ModelError: a tensor that is defined twice, is read before it is made, or is never made: all of them.
    """
    facts: list[str] = []
    inputs: set[str] = set()
    for value in graph.input:
        if not value.name:
            facts.append("an input has no name")
        elif value.name in inputs:
            facts.append(f"two inputs are named {value.name!r}")
        inputs.add(value.name)
    # An initializer of an input's name is that input's default, and defines nothing twice.
    definitions = inputs | set(initializers)
    made_anywhere = {name for node in graph.node for name in node.output if name}
    for node in graph.node:
        for name in dict.fromkeys(read_names(node)):
            if name and name not in definitions:
                early = " before it is made (ONNX wants execution order)"
                fault = early if name in made_anywhere else ", which nothing makes"
                facts.append(f"{node_label(node)} reads {name!r}{fault}")
        for name in node.output:
            if name and name in definitions:
                facts.append(f"{node_label(node)} makes {name!r}, which is defined already")
            if name:
                definitions.add(name)
    outputs: set[str] = set()
    for value in graph.output:
        if value.name in outputs:
            facts.append(f"two outputs are named {value.name!r}")
        elif value.name not in definitions:
            facts.append(f"nothing makes output {value.name!r}")
        outputs.add(value.name)
    if not graph.output:
        facts.append("the graph has no output")
    if facts:
        raise ModelError("the graph is not well-formed", facts=tuple(facts))


def node_label(node: NodeProto) -> str:
    """The name of a node in an error, whether or not it has a name."""
    outputs = ", ".join(repr(name) for name in node.output if name)
    return f"op {node.name!r} ({node.op_type})" if node.name else f"the {node.op_type} that makes {outputs}"


def unique_op_names(nodes: Sequence[NodeProto]) -> tuple[str, ...]:
    """A name for each node: its own where that is the first of its kind, else one made from it and its first output.

    The names do not depend on where in the file an op stands, so long as those before it with the same name stay.
    """
    reserved = {node.name for node in nodes if node.name}
    seen: set[str] = set()
    names: list[str] = []
    for node in nodes:
        name = node.name
        if not name or name in seen:
            first_output = next((output for output in node.output if output), "")
            name = fresh_name(f"{node.name or node.op_type}.{first_output}", reserved)
            reserved.add(name)
        seen.add(name)
        names.append(name)
    return tuple(names)


def fresh_name(wanted: str, reserved: Iterable[str]) -> str:
    """``wanted``, or ``wanted.2``, ``wanted.3`` ..., whichever is not taken."""
    names = reserved if isinstance(reserved, set | frozenset | dict) else set(reserved)
    name, number = wanted, 1
    while name in names:
        number += 1
        name = f"{wanted}.{number}"
    return name


def namer(op: str, reserved: Iterable[str]) -> Callable[[str], str]:
    """Gives names to parts of an op, ``OP.PART``, that are not taken, nor given before."""
    names = set(reserved)

    def named(part: str) -> str:
        name = fresh_name(f"{op}.{part}", names)
        names.add(name)
        return name

    return named


def live_nodes(graph: GraphProto) -> list[NodeProto]:
    """The nodes from which a path leads to an output, in the file's order."""
    wanted = {value.name for value in graph.output}
    live: list[NodeProto] = []
    for node in reversed(graph.node):
        if any(name in wanted for name in node.output if name):
            wanted.update(read_names(node))
            live.append(node)
    return live[::-1]


def check_text(model: ModelProto) -> None:
    """Check that every name is text: protobuf hands names that are not UTF-8 out as bytes.

    Raises:
        ModelError: the first name that is not UTF-8.
    """
    for name in _texts(model):
        if not isinstance(name, str):
            raise ModelError(f"the model has a name that is not UTF-8: {name!r}")


def every_node(nodes: Iterable[NodeProto]) -> Iterator[NodeProto]:
    """Nodes, and those of the graphs inside of them."""
    for node in nodes:
        yield node
        for graph in graphs_of(node):
            yield from every_node(graph.node)


def _texts(model: ModelProto) -> Iterator[object]:
    graph = model.graph
    yield graph.name
    for entry in model.metadata_props:
        yield entry.key
        yield entry.value
    for function in model.functions:
        yield from (function.name, function.domain, function.overload)
        yield from (*function.input, *function.output, *function.attribute)
        yield from (proto.domain for proto in function.opset_import)
    yield from (proto.domain for proto in model.opset_import)
    for node in every_node((*graph.node, *(node for function in model.functions for node in function.node))):
        yield from (node.name, node.op_type, node.domain, node.overload, *node.input, *node.output)
        yield from (name for attribute in node.attribute for name in (attribute.name, attribute.ref_attr_name))
    for value in (*graph.input, *graph.output):
        yield value.name
        yield from (dim.dim_param for dim in value.type.tensor_type.shape.dim)
    for tensor in graph.initializer:
        yield tensor.name
        yield from (text for entry in tensor.external_data for text in (entry.key, entry.value))
    yield from (sparse.values.name for sparse in graph.sparse_initializer)
