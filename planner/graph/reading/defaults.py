"""Calls of functions state every attribute that they leave to the function's defaults.

``FunctionProto.attribute_proto`` gives attributes values for calls that state none. onnx's inliner does not look at it:
what is left out at a call is left out of the ops in the body, which then take the operator's default. So the calls are
completed before they are inlined.

A function may hand an attribute on, ``y = inner <alpha = @alpha> (x)``. Where a call of it states no ``alpha`` and
it has no default either, the inner call states none, and the inner function's default counts (ONNX Runtime has it so).
Other calls of the same function may state one: such a function gets a second form, without the attribute.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, TypeAlias

from onnx import FunctionProto, ModelProto, NodeProto, defs

from planner.errors import ModelError
from planner.graph.core.subgraph import graphs_of

FunctionKey: TypeAlias = tuple[str, str, str]
"""Domain ("" for ONNX's own), name and overload of a function."""
_MAX_FORMS: Final = 10_000
"""Forms of functions that are made because calls leave attributes out."""


def function_key(proto: NodeProto | FunctionProto) -> FunctionKey:
    """The key of a function, or of the function that a node calls."""
    name = proto.op_type if isinstance(proto, NodeProto) else proto.name
    return ("" if proto.domain == "ai.onnx" else proto.domain, name, proto.overload)


def with_defaults(model: ModelProto, functions: Mapping[FunctionKey, FunctionProto], max_bytes: int) -> ModelProto:
    """The model with complete calls; the model itself if no function has a default.

    Args:
        model: is left as it is.
        functions: its local functions.
        max_bytes: that the defaults may add.

    Raises:
        ModelError: they add more, or leaving attributes out makes more than ``_MAX_FORMS`` forms of functions.
    """
    if not any(function.attribute_proto for function in functions.values()):
        return model
    completed = ModelProto()
    completed.CopyFrom(model)
    _Calls(completed, functions, max_bytes).complete()
    return completed


def state_operator_defaults(node: NodeProto, opset: int) -> None:
    """Writes into a node of the default domain what its operator's attributes are where they are left out.

    The bodies that ONNX gives its operators refer to attributes, too.
    """
    names = {attribute.name for attribute in node.attribute}
    for name, attribute in defs.get_schema(node.op_type, opset).attributes.items():
        if name not in names and attribute.default_value.name:
            node.attribute.append(attribute.default_value)


class _Calls:
    """The calls of a model as they are completed, and the forms of functions that this makes."""

    def __init__(self, model: ModelProto, functions: Mapping[FunctionKey, FunctionProto], max_bytes: int) -> None:
        self._model, self._left_bytes = model, max_bytes
        self._functions = dict(functions)
        self._handed_on = {key: self._handed_on_by(function.node) for key, function in functions.items()}
        self._forms: dict[tuple[FunctionKey, frozenset[str]], FunctionKey] = {}
        self._pending: list[tuple[FunctionProto, frozenset[str]]] = []

    def complete(self) -> None:
        functions = [(function, frozenset[str]()) for function in self._model.functions]
        for node in self._model.graph.node:
            self._complete(node, frozenset())
        self._pending += functions
        while self._pending:
            function, missing = self._pending.pop()
            for node in function.node:
                self._complete(node, missing)

    def _handed_on_by(self, nodes: Iterable[NodeProto]) -> frozenset[str]:
        """The attributes that a body refers to in calls of functions."""
        names: set[str] = set()
        for node in nodes:
            if function_key(node) in self._functions:
                names.update(attribute.ref_attr_name for attribute in node.attribute)
            for graph in graphs_of(node):
                names |= self._handed_on_by(graph.node)
        return frozenset(names - {""})

    def _complete(self, node: NodeProto, missing: frozenset[str]) -> None:
        """Completes a node of a body, for calls of it that leave some attributes out."""
        for graph in graphs_of(node):
            for inner in graph.node:
                self._complete(inner, missing)
        stated = [attribute for attribute in node.attribute if attribute.ref_attr_name not in missing]
        if len(stated) < len(node.attribute):
            del node.attribute[:]
            node.attribute.extend(stated)
        key = function_key(node)
        function = self._functions.get(key)
        if function is None:
            return
        names = {attribute.name for attribute in stated}
        for default in function.attribute_proto:
            if default.name not in names:
                self._left_bytes -= default.ByteSize()
                if self._left_bytes < 0:
                    raise ModelError("the defaults of its local functions, written out, make the model too large")
                node.attribute.append(default)
                names.add(default.name)
        called = self._form(key, self._handed_on[key] - names)
        if called != key:
            node.overload = called[2]

    def _form(self, key: FunctionKey, missing: frozenset[str]) -> FunctionKey:
        """The function that is called where these attributes are left out."""
        if not missing:
            return key
        if (key, missing) not in self._forms:
            if len(self._forms) == _MAX_FORMS:
                raise ModelError(f"local functions are called without attributes in more than {_MAX_FORMS} ways")
            function = self._model.functions.add()
            # The body as the file has it: that of the model may be completed already.
            function.CopyFrom(self._functions[key])
            domain, name, overload = key
            function.overload = f"{overload}~{len(self._forms)}"
            while (domain, name, function.overload) in self._functions:
                function.overload += "~"
            self._forms[key, missing] = (domain, name, function.overload)
            self._pending.append((function, missing))
        return self._forms[key, missing]
