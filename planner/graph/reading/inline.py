"""Local functions are inlined, within a bound that is computed before anything is expanded."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from onnx import FunctionProto, ModelProto, NodeProto, inliner

from planner.errors import ModelError, UnsupportedError
from planner.graph.reading.defaults import FunctionKey, function_key, with_defaults

MAX_OPS: Final = 200_000
"""Ops that a graph may have once its local functions are expanded."""
MAX_BYTES: Final = 2**30
"""Bytes that the expanded nodes may take as protobuf."""


def _functions(model: ModelProto) -> dict[FunctionKey, FunctionProto]:
    functions: dict[FunctionKey, FunctionProto] = {}
    for function in model.functions:
        if function_key(function) in functions:
            raise ModelError(f"local function {_label(function_key(function))} is defined twice")
        functions[function_key(function)] = function
    return functions


def _label(key: FunctionKey) -> str:
    domain, name, overload = key
    return repr(".".join(part for part in (domain, name, overload) if part))


def reachable_nodes(model: ModelProto) -> Iterator[NodeProto]:
    """The nodes of a model's graph and of every local function that it reaches, each body once.

    Raises:
        ModelError: a local function that is defined twice.
    """
    functions = _functions(model)
    seen: set[FunctionKey] = set()
    pending: list[Iterable[NodeProto]] = [model.graph.node]
    while pending:
        for node in pending.pop():
            yield node
            if function_key(node) in functions and function_key(node) not in seen:
                seen.add(function_key(node))
                pending.append(functions[function_key(node)].node)


def expanded_size(model: ModelProto) -> tuple[int, int]:
    """Count and bytes of the nodes that a model's graph would have with every local function inlined.

    Works in the size of the file, whatever the size of the result: each function's totals are computed once.

    Raises:
        ModelError: functions that call each other in a circle, or one that is defined twice.
    """
    functions = _functions(model)
    totals: dict[FunctionKey, tuple[int, int]] = {}
    on_path: dict[FunctionKey, None] = {}

    def total(nodes: Iterable[NodeProto]) -> tuple[int, int]:
        count = size_bytes = 0
        for node in nodes:
            node_total = totals.get(function_key(node)) if function_key(node) in functions else (1, node.ByteSize())
            assert node_total is not None, "callees are totalled first"
            count += node_total[0]
            size_bytes += node_total[1]
        return count, size_bytes

    def callees(nodes: Iterable[NodeProto]) -> list[FunctionKey]:
        return [key for key in dict.fromkeys(map(function_key, nodes)) if key in functions]

    for root in callees(model.graph.node):
        # Depth first by a stack, for chains of calls may be longer than Python's recursion goes. A function is totalled
        # when it is on top for the second time: then all its callees are.
        stack = [root]
        while stack:
            key = stack[-1]
            if key in totals:
                stack.pop()
                on_path.pop(key, None)
                continue
            if key not in on_path:
                on_path[key] = None
                waiting = [callee for callee in callees(functions[key].node) if callee not in totals]
                circle = next((callee for callee in waiting if callee in on_path), None)
                if circle is not None:
                    raise ModelError(f"local function {_label(circle)} calls itself, directly or through others")
                stack.extend(waiting)
            else:
                totals[key] = total(functions[key].node)
    return total(model.graph.node)


def inline_functions(model: ModelProto) -> ModelProto:
    """Replace every call of a local function by its body.

    Args:
        model: best without initializers, for it is serialised on the way.

    Returns:
        A model without functions; the model itself if it has none.

    Raises:
        ModelError: recursion, a function defined twice, or more than ``MAX_OPS`` ops or ``MAX_BYTES`` when expanded.
        UnsupportedError: onnx's inliner cannot expand it.
    """
    if not model.functions:
        return model
    model = with_defaults(model, _functions(model), MAX_BYTES)
    count, size_bytes = expanded_size(model)
    if count > MAX_OPS or size_bytes > MAX_BYTES:
        raise ModelError(
            f"the model has {count} ops ({size_bytes} bytes) once its local functions are expanded; "
            f"at most {MAX_OPS} ops and {MAX_BYTES} bytes are taken"
        )
    try:
        inlined = inliner.inline_local_functions(model, convert_version=True)
    except Exception as error:  # noqa: BLE001 -- exceptions of C++ come through, under no common type
        raise UnsupportedError("local functions cannot be inlined", facts=(str(error),)) from None
    del inlined.functions[:]
    return inlined
