"""The operators that training graphs are written in: each method emits one, with the shape and dtype that it makes.

Ops that would do nothing (a Reshape to the same shape, a sum over no dims) are not emitted.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np

from planner.errors import ModelError
from planner.graph.model import DType, Shape, TensorAttribute
from planner.graph.protos import elem_type_of, numpy_dtype
from planner.training.graph_builder import GraphBuilder

_INT64_MAX: Final = 2**63 - 1


class Builder(GraphBuilder):
    """Emits ops by operator. Dims count from the front throughout."""

    # element-wise --------------------------------------------------------------------------------------------------

    def unary(self, op_type: str, x: str, hint: str = "") -> str:
        """An element-wise op of one operand: Neg, Exp, Sqrt ..."""
        return self.one(op_type, [x], self.shape(x), self.dtype(x), hint=hint)

    def binary(self, op_type: str, a: str, b: str, hint: str = "") -> str:
        """An element-wise op of two operands, broadcast: Add, Sub, Mul, Div, Pow."""
        return self.one(op_type, [a, b], self._broadcast(a, b), self.dtype(a), hint=hint)

    def compare(self, op_type: str, a: str, b: str, hint: str = "mask") -> str:
        """A comparison, broadcast; makes booleans."""
        return self.one(op_type, [a, b], self._broadcast(a, b), DType.BOOL, hint=hint)

    def _broadcast(self, *names: str) -> Shape:
        shapes = [self.shape(name) for name in names]
        try:
            return tuple(np.broadcast_shapes(*shapes))
        except ValueError:
            facts = tuple(f"{name!r}: {list(shape)}" for name, shape in zip(names, shapes, strict=True))
            raise ModelError("tensors of the model do not go together", facts=facts) from None

    def add(self, a: str, b: str, hint: str = "") -> str:
        """``a + b``."""
        return self.binary("Add", a, b, hint)

    def sub(self, a: str, b: str, hint: str = "") -> str:
        """``a - b``."""
        return self.binary("Sub", a, b, hint)

    def mul(self, a: str, b: str, hint: str = "") -> str:
        """``a * b``."""
        return self.binary("Mul", a, b, hint)

    def div(self, a: str, b: str, hint: str = "") -> str:
        """``a / b``."""
        return self.binary("Div", a, b, hint)

    def scale(self, x: str, factor: float, hint: str = "") -> str:
        """``x`` times a number; ``x`` itself where that is 1."""
        return x if factor == 1.0 else self.mul(x, self.scalar(factor, x), hint)

    def where(self, condition: str, a: str, b: str, hint: str = "") -> str:
        """``a`` where the condition holds, else ``b``."""
        return self.one("Where", [condition, a, b], self._broadcast(condition, a, b), self.dtype(a), hint=hint)

    def cast(self, x: str, dtype: DType) -> str:
        """``x`` in another dtype; ``x`` itself where it has it."""
        if self.dtype(x) is dtype:
            return x
        return self.one("Cast", [x], self.shape(x), dtype, attributes={"to": elem_type_of(dtype)})

    # layout --------------------------------------------------------------------------------------------------------

    def reshape(self, x: str, shape: Shape, hint: str = "") -> str:
        """``x`` in another shape of as many elements."""
        if self.shape(x) == tuple(shape):
            return x
        return self.one("Reshape", [x, self.ints(shape, "shape")], tuple(shape), self.dtype(x), hint=hint)

    def reshaped_from(self, x: str) -> str | None:
        """What ``x`` is a Reshape of; None where it is none."""
        made_by = self._producer.get(x)
        is_reshape = made_by is not None and (made_by.domain, made_by.op_type) == ("", "Reshape")
        return made_by.inputs[0] if made_by is not None and is_reshape else None

    def transpose(self, x: str, perm: Sequence[int], hint: str = "") -> str:
        """``x`` with its dims in another order; a Transpose of a Transpose becomes one, or none."""
        made_by = self._producer.get(x)
        if made_by is not None and made_by.op_type == "Transpose" and not made_by.domain:
            default = tuple(reversed(range(self.rank(x))))
            inner = made_by.attribute("perm") or default
            assert isinstance(inner, tuple)
            x, perm = made_by.inputs[0], [int(inner[dim]) for dim in perm]
        if list(perm) == list(range(self.rank(x))):
            return x
        shape = tuple(self.shape(x)[dim] for dim in perm)
        return self.one("Transpose", [x], shape, self.dtype(x), hint=hint, attributes={"perm": tuple(perm)})

    def unsqueeze(self, x: str, axes: Sequence[int]) -> str:
        """``x`` with dims of size 1 put in; ``axes`` counts dims of the result, from the front."""
        if not axes:
            return x
        sizes = list(self.shape(x))
        for axis in sorted(axes):
            sizes.insert(axis, 1)
        return self.one("Unsqueeze", [x, self.ints(sorted(axes), "axes")], tuple(sizes), self.dtype(x))

    def squeeze(self, x: str, axes: Sequence[int]) -> str:
        """``x`` without these dims of size 1."""
        if not axes:
            return x
        shape = tuple(size for dim, size in enumerate(self.shape(x)) if dim not in axes)
        return self.one("Squeeze", [x, self.ints(sorted(axes), "axes")], shape, self.dtype(x))

    def expand(self, x: str, shape: Shape, hint: str = "") -> str:
        """``x`` repeated to a shape."""
        if self.shape(x) == tuple(shape):
            return x
        return self.one("Expand", [x, self.ints(shape, "shape")], tuple(shape), self.dtype(x), hint=hint)

    def zeros(self, shape: Shape, like: str) -> str:
        """Zeros of the dtype of tensor ``like``."""
        value = TensorAttribute(np.zeros(1, numpy_dtype(self.dtype(like))))
        return self.one(
            "ConstantOfShape",
            [self.ints(shape, "shape")],
            shape,
            self.dtype(like),
            hint="zeros",
            attributes={"value": value},
        )

    def concat(self, parts: Sequence[str], axis: int) -> str:
        """Tensors one after the other along a dim."""
        if len(parts) == 1:
            return parts[0]
        sizes = list(self.shape(parts[0]))
        sizes[axis] = sum(self.shape(part)[axis] for part in parts)
        return self.one("Concat", parts, tuple(sizes), self.dtype(parts[0]), attributes={"axis": axis})

    def slice(self, x: str, starts: Sequence[int], ends: Sequence[int]) -> str:
        """The box ``[starts, ends)`` of ``x``, one pair for each dim; dims that stay whole are left out of the op."""
        whole = self.shape(x)
        cut = [dim for dim, size in enumerate(whole) if (starts[dim], ends[dim]) != (0, size)]
        if not cut:
            return x
        shape = tuple(end - start for start, end in zip(starts, ends, strict=True))
        bounds = [
            self.ints([starts[dim] for dim in cut], "starts"),
            self.ints([ends[dim] for dim in cut], "ends"),
            self.ints(cut, "axes"),
        ]
        return self.one("Slice", [x, *bounds], shape, self.dtype(x))

    def every(self, x: str, steps: Mapping[int, int]) -> str:
        """Of ``x`` every so-manieth element along some dims, from the first."""
        if not steps:
            return x
        shape = tuple(-(-size // steps.get(dim, 1)) for dim, size in enumerate(self.shape(x)))
        bounds = [
            self.ints([0] * len(steps), "starts"),
            self.ints([_INT64_MAX] * len(steps), "ends"),
            self.ints(list(steps), "axes"),
            self.ints(list(steps.values()), "steps"),
        ]
        return self.one("Slice", [x, *bounds], shape, self.dtype(x), hint="picked")

    def reverse(self, x: str, axes: Sequence[int]) -> str:
        """``x`` read backwards along some dims."""
        if not axes:
            return x
        count = len(axes)
        bounds = [
            self.ints([-1] * count, "starts"),
            self.ints([-_INT64_MAX] * count, "ends"),
            self.ints(axes, "axes"),
            self.ints([-1] * count, "steps"),
        ]
        return self.one("Slice", [x, *bounds], self.shape(x), self.dtype(x), hint="reverse")

    def pad(self, x: str, before: Sequence[int], after: Sequence[int], value: float = 0.0) -> str:
        """``x`` with a border, one pair for each dim; negative widths cut off."""
        sizes = self.shape(x)
        starts = [max(0, -width) for width in before]
        ends = [size - max(0, -width) for size, width in zip(sizes, after, strict=True)]
        x = self.slice(x, starts, ends)
        pads = [max(0, width) for width in (*before, *after)]
        if not any(pads):
            return x
        rank = len(sizes)
        shape = tuple(size + pads[dim] + pads[rank + dim] for dim, size in enumerate(self.shape(x)))
        operands = [x, self.ints(pads, "pads")] + ([self.scalar(value, x)] if value else [])
        return self.one("Pad", operands, shape, self.dtype(x))

    # sums ----------------------------------------------------------------------------------------------------------

    def reduce_sum(self, x: str, axes: Sequence[int], *, keepdims: bool = False, hint: str = "") -> str:
        """The sum over some dims, counted from the front."""
        if not axes:
            return x
        axes = sorted(axes)
        kept = tuple(1 if dim in axes else size for dim, size in enumerate(self.shape(x)))
        shape = kept if keepdims else tuple(size for dim, size in enumerate(kept) if dim not in axes)
        if self.shape(x) == kept:
            return x if keepdims else self.squeeze(x, axes)
        operands = [x, self.ints(axes, "axes")]
        return self.one("ReduceSum", operands, shape, self.dtype(x), hint=hint, attributes={"keepdims": int(keepdims)})

    def unbroadcast(self, gradient: str, shape: Shape) -> str:
        """Sum a gradient over the dims along which an operand of this shape was repeated."""
        lead = self.rank(gradient) - len(shape)
        sizes = self.shape(gradient)
        repeated = [lead + dim for dim, size in enumerate(shape) if size == 1 and sizes[lead + dim] != 1]
        summed = self.reduce_sum(gradient, [*range(lead), *repeated], keepdims=not lead)
        return self.reshape(summed, shape)

    def matmul(self, a: str, b: str, hint: str = "") -> str:
        """``numpy.matmul`` of operands of rank 2 or more."""
        *left, rows, inner = self.shape(a)
        *right, inner_b, columns = self.shape(b)
        assert inner == inner_b, f"MatMul of {self.shape(a)} and {self.shape(b)}"
        shape = (*np.broadcast_shapes(tuple(left), tuple(right)), rows, columns)
        return self.one("MatMul", [a, b], shape, self.dtype(a), hint=hint)
