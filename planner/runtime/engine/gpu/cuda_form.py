"""A model in the form in which ONNX Runtime's CUDA provider takes it.

An op without a CUDA kernel that works (``cuda_kernels.py``) is changed, in this order, until all have one:

    - widened: with 16-bit floats it computes in float32 and rounds, as on CPUs (``halves.py``); one that only moves
      elements of a small type moves them in a larger one
    - expanded: into the ops that the operator's specification gives for it, or ``graph/decompositions/cuda.py``
    - otherwise it runs on the CPU: ONNX Runtime copies what it reads to the host, and what it makes back

What was done is told with the model, since it costs time. Before that, an op whose kernel is slow is written in others
that are not (``Decomposition.is_better``).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import Final

import onnx
from onnx import ModelProto, NodeProto, TensorProto, defs, helper, inliner

from planner.graph.core.model import of_types
from planner.graph.core.traits import carried
from planner.graph.decompositions.registry import Purpose
from planner.graph.files.protos import dtype_of
from planner.graph.reading.defaults import state_operator_defaults
from planner.runtime.engine.core.faster_ops import Expander, with_faster_ops
from planner.runtime.engine.core.halves import Widening, has_halves, kinds_of, rewired, with_nodes
from planner.runtime.engine.gpu.cuda_kernels import fails_when_run, has_cuda_kernel, is_of_runtime

_LARGER: Final[Mapping[int, tuple[int, ...]]] = {
    TensorProto.BOOL: (TensorProto.UINT8, TensorProto.INT32, TensorProto.FLOAT),
    TensorProto.INT8: (TensorProto.INT32, TensorProto.FLOAT),
    TensorProto.UINT8: (TensorProto.INT32, TensorProto.FLOAT),
    TensorProto.INT16: (TensorProto.INT32, TensorProto.FLOAT),
    TensorProto.UINT16: (TensorProto.INT32, TensorProto.FLOAT),
}
"""By ``TensorProto.DataType``, those that hold its elements exactly."""
_ROUNDS: Final = 8
"""More than an expansion within an expansion needs."""


@dataclass(frozen=True, slots=True)
class CudaForm:
    """A model for the CUDA provider, and what was done to it; an op is named with the dtype of its first operand."""

    model: ModelProto
    widened: frozenset[str]
    expanded: frozenset[str]
    on_cpu: frozenset[str]
    is_literal: bool
    """True if copies or constants are in it that must stay: without them, what is bound would be the host's."""


def with_copies(form: CudaForm, names: Collection[str]) -> CudaForm:
    """A form in which nobody reads some inputs in place.

    Where a kernel takes an operand from the host's memory, such as the place where a Slice begins, an input that is
    bound is copied there once, and is the same in every run. A copy of it is copied in each.
    """
    fresh = Widening(form.model, kinds_of(form.model))
    copies = {name: fresh.name(f"{name}.device") for name in sorted(names)}
    nodes = [helper.make_node("Identity", [name], [copy]) for name, copy in copies.items()]
    nodes += [rewired(node, copies) for node in form.model.graph.node]
    return replace(form, model=with_nodes(form.model, nodes), is_literal=True)


def cuda_form(model: ModelProto) -> CudaForm:
    """The form of a model.

    Args:
        model: of standard operators and those of ``com.microsoft``, without local functions. Is left as it is.
    """
    opsets = {"" if opset.domain == "ai.onnx" else opset.domain: opset.version for opset in model.opset_import}
    model = with_faster_ops(model, Purpose.CUDA)
    widened: set[str] = set()
    expanded: set[str] = set()
    on_cpu: set[str] = set()
    for _ in range(_ROUNDS):
        inferred = onnx.shape_inference.infer_shapes(model)
        kinds = kinds_of(inferred)
        lacking = [node for node in model.graph.node if not _is_taken(node, kinds, opsets)]
        if not lacking:
            break
        on_cpu.clear()
        changer = _Changer(model, inferred, kinds, opsets)
        inlined: set[str] = set()
        nodes: list[NodeProto] = []
        missing = {id(node) for node in lacking}
        for node in model.graph.node:
            if id(node) not in missing:
                nodes.append(node)
                continue
            name = _called(node, kinds)
            if (wider := changer.widened(node)) is not None:
                widened.add(name)
                nodes.extend(wider)
            elif (simpler := changer.expanded(node)) is not None:
                expanded.add(name)
                nodes.extend(simpler)
            elif changer.has_function(node):
                expanded.add(name)
                inlined.add(node.op_type)
                nodes.append(node)
            else:
                on_cpu.add(name)
                nodes.append(node)
        if not inlined and len(nodes) == len(model.graph.node):
            break  # what is left runs on the CPU
        model = with_nodes(model, nodes)
        for name in sorted(inlined):
            model = _inlined(model, name, opsets[""])
    if on_cpu:
        model = _between_copies(model)
    model, has_constants = _with_made_constants(model)
    is_literal = has_constants or bool(on_cpu)
    return CudaForm(model, frozenset(widened), frozenset(expanded), frozenset(on_cpu), is_literal)


def _with_made_constants(model: ModelProto) -> tuple[ModelProto, bool]:
    """The model with a copy behind each constant that is an output, and whether some output depends on no input.

    What ONNX Runtime computes beforehand lies on the host, and would be copied on no stream of ours, with a wait.
    """
    constant = {tensor.name for tensor in model.graph.initializer} - {value.name for value in model.graph.input}
    literals = set(constant)
    for node in model.graph.node:
        if all(name in constant or not name for name in node.input):
            constant.update(node.output)
            if node.op_type == "Constant":
                literals.update(node.output)
    outputs = [value.name for value in model.graph.output]
    if not constant.intersection(outputs):
        return model, False
    fresh = Widening(model, kinds_of(model))
    # Stated values alone need a copy: an op on constants runs in every iteration, for `is_literal` forbids folding.
    names = {name: fresh.name(f"{name}.given") for name in outputs if name in literals}
    nodes = [rewired(node, names, names) for node in model.graph.node]
    nodes += [helper.make_node("Identity", [inner], [name]) for name, inner in names.items()]
    result = with_nodes(model, nodes)
    for tensor in result.graph.initializer:
        tensor.name = names.get(tensor.name, tensor.name)
    return result, True


def _between_copies(model: ModelProto) -> ModelProto:
    """The model with an op of the GPU between what is bound and each op of the CPU.

    What an op of the CPU reads of the model's inputs is otherwise copied to the host once, when it is bound, and is the
    same in every run; what it makes of the outputs is copied back on no stream of ours.
    """
    opsets = {"" if opset.domain == "ai.onnx" else opset.domain: opset.version for opset in model.opset_import}
    kinds = kinds_of(onnx.shape_inference.infer_shapes(model))
    names = Widening(model, kinds)
    bound = {value.name for value in model.graph.input}
    results = {value.name for value in model.graph.output}
    inside: dict[str, str] = {}
    nodes: list[NodeProto] = []
    after: list[NodeProto] = []
    for node in model.graph.node:
        if not _is_taken(node, kinds, opsets):
            for name in [name for name in dict.fromkeys(node.input) if name in bound and name not in inside]:
                inside[name] = names.name(f"{name}.device")
                nodes.append(helper.make_node("Identity", [name], [inside[name]]))
            outside = {name: names.name(f"{name}.host") for name in node.output if name in results}
            after += [helper.make_node("Identity", [host], [name]) for name, host in outside.items()]
            node = rewired(node, inside, outside)
        # A copy of an output reads what its op makes, so it comes behind the op.
        nodes.append(node)
        nodes.extend(after)
        after.clear()
    return with_nodes(model, nodes)


def _is_taken(node: NodeProto, kinds: Mapping[str, int], opsets: Mapping[str, int]) -> bool:
    """True, too, of what ONNX Runtime alone can judge: what is inside of control flow, and a user's library."""
    if node.op_type == "Constant" or any(attribute.HasField("g") for attribute in node.attribute):
        return True
    if not is_of_runtime(node.domain):
        return True
    return has_cuda_kernel(node, kinds, opsets) and not fails_when_run(node, kinds)


def _called(node: NodeProto, kinds: Mapping[str, int]) -> str:
    kind = next((kinds[name] for name in (*node.input, *node.output) if name in kinds), None)
    dtype = None if kind is None else dtype_of(kind)
    return node.op_type if dtype is None else f"{node.op_type} of {dtype.value}"


def _inlined(model: ModelProto, op_type: str, opset: int) -> ModelProto:
    """The model with the ops of one operator as its specification gives them."""
    # The inliner asks for the types of operands, and takes no attribute for granted.
    typed = onnx.shape_inference.infer_shapes(model)
    for node in typed.graph.node:
        if of_types(node, (op_type,)):
            state_operator_defaults(node, opset)
    result: ModelProto = inliner.inline_selected_functions(
        typed, [("", op_type)], exclude=False, inline_schema_functions=True
    )
    del result.graph.value_info[:]
    return result


class _Changer:
    """Nodes of one model, changed."""

    def __init__(
        self, model: ModelProto, inferred: ModelProto, kinds: Mapping[str, int], opsets: Mapping[str, int]
    ) -> None:
        self._kinds, self._opsets = kinds, opsets
        self._widening = Widening(model, kinds)
        self.expanded = Expander(Purpose.CUDA, model, inferred, kinds).expanded

    def widened(self, node: NodeProto) -> list[NodeProto] | None:
        """The node on larger types; None if that does not help."""
        if node.op_type in ("Cast", "CastLike"):
            return None
        if has_halves(node, self._kinds):
            return self._widening.of(node)
        if not _moved(node) or node.domain or any(a.name == "reduction" for a in node.attribute):
            return None
        kind = self._kinds.get(node.output[0], 0)
        moved = [name for name in (*_moved(node), *node.output) if self._kinds.get(name) == kind]
        for larger in _LARGER.get(kind, ()):
            if has_cuda_kernel(node, {**self._kinds, **dict.fromkeys(moved, larger)}, self._opsets):
                return self._widening.of(node, {kind}, larger, moved)
        return None

    def has_function(self, node: NodeProto) -> bool:
        """Whether the operator's specification gives it as ops."""
        if (
            node.domain not in ("", "ai.onnx")
            or node.op_type in ("AffineGrid", "CenterCropPad", "SequenceMap")
            or "" in node.input
        ):
            return False
        schema = defs.get_schema(node.op_type, self._opsets[""])
        return any(getattr(schema, kind) for kind in ("has_function", "has_context_dependent_function"))


def _moved(node: NodeProto) -> list[str]:
    """The operands whose elements a node moves."""
    if node.op_type == "Resize":
        return [node.input[0]]
    return [node.input[position] for position in carried(node.op_type, len(node.input))]
