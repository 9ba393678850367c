"""A walk over a model's nodes in which operators that no runtime has are replaced by standard ones.

Shapes and dtypes are inferred on the way, so that a replacement knows those of its operands; shape arithmetic is
folded, because replacements read axes and sizes.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TypeAlias

import numpy as np
from onnx import ModelProto, NodeProto, TensorShapeProto

from planner.errors import ModelError, UnsupportedError
from planner.graph.core.attributes import label
from planner.graph.core.builder import Builder
from planner.graph.core.model import Attribute, Graph, Op, Tensor, TensorAttribute
from planner.graph.core.notes import DATA_FOLDER, EXTERNAL
from planner.graph.core.wellformed import check_names, check_text, initializers_of, live_nodes, unique_op_names
from planner.graph.files.protos import (
    MAX_IR_VERSION,
    array_of,
    dtype_of,
    external_location,
    op_of,
    op_to_node,
    refused_forms,
    tensor_shape,
)
from planner.graph.folding.evaluate import FOLDABLE, MAX_FOLDED_ELEMENTS, evaluate, extent
from planner.graph.folding.infer import Inference, UnknownOperatorError
from planner.graph.reading.load import default_opset
from planner.training import rules
from planner.training.gradients.autodiff import Backward, Contributions
from planner.training.gradients.older_opsets import OLDEST_OPSET, OPSET, upgraded

Lowering: TypeAlias = Callable[["Walk", Op], tuple[str, ...]]
"""Emits what stands for an op; says what makes each output ("" for one that is not made)."""


@dataclass(frozen=True, slots=True)
class Unrolled:
    """A recurrent op, written out."""

    operands: tuple[str, ...]
    """Its inputs by position, each another tensor; "" where one is absent."""
    outputs: tuple[str, ...]
    """All hidden states, and each last state."""
    ops: tuple[Op, ...]
    """Those that lead from ``operands`` to ``outputs``."""


@dataclass(slots=True)
class Walk:
    """The state of the walk."""

    table: Mapping[tuple[str, str], Lowering]
    """What is replaced, by domain and operator."""
    builder: Builder
    inference: Inference
    opset: int
    aliases: dict[str, str] = field(default_factory=dict)
    """Under which name the builder has a tensor of the model."""
    originals: dict[str, Op] = field(default_factory=dict)
    """Standard ops by each of their outputs."""
    unrolled: dict[str, Unrolled] = field(default_factory=dict)
    """Recurrent ops by the output that holds their gates, which is for the gradient operator alone."""
    running: dict[str, str] = field(default_factory=dict)
    """Running statistics, and what follows them."""

    def integers(self, op: Op, position: int, role: str) -> tuple[int, ...]:
        """The integers of an operand.

        Raises:
            UnsupportedError: they are not known.
        """
        value = self.builder.value(op.inputs[position]) if len(op.inputs) > position else None
        if value is None:
            raise UnsupportedError(f"{label(op)}: its {role} are not a known constant")
        return tuple(int(item) for item in value.reshape(-1))

    def rule(
        self,
        op_type: str,
        inputs: tuple[str, ...],
        dy: str,
        *,
        name: str,
        y: str = "",
        wanted: tuple[int, ...] = (0,),
        attributes: Mapping[str, Attribute] | None = None,
        saved: Mapping[str, str] | None = None,
    ) -> Contributions:
        """What the gradient rule of a standard operator gives for inputs that need not have been read by such an op."""
        stated = tuple(sorted((attributes or {}).items(), key=lambda item: item[0]))
        op = Op(name, op_type, inputs, (y or dy,), stated)
        flags = tuple(position in wanted for position in range(len(inputs)))
        return rules.standard()[op_type].function(Backward(self.builder, op, (dy,), flags, saved or {}))

    def take(self, name: str, node: NodeProto) -> None:
        """The next node."""
        op = op_of(node, name)
        op = replace(op, inputs=tuple(self.aliases.get(operand, operand) for operand in op.inputs))
        lowering = self.table.get((op.domain, op.op_type))
        if lowering is not None:
            with self.builder.scope(op.name):
                sources = self._lowered(lowering, op)
            self._alias(op, sources)
            return
        if op.domain:
            raise UnsupportedError(f"{label(op)}: operator {op.op_type} of {op.domain!r} has no standard form here")
        if self._fold(op):
            return
        self._keep(op)

    def _lowered(self, lowering: Lowering, op: Op) -> tuple[str, ...]:
        """What stands for an op that ONNX has no schema of: what a node lacks shows only where it is looked for."""
        try:
            return lowering(self, op)
        except (AssertionError, IndexError, KeyError, ValueError) as error:
            raise ModelError(
                f"{label(op)}: {len(op.inputs)} inputs, of shapes or with attributes that the operator does not take",
                facts=(str(error),) if isinstance(error, AssertionError) and error.args else (),
                hint="is the file whole? make it again with onnxruntime-training's generate_artifacts",
            ) from error

    def _alias(self, op: Op, sources: tuple[str, ...]) -> None:
        """An absent output has no name: an alias of it would stand for every absent input after it."""
        pairs = zip(op.outputs, sources, strict=False)
        self.aliases.update((output, source) for output, source in pairs if output and source)

    def _fold(self, op: Op) -> bool:
        if op.op_type == "Constant":
            value = next((value.array for _, value in op.attributes if isinstance(value, TensorAttribute)), None)
            if value is None and len(op.attributes) == 1:
                key, stated = op.attributes[0]
                value = np.array(stated, np.float32 if "float" in key else np.int64)
            if value is None:
                raise UnsupportedError(f"{label(op)}: its value is not supported")
            results: tuple[np.ndarray, ...] | None = (value,)
        elif op.op_type in ("Shape", "Size"):
            self._inferred(op)
            results = (extent(op, self.builder.shape(op.inputs[0])),)
        else:
            results = self._evaluated(op)
        if results is None:
            return False
        for output, result in zip(op.outputs, results, strict=True):
            self.aliases[output] = self.builder.constant(np.asarray(result), output)
        return True

    def _evaluated(self, op: Op) -> tuple[np.ndarray, ...] | None:
        if op.op_type not in FOLDABLE or op.op_type in ("ConstantOfShape", "Expand"):
            return None
        values = [self.builder.value(operand) if operand else None for operand in op.inputs]
        for operand, value in zip(op.inputs, values, strict=True):
            if operand and (value is None or value.dtype.kind == "f" or value.size > MAX_FOLDED_ELEMENTS):
                return None
        return evaluate(op_to_node(op), values, self.opset) if values else None

    def _inferred(self, op: Op) -> dict[str, Tensor | None]:
        try:
            return self.inference.outputs(op_to_node(op), self.builder.tensors, self.builder.constants)
        except UnknownOperatorError:
            raise UnsupportedError(f"{label(op)}: no operator {op.op_type} at opset {self.opset}") from None
        except ModelError as error:
            raise type(error)(f"{label(op)}: {error.what}") from None

    def _keep(self, op: Op) -> None:
        tensors = self._inferred(op)
        open_shapes = [output for output, tensor in tensors.items() if tensor is None]
        if open_shapes:
            raise ModelError(f"{label(op)}: {open_shapes[0]!r} depends on data that is known only at run time")
        self.builder.tensors.update((output, tensor) for output, tensor in tensors.items() if tensor is not None)
        self.originals.update((output, op) for output in op.outputs if output)
        with self.builder.scope(op.name):
            self.builder.replay(upgraded(self.builder, op, self.opset))


def walk(model: ModelProto, table: Mapping[tuple[str, str], Lowering]) -> tuple[Walk, Graph]:
    """Go through a model.

    Returns:
        The finished walk, whose builder has everything, and the graph of inputs and constants that it began with.

    Raises:
        ModelError, UnsupportedError: the model is malformed, or an op has no standard form.
    """
    check_text(model)
    opset = default_opset(model)
    if opset < OLDEST_OPSET:
        raise UnsupportedError(
            f"the model is of opset {opset}; the oldest that is taken is {OLDEST_OPSET}",
            hint="make it again from a forward model of a later opset",
        )
    initializers = initializers_of(model)
    check_names(model.graph, initializers)
    tensors: dict[str, Tensor] = {}
    values: dict[str, np.ndarray | None] = {}
    initial: dict[str, np.ndarray | None] = {}
    external: dict[str, dict[str, str]] = {}
    for value in model.graph.input:
        tensors[value.name] = _declared(value.name, value.type.tensor_type.elem_type, value.type.tensor_type.shape)
    for name, proto in initializers.items():
        shape, dtype = tensor_shape(proto, f"initializer {name!r}")
        array = array_of(proto, f"initializer {name!r}")
        if array is None:
            external[name] = external_location(proto, f"initializer {name!r}")
        if name in tensors:
            initial[name] = array
        else:
            tensors[name] = Tensor(name, shape, dtype)
            values[name] = array
    source = Graph(
        name=model.graph.name or "graph",
        tensors=tensors,
        ops=(),
        inputs=tuple(value.name for value in model.graph.input),
        outputs=(),
        constants=values,
        initial=initial,
        opset=opset,
        notes=_of_data(model, external),
    )
    builder = Builder(source)
    nodes = live_nodes(model.graph)
    for node in nodes:
        if ("" if node.domain == "ai.onnx" else node.domain, node.op_type) not in table:
            for name in node.output:
                if name:
                    builder.reserve(name)
        reason = refused_forms(node)
        if reason:
            raise UnsupportedError(f"op {node.name!r} ({node.op_type}): {reason}")
    inference = Inference({"": opset}, min(max(int(model.ir_version), 8), MAX_IR_VERSION))
    state = Walk(table, builder, inference, opset)
    try:
        for name, node in zip(unique_op_names(nodes), nodes, strict=True):
            state.take(name, node)
    except UnsupportedError as error:
        raise UnsupportedError("an op of the training graph cannot be taken", facts=(error.what,)) from error
    return state, source


def _of_data(model: ModelProto, external: Mapping[str, Mapping[str, str]]) -> dict[str, str]:
    """The notes of where values lie that the model does not hold."""
    notes = {entry.key: entry.value for entry in model.metadata_props if entry.key == DATA_FOLDER}
    return {**notes, EXTERNAL: json.dumps(external, sort_keys=True)} if external else {}


def _declared(name: str, elem_type: int, shape: TensorShapeProto) -> Tensor:
    dtype = dtype_of(elem_type)
    if dtype is None:
        raise UnsupportedError(f"input {name!r} is of a dtype that cannot be planned")
    sizes = [int(dim.dim_value) if dim.HasField("dim_value") else 0 for dim in shape.dim]
    if not all(sizes):
        raise ModelError(f"input {name!r} has no static shape")
    return Tensor(name, tuple(sizes), dtype)


def graph_of(state: Walk, source: Graph, *, inputs: tuple[str, ...], outputs: Mapping[str, str]) -> Graph:
    """The graph that leads to some outputs.

    Args:
        state: a finished walk.
        source: what it began with.
        inputs: names of inputs.
        outputs: by the name that each is to have, the tensor of the model.
    """
    builder = state.builder
    named: list[str] = []
    for name, tensor in outputs.items():
        held = state.aliases.get(tensor, tensor)
        named.append(name if held == name and held in state.originals else builder.output(held, name))
    return builder.finish(
        inputs=inputs,
        outputs=named,
        state=(),
        initial={name: value for name, value in source.initial.items() if name in inputs},
        opset=max(OPSET, source.opset),
        notes=source.notes,
    )
