"""A float32 model that computes in float16 or bfloat16 while its parameters stay float32 (Micikevicius et al. 2018).

Parameters, inputs and outputs keep their dtype, so that the state of the training step and what it is fed are the same
in every precision: Casts stand where the model begins and ends. The rule of Cast brings gradients back to float32.
Sums, exponentials and normalisations are computed in float32, as automatic mixed precision does.
"""

from __future__ import annotations

from collections.abc import Collection
from functools import cache
from typing import Final, Literal, TypeAlias

import numpy as np
import onnx

from planner.errors import UsageError
from planner.graph.core.builder import Builder
from planner.graph.core.model import DType, Graph, Op, TensorAttribute, of_types
from planner.graph.core.traits import NORMS, RANDOM, REDUCTIONS, named
from planner.graph.files.protos import elem_type_of

Precision: TypeAlias = Literal["float32", "float16", "bfloat16"]

_LARGEST: Final = {DType.FLOAT16: 65504.0, DType.BFLOAT16: 3.3895313892515355e38}
_IN_FULL: Final = NORMS | RANDOM | (REDUCTIONS - {"ReduceMax", "ReduceMin"}) | named(
    "AffineGrid BlackmanWindow CumProd CumSum DFT DeformConv Det Exp EyeLike GridSample HammingWindow HannWindow LRN "
    "Log LogSoftmax LpNormalization MeanVarianceNormalization MelWeightMatrix NegativeLogLikelihoodLoss Pow "
    "RMSNormalization Range Reciprocal Resize RoiAlign STFT Softmax SoftmaxCrossEntropyLoss Softplus Sqrt"
)  # fmt: skip
"""Operators that are computed in float32 whatever the precision: their results overflow or lose digits in 16 bits, or
their operands are places, of which 16 bits have too few. Others are where ONNX does not define them in 16 bits."""
_BFLOAT16_OPSET: Final = 22
"""The version that a step in bfloat16 has at least: from it on convolutions and pooling take it."""


def with_precision(forward: Graph, precision: Precision, trained: Collection[str] = ()) -> Graph:
    """The model computing in another float type; itself for "float32".

    Args:
        forward: a model in float32.
        precision: the other type.
        trained: the constants that are parameters, whose values are not known later on.

    Raises:
        UsageError: a precision that there is not.
    """
    if precision == "float32":
        return forward
    if precision not in ("float16", "bfloat16"):
        raise UsageError(f"unknown precision {precision!r}", facts=("known: bfloat16, float16, float32",))
    return _Lowering(forward, DType(precision), frozenset(trained)).run()


def opset_of(precision: str) -> int:
    """The version of the default domain that a step in a precision has at least; 0 where any will do."""
    return _BFLOAT16_OPSET if precision == "bfloat16" else 0


@cache
def _is_defined(op_type: str, opset: int, low: DType) -> bool:
    """Whether ONNX defines an operator of its own for a float type wherever it takes float32."""
    schema = onnx.defs.get_schema(op_type, opset)
    allowed = {constraint.type_param_str: constraint.allowed_type_strs for constraint in schema.type_constraints}
    types = [allowed.get(formal.type_str, ()) for formal in (*schema.inputs, *schema.outputs)]
    return all(f"tensor({low.value})" in options for options in types if "tensor(float)" in options)


class _Lowering:
    def __init__(self, forward: Graph, low: DType, trained: frozenset[str]) -> None:
        self.forward = forward
        self.low = low
        self.opset = max(forward.opset, opset_of(low.value))
        self.trained = trained
        self.emit = Builder(forward)
        self.names: dict[tuple[str, DType], str] = {}
        """Where a float32 tensor of the model is to be had in each dtype."""

    def run(self) -> Graph:
        for op in self.forward.ops:
            self._take(op)
        for name in self.forward.outputs:
            if self._is_full(name) and name not in self.forward.inputs:
                self.emit.define(name, self._in(name, DType.FLOAT32))
        return self.emit.rewritten()

    def _is_full(self, name: str) -> bool:
        return bool(name) and self.forward.tensors[name].dtype is DType.FLOAT32

    def _take(self, op: Op) -> None:
        floats = [name for name in (*op.inputs, *op.outputs) if self._is_full(name)]
        to_float = of_types(op, ("Cast",)) and self._is_full(op.outputs[0])
        in_full = op.domain or of_types(op, _IN_FULL) or not _is_defined(op.op_type, self.opset, self.low)
        wanted = DType.FLOAT32 if in_full else self.low
        operands = [self._in(name, wanted) if self._is_full(name) else self._current_name(name) for name in op.inputs]
        attributes = dict(op.attributes)
        if to_float:
            attributes["to"] = elem_type_of(wanted)
        value = attributes.get("value")
        if op.op_type == "ConstantOfShape" and floats:
            fill = value.array if isinstance(value, TensorAttribute) else np.zeros(1, np.float32)
            attributes["value"] = TensorAttribute(self._rounded(fill, wanted))
        tensors = [self.emit.tensor(name) if name else None for name in op.outputs]
        first = next(tensor for tensor in tensors if tensor is not None)
        with self.emit.scope(op.name):
            results = self.emit.emit(
                op.op_type,
                operands,
                [(tensor or first).shape for tensor in tensors],
                [wanted if (tensor or first).dtype is DType.FLOAT32 else (tensor or first).dtype for tensor in tensors],
                hint=op.op_type.lower(),
                attributes=attributes,
                domain=op.domain,
            )
        # BOOL stands for each dtype but float32: such a tensor has one form, and an output of the model keeps its name.
        for name, result in zip(op.outputs, results, strict=True):
            if self._is_full(name):
                self.names[name, wanted] = result
            elif name in self.forward.outputs:
                self.emit.define(name, result)
                self.names[name, DType.BOOL] = name
            elif name:
                self.names[name, DType.BOOL] = result

    def _current_name(self, name: str) -> str:
        """A tensor that is no float32: under its own name, or that of what makes it."""
        return self.names.get((name, DType.BOOL), name)

    def _in(self, name: str, dtype: DType) -> str:
        """A float32 tensor of the model in a dtype."""
        key = (name, dtype)
        if key not in self.names:
            casts = [self.names[name, kind] for kind in (DType.FLOAT32, self.low) if (name, kind) in self.names]
            source = casts[0] if casts else name
            value = self.forward.constants.get(name)
            is_computed = name in self.forward.folded or (value is not None and not value.shape)
            is_computed = is_computed and name not in self.trained
            if value is not None and is_computed and dtype is not DType.FLOAT32:
                self.names[key] = self.emit.constant(self._rounded(value, dtype), f"{name}.{dtype.value}")
            else:
                with self.emit.scope(name):
                    self.names[key] = self.emit.cast(source, dtype)
        return self.names[key]

    def _rounded(self, value: np.ndarray, dtype: DType) -> np.ndarray:
        """Numbers in another dtype; those that would overflow become its largest (masks often are -3.4e38)."""
        if dtype is DType.FLOAT32:
            return value
        largest = _LARGEST[dtype]
        numbers = np.where(np.isfinite(value), np.clip(value, -largest, largest), value)
        return np.asarray(numbers).astype(dtype.array_dtype)
