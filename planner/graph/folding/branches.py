"""A graph inside of an op, written among the ops around it.

An If whose condition is known is the branch that it takes. Exporters write an If for what depends on shapes or on flags
of a call; once those are known, nothing is left to decide. Of a loop, ``loops`` writes round by round.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from onnx import GraphProto, NodeProto, TensorProto, helper

from planner.graph.core.model import of_types
from planner.graph.core.subgraph import graphs_of
from planner.graph.core.wellformed import fresh_name


@dataclass(frozen=True, slots=True)
class Inlined:
    """The ops in the place of an op's graph; names are those of the graph around it, or new."""

    initializers: tuple[TensorProto, ...]
    nodes: tuple[NodeProto, ...]
    outputs: tuple[str, ...]
    """The names that the graph's outputs have now."""
    constants: Mapping[str, str]
    """The new names of what does not change from one time to the next: initializers, and what Constant nodes make."""


def inlined(
    graph: GraphProto,
    bindings: Mapping[str, str],
    prefix: str,
    reserved: Collection[str],
    *,
    outputs: Sequence[str] = (),
    of_all_rounds: str = "",
) -> Inlined:
    """A graph's nodes under new names.

    Args:
        graph: is left as it is.
        bindings: names around the graph of its inputs, and of constants that stand there already: those are left out.
        prefix: begins the names of the graph's own tensors.
        reserved: names of tensors that these must not have.
        outputs: what the graph's outputs are to be called, where a node makes them.
        of_all_rounds: begins the names of constants, where the graph is written several times; "" for ``prefix``.
    """
    graph_copy = GraphProto()
    graph_copy.CopyFrom(graph)
    initializers = [tensor for tensor in graph_copy.initializer if tensor.name not in bindings]
    constants = {node.output[0] for node in graph_copy.node if of_types(node, ("Constant",))}
    nodes = [node for node in graph_copy.node if (constants & bindings.keys()).isdisjoint(node.output)]
    fixed = {tensor.name for tensor in initializers} | (constants - bindings.keys())
    names = dict(bindings)
    fresh_names: set[str] = set()
    for name in (*(tensor.name for tensor in initializers), *sorted({name for node in nodes for name in node.output})):
        if name:
            stem = of_all_rounds if name in fixed and of_all_rounds else prefix
            names[name] = _fresh(f"{stem}/{name}", reserved, fresh_names)
    node_outputs = {name for node in nodes for name in node.output}
    for value, output in zip(graph_copy.output, outputs, strict=False):
        if value.name in node_outputs and output and names[value.name] not in outputs:
            names[value.name] = output
    for tensor in initializers:
        tensor.name = names[tensor.name]
    for node in nodes:
        _rename(node, names)
    called = tuple(names.get(value.name, value.name) for value in graph_copy.output)
    return Inlined(tuple(initializers), tuple(nodes), called, {name: names[name] for name in fixed})


def taken_branch(node: NodeProto, condition: bool, prefix: str, reserved: Collection[str]) -> Inlined:
    """The branch of an If (ONNX: ``then_branch`` where the condition is true, else ``else_branch``).

    Args:
        node: the If; is left as it is.
        condition: its first input.
        prefix: begins the names of the branch's own tensors.
        reserved: names of tensors that these must not have.
    """
    wanted = "then_branch" if condition else "else_branch"
    graph = next(attribute.g for attribute in node.attribute if attribute.name == wanted)
    branch = inlined(graph, {}, prefix, reserved, outputs=node.output)
    # An input or initializer of the branch, or one tensor that is two outputs.
    identities = [
        helper.make_node("Identity", [source], [to])
        for source, to in zip(branch.outputs, node.output, strict=True)
        if to and source != to
    ]
    return Inlined(branch.initializers, (*branch.nodes, *identities), tuple(node.output), branch.constants)


def _fresh(wanted: str, reserved: Collection[str], fresh_names: set[str]) -> str:
    name = fresh_name(wanted, reserved)
    while name in fresh_names:
        name = fresh_name(f"{name}.2", reserved)
    fresh_names.add(name)
    return name


def _rename(node: NodeProto, names: Mapping[str, str]) -> None:
    node.input[:] = [names.get(name, name) for name in node.input]
    node.output[:] = [names.get(name, name) for name in node.output]
    for graph in graphs_of(node):
        # ONNX gives every tensor a name of its own, those of the graphs inside too: what is of this name is this.
        for inner in graph.node:
            _rename(inner, names)
        for value in graph.output:
            value.name = names.get(value.name, value.name)
