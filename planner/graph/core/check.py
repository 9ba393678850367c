"""The invariants of a Graph."""

from __future__ import annotations

from planner.errors import ModelError
from planner.graph.core.model import Graph


def check_graph(graph: Graph) -> None:
    """Check what ``Graph`` promises; cheap enough to run after every step that makes one.

    Every tensor that an op reads is an input, a constant or made by an earlier op; each is made once; every name in
    ``inputs``, ``outputs``, ``constants`` and of every op is in ``tensors``; op names are unique; outputs are made by
    ops or are inputs; constants, initial values and states have the shape and dtype of their tensors.

    Raises:
        ModelError: one line for each violation.
    """
    facts = [*_definitions(graph), *_values(graph), *_state(graph)]
    if facts:
        raise ModelError(f"graph {graph.name!r} is not consistent", facts=tuple(facts))


def _definitions(graph: Graph) -> list[str]:
    facts: list[str] = []
    for name, tensor in graph.tensors.items():
        if tensor.name != name:
            facts.append(f"tensor {name!r} calls itself {tensor.name!r}")
    for kind, names in (("input", graph.inputs), ("output", graph.outputs), ("constant", tuple(graph.constants))):
        facts.extend(f"{kind} {name!r} is not among the tensors" for name in names if name not in graph.tensors)
        if len(set(names)) < len(names):
            facts.append(f"an {kind} is listed twice")
    facts.extend(f"{name!r} is both an input and a constant" for name in graph.inputs if name in graph.constants)
    facts.extend(f"{name!r} is folded but no constant" for name in sorted(graph.folded - graph.constants.keys()))
    # Ops define their outputs one after the other, so that an op that reads a later one's output is a fault.
    definitions = {*graph.inputs, *graph.constants}
    names_of_ops: set[str] = set()
    for op in graph.ops:
        if op.name in names_of_ops:
            facts.append(f"two ops are named {op.name!r}")
        names_of_ops.add(op.name)
        for name in op.inputs:
            if name and name not in definitions:
                facts.append(f"op {op.name!r} ({op.op_type}) reads {name!r}, which is not made before it")
        for name in filter(None, op.outputs):
            if name in definitions:
                facts.append(f"op {op.name!r} ({op.op_type}) makes {name!r}, which is defined already")
            if name not in graph.tensors:
                facts.append(f"op {op.name!r} ({op.op_type}) makes {name!r}, which is not among the tensors")
            definitions.add(name)
    non_constants = definitions - set(graph.constants)
    facts.extend(f"output {name!r} is not made" for name in graph.outputs if name not in non_constants)
    facts.extend(f"tensor {name!r} is not made" for name in graph.tensors if name not in definitions)
    return facts


def _values(graph: Graph) -> list[str]:
    facts: list[str] = []
    for kind, values in (("constant", graph.constants), ("initial value of", graph.initial)):
        for name, array in values.items():
            tensor = graph.tensors.get(name)
            if tensor is None or array is None:
                continue
            if array.shape != tensor.shape or array.dtype.name != tensor.dtype.value:
                facts.append(
                    f"{kind} {name!r} is {list(array.shape)} of {array.dtype.name}, "
                    f"its tensor {list(tensor.shape)} of {tensor.dtype.value}"
                )
    facts.extend(f"initial value of {name!r}, which is no input" for name in graph.initial if name not in graph.inputs)
    return facts


def _state(graph: Graph) -> list[str]:
    facts: list[str] = []
    inputs, outputs = set(graph.inputs), set(graph.outputs)
    for pair in graph.state:
        if pair.current not in inputs:
            facts.append(f"state {pair.current!r} is not an input")
        if pair.following not in outputs:
            facts.append(f"next state {pair.following!r} is not an output")
        current, following = graph.tensors.get(pair.current), graph.tensors.get(pair.following)
        if current is None or following is None:
            continue
        if current.kind != following.kind:
            facts.append(
                f"state {pair.current!r} is {list(current.shape)} of {current.dtype.value}, "
                f"its next {pair.following!r} {list(following.shape)} of {following.dtype.value}"
            )
        inputs.discard(pair.current)
        outputs.discard(pair.following)
    return facts
