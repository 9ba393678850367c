"""An If whose condition is known is the branch that it takes.

Exporters write an If for what depends on shapes or on flags of a call; once those are known, nothing is left to decide.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from onnx import GraphProto, NodeProto, TensorProto, helper

from planner.graph.subgraph import graphs_of
from planner.graph.wellformed import fresh_name


@dataclass(frozen=True, slots=True)
class Branch:
    """What stands in the place of an If; names are those of the graph around it, or new."""

    initializers: tuple[TensorProto, ...]
    nodes: tuple[NodeProto, ...]
    """They make the If's outputs."""


def taken_branch(node: NodeProto, condition: bool, prefix: str, taken: Collection[str]) -> Branch:
    """The branch of an If (ONNX: ``then_branch`` where the condition is true, else ``else_branch``).

    Args:
        node: the If; is left as it is.
        condition: its first input.
        prefix: begins the names of the branch's own tensors.
        taken: names of tensors that these must not have.
    """
    wanted = "then_branch" if condition else "else_branch"
    graph = GraphProto()
    graph.CopyFrom(next(attribute.g for attribute in node.attribute if attribute.name == wanted))
    made = {name for inner in graph.node for name in inner.output if name}
    names: dict[str, str] = {}
    for own in (*(tensor.name for tensor in graph.initializer), *sorted(made)):
        names[own] = fresh_name(f"{prefix}/{own}", {*taken, *names.values()})
    handed_on = []
    for value, output in zip(graph.output, node.output, strict=True):
        if value.name in made and names[value.name] not in node.output:
            names[value.name] = output
        else:  # an input or initializer of the branch, or one tensor that is two outputs
            handed_on.append((value.name, output))
    for tensor in graph.initializer:
        tensor.name = names[tensor.name]
    for inner in graph.node:
        _rename(inner, names)
    identities = [helper.make_node("Identity", [names.get(source, source)], [to]) for source, to in handed_on if to]
    return Branch(tuple(graph.initializer), (*graph.node, *identities))


def _rename(node: NodeProto, names: Mapping[str, str]) -> None:
    node.input[:] = [names.get(name, name) for name in node.input]
    node.output[:] = [names.get(name, name) for name in node.output]
    for graph in graphs_of(node):
        # ONNX gives every tensor a name of its own, those of the graphs inside too: what is of this name is this.
        for inner in graph.node:
            _rename(inner, names)
        for value in graph.output:
            value.name = names.get(value.name, value.name)
