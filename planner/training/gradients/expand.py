"""Composites on the way of the gradient are written out before the walk back, so that no rule of their own is needed.

First those with a form for gradients (recurrent networks unrolled, losses by labels); then every operator without a
gradient rule: by its body in parts, else by the function body that ONNX defines.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

import numpy as np
import onnx
from onnx import ModelProto, helper, inliner, numpy_helper

from planner.errors import ModelError, UnsupportedError
from planner.graph.core.attributes import label, refuse
from planner.graph.core.builder import Builder
from planner.graph.core.model import DType, Graph, Op
from planner.graph.decompositions.registry import gradient_form
from planner.graph.files.protos import op_to_node
from planner.graph.files.to_onnx import value_info
from planner.graph.reading.defaults import state_operator_defaults
from planner.graph.reading.from_onnx import graph_from_proto
from planner.training.gradients.autodiff import GradientRule, active_tensors
from planner.training.gradients.reasons import REASONS
from planner.training.gradients.refusals import Refusals

_MOST_ROUNDS: Final = 8


def has_body(op_type: str, opset: int) -> bool:
    """Whether ONNX defines an operator of the default domain by a function body."""
    try:
        schema = onnx.defs.get_schema(op_type, opset)
    except onnx.defs.SchemaError:
        return False
    return any(getattr(schema, kind) for kind in ("has_function", "has_context_dependent_function"))


def expanded(forward: Graph, wanted: Iterable[str], rules: Mapping[str, GradientRule]) -> Graph:
    """The forward graph with composites on the way from ``wanted`` tensors written out; itself if there are none.

    An op that has neither a rule nor a body stays: the walk back names it.

    Raises:
        UnsupportedError: forms of composites that are not taken: all of them.
    """
    wanted = tuple(wanted)
    for _ in range(_MOST_ROUNDS):
        active = active_tensors(forward.tensors, forward.ops, wanted, rules)
        composites = {
            op.name
            for op in forward.ops
            if not op.domain
            and any(name in active for name in op.inputs)
            # Integers, as a comparison makes, have no gradient.
            and any(forward.tensors[name].dtype.is_float for name in op.outputs if name)
            and is_composite(op, forward.opset, rules)
        }
        if not composites:
            return forward
        forward = _expand(forward, composites)
    raise AssertionError("composites that expand to one another")


def is_composite(op: Op, opset: int, rules: Mapping[str, GradientRule]) -> bool:
    """Whether an op is to be written out before a gradient is taken through it."""
    is_plain = op.op_type in rules or op.op_type in REASONS
    return not is_plain and (gradient_form(op.op_type) is not None or has_body(op.op_type, opset))


def expand_op(builder: Builder, op: Op, opset: int) -> tuple[str, ...]:
    """Emit what a composite is made of; gives what makes each output.

    Raises:
        UnsupportedError: a form that is not taken.
    """
    form = gradient_form(op.op_type)
    outputs = form(builder, op) if form is not None else None
    return _by_body(builder, op, opset) if outputs is None else outputs


def _expand(forward: Graph, names: set[str]) -> Graph:
    builder = Builder(forward)
    refusals = Refusals()
    for op in forward.ops:
        if op.name not in names:
            builder.replay(op)
            continue
        try:
            with builder.scope(op.name):
                sources = expand_op(builder, op, forward.opset)
                for output, source in zip(op.outputs, sources, strict=False):
                    if output and source:
                        builder.define(output, source)
        except UnsupportedError as error:
            refusals.add(error.what, error.hint)
            builder.replay(op)
    refusals.raise_any()
    return builder.rewritten()


def _by_body(builder: Builder, op: Op, opset: int) -> tuple[str, ...]:
    """An op as ONNX's own function body writes it."""
    if not has_body(op.op_type, opset):
        raise refuse(op, "no gradient is known of this form of the operator")
    try:
        body = graph_from_proto(_inlined(builder, op, opset))
    except (ModelError, RuntimeError, ValueError) as error:
        raise UnsupportedError(f"{label(op)}: its function body cannot be expanded ({error})") from None
    names = {name: name for name in op.inputs if name}
    for name, value in body.constants.items():
        if name not in names:
            assert value is not None, "a function body has no external data"
            names[name] = builder.constant(value, f"{op.name}.{name}")
    for inner in body.ops:
        tensors = [body.tensors[name] for name in inner.outputs if name]
        shapes = [body.tensors[name].shape if name else () for name in inner.outputs]
        dtypes = [body.tensors[name].dtype if name else tensors[0].dtype for name in inner.outputs]
        results = builder.emit(
            inner.op_type,
            [names[name] if name else "" for name in inner.inputs],
            shapes,
            dtypes,
            attributes=dict(inner.attributes),
        )
        # Where a query sees no key, the body has NaN and the runtime 0.
        if inner.op_type == "Softmax" and op.op_type == "Attention" and op.has_input(3):
            results = (_weights_of_seen(builder, names[inner.inputs[0]]),)
        names.update((name, result) for name, result in zip(inner.outputs, results, strict=True) if name)
    return tuple(names.get(name, "") for name in op.outputs)


def _weights_of_seen(builder: Builder, scores: str) -> str:
    """The softmax of an attention's scores; 0, as the runtime has it and not NaN, where a query sees no key."""
    dtype = builder.dtype(scores)
    least = builder.scalar(float(np.finfo(dtype.array_dtype).min), dtype, "least")
    finite = builder.each("Max", "finite", scores, least)
    weights = builder.one("Softmax", (finite,), builder.shape(scores), dtype, hint="softmax", attributes={"axis": -1})
    unseen = builder.each("Equal", "unseen", scores, builder.scalar(-np.inf, dtype, "lowest"), dtype=DType.BOOL)
    return builder.each("Where", "weights", unseen, builder.scalar(0.0, dtype, "zero"), weights)


def _inlined(builder: Builder, op: Op, opset: int) -> ModelProto:
    """A model of the one op, its integer operands constants where they are known, written out."""
    named = [name for name in dict.fromkeys(op.inputs) if name]
    constants = {
        name: value for name in named if (value := builder.value(name)) is not None and not builder.dtype(name).is_float
    }
    node = op_to_node(op)
    state_operator_defaults(node, opset)
    graph = helper.make_graph(
        [node],
        "body",
        [value_info(builder.tensors[name]) for name in named if name not in constants],
        [value_info(builder.tensor(name)) for name in op.outputs if name],
        [numpy_helper.from_array(value, name) for name, value in constants.items()],
        # The inliner knows the types of inputs and of these, not of initializers.
        value_info=[value_info(builder.tensors[name]) for name in constants],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=10)
    return inliner.inline_selected_functions(model, [("", op.op_type)], exclude=False, inline_schema_functions=True)
