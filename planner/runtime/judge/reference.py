"""A graph's twin in float64: the same ops on the same values, with 29 bits more.

What it computes is compared with what the stock runtime computes in the model's own precision, to tell rounding from
mistakes. Every floating-point constant, input and cast is float64; integers and booleans stay as they are.

Ops are computed in NumPy of our own where ONNX's reference evaluator is slow or wrong (``reference_ops.py``), else by
that evaluator. An op that ONNX does not define is computed by the NumPy function that is given for it. What is left is
computed by the runtime in the op's own precision: its results are then as right as the model's are, and everything
around it is exact.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, TypeAlias

import numpy as np
from onnx import TensorProto, helper, reference

from planner.errors import ModelError
from planner.graph.core.builder import Builder
from planner.graph.core.dependence import leading_to
from planner.graph.core.model import Attribute, DType, Graph, Op, TensorAttribute, of_types, qualified
from planner.graph.core.traits import CONVOLUTIONS, MATRIX_PRODUCTS, RANDOM, RECURRENT, named
from planner.graph.decompositions.expand import expand
from planner.graph.decompositions.registry import Purpose, decompositions
from planner.graph.files.protos import elem_type_of, op_to_node
from planner.runtime.judge.casts import EIGHT_BITS, cast_to_eight_bits
from planner.runtime.judge.compare import largest
from planner.runtime.judge.far import far_from, may_round
from planner.runtime.judge.foreign import ForeignOp, graph_of_op
from planner.runtime.judge.kernel_arguments import Arrays, Kernel, OtherFormError
from planner.runtime.judge.precision import own_eps
from planner.runtime.judge.reference_ops import KERNELS
from planner.runtime.judge.rounding import Rounding, sum_of, terms_of_product
from planner.runtime.judge.whole import passed_on, require_constants

_FLOATS: Final = frozenset(elem_type_of(dtype) for dtype in DType if dtype.is_float)
_DTYPE_ATTRIBUTES: Final = frozenset({"to", "dtype", "output_dtype"})

_STEPPED: Final = named("Ceil Floor Hardmax Mod Round Shrink Sign ThresholdedRelu")
"""Ops whose results jump where an operand is rounded."""
_REFERENCE_DOMAINS: Final = frozenset({"", "ai.onnx.ml"})
"""Those that ONNX's reference evaluator has."""
BY_BODY: Final = named(
    "BatchNormalization LayerNormalization LogSoftmax LpNormalization MeanVarianceNormalization "
    "SimplifiedLayerNormalization"
)
"""Operators of ONNX that are computed by their body, op by op: its evaluator lacks them, is slow, or is wrong."""


WORK_LIMIT: Final = 1_000_000_000
"""Elements touched in one step (see ``work_elements``) up to which there is a reference: some 20 to 30 s of NumPy."""
MEMORY_LIMIT_BYTES: Final = 8 * 2**30
"""What the reference's arrays may take."""
_PRODUCTS_PER_ELEMENT: Final = 16
"""So many multiply-adds of a matrix product take about the time of one element of any other op."""


ForeignReference: TypeAlias = Callable[..., Any]
"""From the op and its inputs, floating-point ones in float64, to its output or a tuple of its outputs."""


class NoReferenceError(Exception):
    """There is no float64 reference for this graph; the message says why."""


class Reference:
    """The float64 twin of a graph.

    Args:
        graph: with all its constants.
        references: by (domain, op type), operators that ONNX does not define in NumPy.
        libraries: of custom operators.
        work_limit: see ``WORK_LIMIT``.
        memory_limit_bytes: see ``MEMORY_LIMIT_BYTES``.

    Raises:
        NoReferenceError: it would take too long or too much memory, or an op draws random numbers.
        ModelError: a constant's value is not there.
    """

    def __init__(
        self,
        graph: Graph,
        *,
        references: Mapping[tuple[str, str], ForeignReference] | None = None,
        libraries: Sequence[Path] = (),
        work_limit: int = WORK_LIMIT,
        memory_limit_bytes: int = MEMORY_LIMIT_BYTES,
    ) -> None:
        require_constants(graph)
        random = sorted({op.op_type for op in graph.ops} & RANDOM)
        if random:
            raise NoReferenceError(f"the model draws random numbers ({', '.join(random)})")
        work = work_elements(graph)
        if work > work_limit:
            raise NoReferenceError(f"it would touch {work:.2g} elements a step, more than {work_limit:.2g}")
        self._last_use = _last_uses(graph)
        memory_bytes = 8 * _peak_elements(graph, self._last_use)
        if memory_bytes > memory_limit_bytes:
            raise NoReferenceError(
                f"it would take {memory_bytes / 2**30:.1f} GiB, more than {memory_limit_bytes / 2**30:.1f} GiB"
            )
        self._graph = graph
        self._ops = tuple(_widened(op) for op in graph.ops)
        self._constants = {name: _wide(value) for name, value in graph.constants.items() if value is not None}
        self._evaluators: dict[int, Any] = {}
        self._references = dict(references or {})
        self._libraries = tuple(libraries)
        self._foreign_ops: dict[int, ForeignOp] = {}
        self._overflowing = _overflowing(graph)
        self._kernels = {number: kernel_of(graph, op) for number, op in enumerate(graph.ops)}
        self._by_runtime = {number: "" for number, op in enumerate(graph.ops) if self._is_for_runtime(number, op)}
        """By number of an op that is not evaluated in float64: why the evaluator could not; "" if nobody asked it."""

    @property
    def own_precision(self) -> tuple[str, ...]:
        """Operators that are computed in the model's own precision; all of them are known after the first step."""
        foreign = {(self._ops[number].domain, self._ops[number].op_type) for number in self._by_runtime}
        return tuple(sorted(qualified(*key) for key in foreign - self._references.keys()))

    def step(
        self, values: Mapping[str, np.ndarray], rounding: Rounding | None = None, *, checks_ops: bool = False
    ) -> dict[str, np.ndarray]:
        """All outputs of one step, in float64 where the model has floating point.

        Args:
            values: of every input, data and state, in any precision.
            rounding: with it, what ops make is rounded at random to the model's own precision.
            checks_ops: each op's results are held against the stock runtime's of that op alone.

        Raises:
            ModelError: an op of which runtime and reference disagree.
            NoReferenceError: an op cannot be evaluated in float64.
        """
        arrays = {**self._constants, **{name: _wide(values[name]) for name in self._graph.inputs}}
        outputs = passed_on(self._graph, arrays)
        with np.errstate(all="ignore"):
            for number, op in enumerate(self._ops):
                operands = [arrays[name] if name else None for name in op.inputs]
                results = self._evaluate(number, op, operands)
                if checks_ops:
                    self._check_op(number, operands, results)
                for name, array in zip(op.outputs, results, strict=False):
                    if name:
                        self._check(op, name, array)
                        if name in self._overflowing:
                            is_beyond = np.isinf(array.astype(self._graph.tensors[name].dtype.array_dtype))
                            array = np.where(is_beyond, np.copysign(np.inf, array), array)
                        if rounding is not None:
                            array = rounding.of(op.op_type, array, own_eps(self._graph, name), operands)
                        arrays[name] = array
                        if name in self._graph.outputs:
                            outputs[name] = array
                for name in self._last_use.get(number, ()):
                    arrays.pop(name, None)
        return {name: outputs[name] for name in self._graph.outputs}

    def _check_op(self, number: int, operands: Sequence[np.ndarray | None], results: Sequence[np.ndarray]) -> None:
        """Refuses to judge by an op of which the runtime makes something else; see ``step``."""
        op = self._graph.ops[number]
        dtypes = [self._graph.tensors[name].dtype for name in (*op.inputs, *op.outputs) if name]
        # Few bits say little of a formula: an Exp of rounded operands is off by more than their epsilon.
        is_coarse = any(dtype.is_float and dtype.item_bytes < DType.FLOAT32.item_bytes for dtype in dtypes)
        rounds = is_coarse or op.op_type in _STEPPED or may_round(op)
        if rounds or (number in self._by_runtime and (op.domain, op.op_type) not in self._references):
            return
        feeds = {name: array for name, array in zip(op.inputs, operands, strict=True) if array is not None}
        try:
            alone = ForeignOp(self._graph, op, self._libraries).run(feeds)
        except Exception:  # noqa: BLE001 -- what the runtime does not compute alone is compared as part of the whole
            return
        if any(self._apart(op, feeds, results, alone)):
            # The runtime reads as zero, or as infinite, what float32 does not have: a root is far from it.
            read = [
                array if array is None else self._as_read(name, array)
                for name, array in zip(op.inputs, operands, strict=True)
            ]
            sides = "the stock runtime and the float64 reference"
            hint = "it is a bug of tofu or of the runtime; please report it with the model"
            if (op.domain, op.op_type) in self._references:
                sides, hint = "the kernel and your reference=", "correct reference= in your descriptions, or the kernel"
            for name, error, limit in self._apart(op, feeds, self._evaluate(number, op, read), alone):
                raise ModelError(
                    f"{sides} disagree, so that nothing can be verified: op "
                    f"{op.name!r} ({qualified(op.domain, op.op_type)}) makes {name!r} otherwise",
                    facts=(f"{error:.2e} of the largest element apart, of the same operands (limit {limit:.2e})",),
                    hint=hint,
                )

    def _as_read(self, name: str, array: np.ndarray) -> np.ndarray:
        return _wide(array.astype(self._graph.tensors[name].dtype.array_dtype))

    def _apart(
        self, op: Op, feeds: Mapping[str, np.ndarray], results: Sequence[np.ndarray], alone: Sequence[np.ndarray]
    ) -> Iterator[tuple[str, float, float]]:
        """Results of which formula and runtime make something else: name, error and limit, of the largest element."""
        floats = [array for array in feeds.values() if array.dtype == np.float64]
        wanted = [(name, array) for name, array in zip(op.outputs, results, strict=False) if name]
        for (name, array), result in zip(wanted, alone, strict=True):
            if array.dtype != np.float64:
                continue
            limit = far_from(own_eps(self._graph, name))
            # A sum, or a difference, is off by its operands' epsilons; below the least normal number is nothing.
            scale = max(largest(array), sum_of(op.op_type, array, floats)[1], *map(largest, floats), 0.0)
            least = float(np.finfo(np.float32).tiny) / limit
            error = largest(_wide(result) - array) / max(scale, least)
            if error > limit:
                yield name, error, limit

    def _evaluate(self, number: int, op: Op, inputs: Sequence[np.ndarray | None]) -> Sequence[np.ndarray]:
        if of_types(op, ("Cast", "CastLike")):
            dtype = self._graph.tensors[op.outputs[0]].dtype
            if dtype in EIGHT_BITS and inputs[0] is not None:
                return [cast_to_eight_bits(inputs[0], dtype, saturates=bool(op.attribute("saturate", 1)))]
        if number not in self._by_runtime:
            kernel = self._kernels[number]
            if kernel is not None:
                try:
                    return kernel(op, inputs)
                except OtherFormError as lacking:
                    self._by_runtime[number] = str(lacking)
            else:
                try:
                    return self._by_evaluator(number, op, inputs)
                except Exception as lacking:  # noqa: BLE001 -- whatever the evaluator lacks, the runtime has
                    self._by_runtime[number] = f"{type(lacking).__name__}: {lacking}"
        return self._foreign(number, op, inputs)

    def _by_evaluator(self, number: int, op: Op, inputs: Sequence[np.ndarray | None]) -> Sequence[np.ndarray]:
        """By ONNX's reference evaluator."""
        feeds = {name: array for name, array in zip(op.inputs, inputs, strict=True) if array is not None}
        if number not in self._evaluators:
            self._evaluators[number] = self._evaluator(op, feeds)
        results = iter(self._evaluators[number].run(None, feeds))
        arrays = [np.asarray(next(results)) if name else np.empty(0) for name in op.outputs]
        for name, array in zip(op.outputs, arrays, strict=True):
            if name:
                self._check(op, name, array)
        return arrays

    def _foreign(self, number: int, op: Op, inputs: Sequence[np.ndarray | None]) -> Sequence[np.ndarray]:
        """By the function that is given for it, else by the runtime in the op's own precision."""
        function = self._references.get((op.domain, op.op_type))
        try:
            if function is not None:
                outputs = function(op, *inputs)
                return [np.asarray(output) for output in (outputs if isinstance(outputs, tuple) else (outputs,))]
            if number not in self._foreign_ops:
                self._foreign_ops[number] = ForeignOp(self._graph, self._graph.ops[number], self._libraries)
            named = {name: array for name, array in zip(op.inputs, inputs, strict=True) if array is not None}
            results = iter(self._foreign_ops[number].run(named))
            return [_wide(next(results)) if name else np.empty(0) for name in op.outputs]
        except Exception as error:
            how = "by the function that is given for it" if function is not None else "by the runtime"
            before = f", nor in float64 ({self._by_runtime[number]})" if self._by_runtime[number] else ""
            raise NoReferenceError(
                f"op {op.name!r} ({op.op_type}) cannot be evaluated {how}{before}: {type(error).__name__}: {error}"
            ) from error

    def _is_for_runtime(self, number: int, op: Op) -> bool:
        """Whether neither NumPy nor ONNX's evaluator is asked, but the runtime, or the function given for the op.

        An operator of others, but those of ONNX Runtime that NumPy has here; graphs inside; places and an order that it
        chooses.
        """
        if op.domain not in _REFERENCE_DOMAINS:
            return (op.domain, op.op_type) in self._references or self._kernels[number] is None
        is_unordered = of_types(op, ("TopK",)) and not op.attribute("sorted", 1)
        # They read at places that the runtime computes in its own precision and rounds: in float64 another element
        # would be the nearest. And ONNX's reference evaluator differs in modes of each of them.
        return bool(op.has_graphs or is_unordered or of_types(op, ("GridSample", "Resize", "RoiAlign", "Upsample")))

    def _evaluator(self, op: Op, feeds: Mapping[str, np.ndarray]) -> Any:
        node = op_to_node(op)
        graph = helper.make_graph(
            [node],
            op.op_type,
            [
                helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)
                for name, array in feeds.items()
            ],
            [helper.make_empty_tensor_value_info(name) for name in op.outputs if name],
        )
        return reference.ReferenceEvaluator(
            helper.make_model(graph, opset_imports=[helper.make_opsetid("", self._graph.opset)])
        )

    def _check(self, op: Op, name: str, array: np.ndarray) -> None:
        tensor = self._graph.tensors[name]
        wanted = "float64" if tensor.dtype.is_float else tensor.dtype.value
        if array.dtype.name != wanted or array.shape != tensor.shape:
            raise NoReferenceError(
                f"op {op.name!r} ({op.op_type}) gives {array.dtype.name} {list(array.shape)} for {name!r}, "
                f"not {wanted} {list(tensor.shape)}"
            )


def kernel_of(graph: Graph, op: Op) -> Kernel | None:
    """An op in NumPy of our own: by its body, if it is of ``BY_BODY`` or ONNX Runtime's own, or whole; None where there
    is neither.
    """
    if not op.domain and not of_types(op, (*BY_BODY, *RECURRENT)):
        return KERNELS.get(op.op_type)
    alone = graph_of_op(graph, op)
    body = _unrolled(alone, op) if op.op_type in RECURRENT else expand(alone, is_plan=False).graph
    if body.ops == alone.ops:
        return None
    reference = Reference(body)

    def by_body(_: Op, inputs: Arrays) -> tuple[np.ndarray, ...]:
        values = {name: array for name, array in zip(op.inputs, inputs, strict=True) if array is not None}
        results = reference.step(values)
        return tuple(results[name] if name else np.empty(0) for name in op.outputs)

    return by_body


def _unrolled(alone: Graph, op: Op) -> Graph:
    """A recurrent op, step by step, as a gradient goes through it."""
    builder, form = Builder(alone), decompositions(Purpose.GRADIENT)[op.op_type]
    with builder.scope(op.name):
        for output, source in zip(op.outputs, form(builder, op) or (), strict=False):
            if output:
                builder.define(output, source)
    return builder.rewritten()


def work_elements(graph: Graph) -> int:
    """Elements that one step touches; the multiply-adds of products count a sixteenth each."""
    total = 0
    for op in graph.ops:
        total += max((graph.tensors[name].elements for name in (*op.inputs, *op.outputs) if name), default=0)
        if op.op_type in CONVOLUTIONS | MATRIX_PRODUCTS:
            (a, b), made = (graph.tensors[name].shape for name in op.inputs[:2]), graph.tensors[op.outputs[0]].elements
            total += round(made * terms_of_product(op.op_type, a, b, made)) // _PRODUCTS_PER_ELEMENT if made else 0
    return total


def _overflowing(graph: Graph) -> frozenset[str]:
    """The tensors by whose being finite the model decides, as a dynamic loss scale does: all before IsInf and IsNaN."""
    asked = {op.inputs[0] for op in graph.ops if op.op_type in ("IsInf", "IsNaN")}
    return leading_to(graph, asked, {name for name, tensor in graph.tensors.items() if not tensor.dtype.is_float})


def _last_uses(graph: Graph) -> dict[int, tuple[str, ...]]:
    """By number of an op, the tensors that nobody reads after it."""
    last: dict[str, int] = {}
    for number, op in enumerate(graph.ops):
        last.update(dict.fromkeys((name for name in (*op.inputs, *op.outputs) if name), number))
    uses: dict[int, tuple[str, ...]] = {}
    for name, number in last.items():
        uses[number] = (*uses.get(number, ()), name)
    return uses


def _peak_elements(graph: Graph, last_use: Mapping[int, tuple[str, ...]]) -> int:
    live = sum(graph.tensors[name].elements for name in (*graph.inputs, *graph.constants))
    peak = live
    for number, op in enumerate(graph.ops):
        live += sum(graph.tensors[name].elements for name in op.outputs if name)
        peak = max(peak, live)
        live -= sum(graph.tensors[name].elements for name in last_use.get(number, ()) if name not in graph.outputs)
    return peak


def _wide(array: np.ndarray) -> np.ndarray:
    is_float = array.dtype.kind == "f" or array.dtype.name == "bfloat16"
    return array.astype(np.float64) if is_float else array


def _widened(op: Op) -> Op:
    attributes = {name: _widened_attribute(name, value) for name, value in op.attributes}
    if op.op_type == "ConstantOfShape" and "value" not in attributes:
        attributes["value"] = TensorAttribute(np.zeros(1, np.float64))
    return Op(op.name, op.op_type, op.inputs, op.outputs, tuple(sorted(attributes.items(), key=_key)), op.domain)


def _key(item: tuple[str, Attribute]) -> str:
    return item[0]


def _widened_attribute(name: str, value: Attribute) -> Attribute:
    if name in _DTYPE_ATTRIBUTES and isinstance(value, int) and value in _FLOATS:
        return int(TensorProto.DOUBLE)
    if isinstance(value, TensorAttribute):
        return TensorAttribute(_wide(value.array))
    return value
