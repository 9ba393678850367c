"""A graph's twin in float64: the same ops on the same values, with 29 bits more.

What it computes is compared with what the stock runtime computes in the model's own precision, to tell rounding from
mistakes. Every floating-point constant, input and cast is float64; integers and booleans stay as they are.

An op that ONNX does not define is computed by the NumPy function that is given for it, else by the runtime in the op's
own precision: its results are then as right as the model's are, and everything around it is exact.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import prod
from pathlib import Path
from typing import Any, Final, TypeAlias

import numpy as np
from onnx import TensorProto, helper, reference

from planner.graph.model import Attribute, DType, Graph, Op, TensorAttribute
from planner.graph.protos import elem_type_of, op_to_node
from planner.graph.undescribed import qualified
from planner.runtime.compare import own_eps
from planner.runtime.foreign import ForeignOp
from planner.runtime.reference_microsoft import microsoft_kernel
from planner.runtime.reference_ops import KERNELS
from planner.runtime.rounding import Rounding
from planner.runtime.whole import passed_on, require_constants

_FLOATS: Final = frozenset(elem_type_of(dtype) for dtype in DType if dtype.is_float)
_DTYPE_ATTRIBUTES: Final = frozenset({"to", "dtype", "output_dtype"})
_RANDOM: Final = frozenset(
    {"Bernoulli", "Multinomial", "RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike"}
)

_REFERENCE_DOMAINS: Final = frozenset({"", "ai.onnx.ml"})
"""Those that ONNX's reference evaluator has."""

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
        random = sorted({op.op_type for op in graph.ops} & _RANDOM)
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
        foreign = {(op.domain, op.op_type) for op in graph.ops if _is_foreign(op) and microsoft_kernel(op) is None}
        self.own_precision = tuple(sorted(qualified(*key) for key in foreign - self._references.keys()))
        """Operators that are computed in the model's own precision."""

    def step(self, values: Mapping[str, np.ndarray], rounding: Rounding | None = None) -> dict[str, np.ndarray]:
        """All outputs of one step, in float64 where the model has floating point.

        Args:
            values: of every input, data and state, in any precision.
            rounding: with it, what ops make is rounded at random to the model's own precision.

        Raises:
            NoReferenceError: an op cannot be evaluated in float64.
        """
        arrays = {**self._constants, **{name: _wide(values[name]) for name in self._graph.inputs}}
        outputs = passed_on(self._graph, arrays)
        with np.errstate(all="ignore"):
            for number, op in enumerate(self._ops):
                made = self._evaluate(number, op, [arrays[name] if name else None for name in op.inputs])
                for name, array in zip(op.outputs, made, strict=False):
                    if name:
                        self._check(op, name, array)
                        if rounding is not None:
                            array = rounding.of(op.op_type, array, own_eps(self._graph, name))
                        arrays[name] = array
                        if name in self._graph.outputs:
                            outputs[name] = array
                for name in self._last_use.get(number, ()):
                    arrays.pop(name, None)
        return {name: outputs[name] for name in self._graph.outputs}

    def _evaluate(self, number: int, op: Op, inputs: Sequence[np.ndarray | None]) -> Sequence[np.ndarray]:
        if not op.domain and op.op_type in KERNELS:
            return KERNELS[op.op_type](op, inputs)
        own = None if (op.domain, op.op_type) in self._references else microsoft_kernel(op)
        if own is not None:
            return own(op, inputs)
        if _is_foreign(op):
            return self._foreign(number, op, inputs)
        feeds = {name: array for name, array in zip(op.inputs, inputs, strict=True) if array is not None}
        try:
            if number not in self._evaluators:
                self._evaluators[number] = self._evaluator(op, feeds)
            results = self._evaluators[number].run(None, feeds)
        except Exception as error:
            raise NoReferenceError(
                f"op {op.name!r} ({op.op_type}) cannot be evaluated in float64: {type(error).__name__}: {error}"
            ) from error
        return [np.asarray(result) for result in results]

    def _foreign(self, number: int, op: Op, inputs: Sequence[np.ndarray | None]) -> Sequence[np.ndarray]:
        known = self._references.get((op.domain, op.op_type))
        try:
            if known is not None:
                given = known(op, *inputs)
                return [np.asarray(made) for made in (given if isinstance(given, tuple) else (given,))]
            if number not in self._evaluators:
                self._evaluators[number] = ForeignOp(self._graph, self._graph.ops[number], self._libraries)
            named = {name: array for name, array in zip(op.inputs, inputs, strict=True) if array is not None}
            results = iter(self._evaluators[number].run(named))
            return [_wide(next(results)) if name else np.empty(0) for name in op.outputs]
        except Exception as error:
            how = "by the function that is given for it" if known is not None else "by the runtime"
            raise NoReferenceError(
                f"op {op.name!r} ({op.op_type}) cannot be evaluated {how}: {type(error).__name__}: {error}"
            ) from error

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


def _is_foreign(op: Op) -> bool:
    """Whether ONNX's reference evaluator cannot compute an op in float64: another's operator, or graphs inside."""
    return op.domain not in _REFERENCE_DOMAINS or op.has_graphs


def work_elements(graph: Graph) -> int:
    """Elements that one step touches; the multiply-adds of products count a sixteenth each."""
    total = 0
    for op in graph.ops:
        touched = [graph.tensors[name].elements for name in (*op.inputs, *op.outputs) if name]
        total += max(touched, default=0) + _products(graph, op) // _PRODUCTS_PER_ELEMENT
    return total


def _products(graph: Graph, op: Op) -> int:
    shapes = [graph.tensors[name].shape for name in op.inputs if name]
    match op.op_type:
        case "Conv":
            return graph.tensors[op.outputs[0]].elements * prod(shapes[1][1:])
        case "ConvTranspose":
            return prod(shapes[0]) * prod(shapes[1][1:])
        case "MatMul":
            return graph.tensors[op.outputs[0]].elements * shapes[0][-1]
        case "Gemm":
            return graph.tensors[op.outputs[0]].elements * shapes[0][0 if op.attribute("transA", 0) else 1]
    return 0


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
