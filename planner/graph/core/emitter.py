"""Ops under construction: each method of an emitter emits one operator, with the shape and dtype that it makes.

Ops that would do nothing (a Reshape to the same shape, a sum over no dims) are not emitted. An ``Emitter`` has names in
one scope, for a body of standard operators. A ``Builder`` is one of a whole graph, in which equal ops are one op. A
form can be emitted by either.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any, Final

import numpy as np

from planner.errors import ModelError
from planner.graph.core.attributes import integers, refuse
from planner.graph.core.dependence import live_ops
from planner.graph.core.model import ELEM_TYPES, Attribute, DType, Op, Shape, Tensor, TensorAttribute, dtype_of_array

NO_ATTRIBUTES: Final[Mapping[str, Attribute]] = MappingProxyType({})
_INT64_MAX: Final = 2**63 - 1
_AXES_ARE_INPUTS, _AXES_OF_SUMS_ARE_INPUTS = 18, 13
"""From this opset on every Reduce operator takes its axes as an input; ReduceSum from the second on."""


class Emitter:
    """Emits ops by operator. Dims count from the front throughout; a ``hint`` is the last part of a result's name.

    Names are ``prefix + hint``, numbered from the second of a hint on: they depend on nothing outside of the scope.

    Args:
        prefix: begins every name.
        graph_tensors: tensors of the graph that may be read.
        values: of the graph's constants.
        opset: version of the default operator domain.
        workers: how many a plan is for; 1 where it is not known.
        block: channels that lie together in what the device's convolutions read fastest; 0 if none do.
    """

    def __init__(
        self,
        prefix: str,
        graph_tensors: Mapping[str, Tensor],
        values: Mapping[str, np.ndarray | None],
        opset: int,
        *,
        workers: int = 1,
        block: int = 0,
    ) -> None:
        self.prefix = prefix
        self.opset = opset
        self.workers = workers
        self.block = block
        self.tensors: dict[str, Tensor] = {}
        """What is new."""
        self.constants: dict[str, Any] = {}
        """Arrays; in a ``Builder`` None, too, of constants whose values were not loaded."""
        self.ops: list[Op] = []
        self._graph_tensors = graph_tensors
        self._values = values

    # what is there -------------------------------------------------------------------------------------------------

    def tensor(self, name: str) -> Tensor:
        """A tensor that was there or is new."""
        return self.tensors[name] if name in self.tensors else self._graph_tensors[name]

    def value(self, name: str) -> np.ndarray | None:
        """The value of a constant; None if the tensor is none, or its value was not loaded."""
        value: np.ndarray | None = self.constants[name] if name in self.constants else self._values.get(name)
        return value

    def known(self, op: Op, slot: int, role: str) -> np.ndarray:
        """The value of an operand, in one dim.

        Args:
            op: which reads it.
            slot: its place among the inputs.
            role: its name in an error.

        Raises:
            UnsupportedError: it is absent, or not known.
        """
        value = self.value(op.inputs[slot]) if op.has_input(slot) else None
        if value is None:
            raise refuse(op, f"its {role} must be a known constant")
        return value.reshape(-1)

    def is_fixed(self, name: str, number: float) -> bool:
        """Whether a tensor is known to hold this number alone, whatever weights the model is given."""
        return False

    def shape(self, name: str) -> Shape:
        """The sizes of a tensor."""
        return self.tensor(name).shape

    def rank(self, name: str) -> int:
        """The number of dims of a tensor."""
        return len(self.tensor(name).shape)

    def dtype(self, name: str) -> DType:
        """The element type of a tensor."""
        return self.tensor(name).dtype

    def made_by(self, name: str, *op_types: str) -> Op | None:
        """The op of these types that makes a tensor (``Graph.made_by``), if new ops may join it; None if not."""
        return None

    # what is new ---------------------------------------------------------------------------------------------------

    def constant(self, array: np.ndarray, hint: str) -> str:
        """A constant with this value."""
        name = self._name(hint)
        array = np.ascontiguousarray(array).reshape(array.shape)
        array.flags.writeable = False
        self.tensors[name] = Tensor(name, array.shape, dtype_of_array(array))
        self.constants[name] = array
        return name

    def emit(
        self,
        op_type: str,
        inputs: Sequence[str],
        shapes: Sequence[Shape],
        dtypes: Sequence[DType],
        *,
        hint: str = "",
        attributes: Mapping[str, Attribute] = NO_ATTRIBUTES,
        domain: str = "",
    ) -> tuple[str, ...]:
        """Emits an op.

        Args:
            op_type: the operator.
            inputs: by position; "" where an optional one is absent.
            shapes: of the outputs.
            dtypes: of the outputs.
            hint: last part of the outputs' names, or one for each with blanks between; the operator's name if "".
            attributes: of the op.
            domain: of the operator; "" is ONNX's default one.

        Returns:
            The names of the outputs.
        """
        stated = tuple(sorted(attributes.items(), key=lambda item: item[0]))
        stem = hint or op_type.lower()
        hints = stem.split() if len(stem.split()) == len(shapes) else [stem] * len(shapes)
        return self._emitted(Op("", op_type, tuple(inputs), (), stated, domain), shapes, dtypes, hints)

    def _emitted(
        self, op: Op, shapes: Sequence[Shape], dtypes: Sequence[DType], hints: Sequence[str]
    ) -> tuple[str, ...]:
        """Emits an op that has neither name nor outputs yet; its name is its first output's."""
        names = []
        for hint, shape, dtype in zip(hints, shapes, dtypes, strict=True):
            names.append(self._name(hint))
            self.tensors[names[-1]] = Tensor(names[-1], tuple(shape), dtype)
        self.ops.append(replace(op, name=names[0], outputs=tuple(names)))
        return tuple(names)

    def standing_for(self, op: Op, results: Sequence[str]) -> tuple[Op, ...]:
        """The emitted ops that an op's outputs need, the last ones under the names of the outputs.

        Args:
            op: which they stand for.
            results: an emitted tensor for each output, in order; those of outputs that are absent do not matter.
        """
        outputs = {name: output for name, output in zip(results, op.outputs, strict=False) if output}
        return tuple(body_op.renamed(outputs) for body_op in live_ops(self.ops, outputs))

    def part_of(self, hint: str, part: str) -> str:
        """The name of a constant that belongs to an op of this hint: a shape, axes."""
        return f"{hint}.{part}" if hint else part

    def _name(self, hint: str) -> str:
        name, number = f"{self.prefix}{hint}", 2
        while name in self.tensors or name in self._graph_tensors:
            name, number = f"{self.prefix}{hint}.{number}", number + 1
        return name

    def one(
        self,
        op_type: str,
        inputs: Sequence[str],
        shape: Shape,
        dtype: DType,
        *,
        hint: str = "",
        attributes: Mapping[str, Attribute] = NO_ATTRIBUTES,
    ) -> str:
        """``emit`` for an op with one output."""
        return self.emit(op_type, inputs, [shape], [dtype], hint=hint, attributes=attributes)[0]

    def scalar(self, value: float, template: str | DType, hint: str = "") -> str:
        """A rank-0 constant of a dtype, or of that of a tensor."""
        dtype = template if isinstance(template, DType) else self.dtype(template)
        return self.constant(np.array(value, dtype.array_dtype), hint or f"constant.{value:g}")

    def ints(self, values: Sequence[int], hint: str) -> str:
        """A rank-1 int64 constant: axes, a shape, bounds."""
        return self.constant(np.array(values, np.int64).reshape(len(values)), hint)

    # element-wise --------------------------------------------------------------------------------------------------

    def each(self, op_type: str, hint: str, *inputs: str, dtype: DType | None = None) -> str:
        """An element-wise op of operands that broadcast; of the last one's dtype if none is given.

        Raises:
            ModelError: they do not, as the operands of a foreign op may, whose shapes nobody has checked.
        """
        shapes = [self.shape(name) for name in inputs]
        try:
            shape = np.broadcast_shapes(*shapes)
        except ValueError:
            facts = tuple(f"{name!r}: {list(shape)}" for name, shape in zip(inputs, shapes, strict=True))
            raise ModelError("operands do not stretch to each other", facts=facts) from None
        dtype = dtype or self.dtype(inputs[-1])
        inputs = self._unrepeated(inputs, shape)
        return self.one(op_type, inputs, tuple(shape), dtype, hint=hint)

    def _unrepeated(self, inputs: Sequence[str], shape: Sequence[int]) -> tuple[str, ...]:
        """The operands, without an Expand where another one has the shape anyway: it is a pass over memory."""
        operands = list(inputs)
        for position, name in enumerate(inputs):
            source = self.before_expand(name)
            shapes = (self.shape(operand) for operand in (*operands[:position], *operands[position + 1 :], source))
            if source != name and np.broadcast_shapes(*shapes) == tuple(shape):
                operands[position] = source
        return tuple(operands)

    def before_expand(self, name: str) -> str:
        """The tensor of the same rank that an Expand repeats to this one; else itself."""
        op = self.made_by(name, "Expand")
        return name if op is None or self.rank(op.inputs[0]) != self.rank(name) else op.inputs[0]

    def unary(self, op_type: str, x: str, hint: str = "") -> str:
        """An element-wise op of one operand: Neg, Exp, Sqrt ..."""
        return self.each(op_type, hint, x)

    def binary(self, op_type: str, a: str, b: str, hint: str = "") -> str:
        """An element-wise op of two operands, broadcast: Add, Sub, Mul, Div, Pow."""
        return self.each(op_type, hint, a, b, dtype=self.dtype(a))

    def compare(self, op_type: str, a: str, b: str, hint: str = "mask") -> str:
        """A comparison, broadcast; makes booleans."""
        return self.each(op_type, hint, a, b, dtype=DType.BOOL)

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
        return self.each("Where", hint, condition, a, b, dtype=self.dtype(a))

    def cast(self, x: str, dtype: DType, hint: str = "") -> str:
        """``x`` in another dtype; ``x`` itself where it has it."""
        if self.dtype(x) is dtype:
            return x
        return self.one("Cast", [x], self.shape(x), dtype, hint=hint, attributes={"to": ELEM_TYPES[dtype]})

    # layout --------------------------------------------------------------------------------------------------------

    def reshape(self, x: str, shape: Sequence[int], hint: str = "") -> str:
        """``x`` in another shape of as many elements."""
        if self.shape(x) == tuple(shape):
            return x
        stated = self.ints(shape, self.part_of(hint, "shape"))
        return self.one("Reshape", [x, stated], tuple(shape), self.dtype(x), hint=hint)

    def transpose(self, x: str, perm: Sequence[int], hint: str = "") -> str:
        """``x`` with its dims in another order; a Transpose of a Transpose becomes one, or none."""
        if (inner := self.made_by(x, "Transpose")) is not None:
            turn = integers(inner, "perm", tuple(reversed(range(self.rank(x)))))
            x, perm = inner.inputs[0], [turn[dim] for dim in perm]
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

    def expand(self, x: str, shape: Shape) -> str:
        """``x`` repeated to a shape."""
        if self.shape(x) == tuple(shape):
            return x
        return self.one("Expand", [x, self.ints(shape, "shape")], tuple(shape), self.dtype(x))

    def zeros(self, shape: Shape, template: str) -> str:
        """Zeros of the dtype of tensor ``template``."""
        value = TensorAttribute(np.zeros(1, self.dtype(template).array_dtype))
        return self.one(
            "ConstantOfShape",
            [self.ints(shape, "shape")],
            shape,
            self.dtype(template),
            hint="zeros",
            attributes={"value": value},
        )

    def concat(self, parts: Sequence[str], axis: int, hint: str = "") -> str:
        """Tensors one after the other along a dim."""
        if len(parts) == 1:
            return parts[0]
        sizes = list(self.shape(parts[0]))
        sizes[axis] = sum(self.shape(part)[axis] for part in parts)
        return self.one("Concat", parts, tuple(sizes), self.dtype(parts[0]), hint=hint, attributes={"axis": axis})

    def split(self, x: str, sizes: Sequence[int], axis: int) -> tuple[str, ...]:
        """Parts of ``x`` of these sizes, one after the other along a dim."""
        if len(sizes) == 1:
            return (x,)
        shape = self.shape(x)
        shapes = [(*shape[:axis], size, *shape[axis + 1 :]) for size in sizes]
        dtypes = [self.dtype(x)] * len(sizes)
        return self.emit("Split", [x, self.ints(sizes, "sizes")], shapes, dtypes, attributes={"axis": axis})

    def slice(self, x: str, starts: Sequence[int], ends: Sequence[int]) -> str:
        """The box ``[starts, ends)`` of ``x``, one pair for each dim; dims that stay whole are left out of the op."""
        sizes = self.shape(x)
        cut = [dim for dim, size in enumerate(sizes) if (starts[dim], ends[dim]) != (0, size)]
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
        """Of ``x`` every so-manieth element along some dims, from the first; dims that stay whole are left out."""
        steps = {dim: step for dim, step in steps.items() if step != 1}
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

    def reduce(self, op_type: str, x: str, axes: Sequence[int], hint: str = "", *, keepdims: bool = True) -> str:
        """A reduction over dims; over none it is the identity."""
        before = self.shape(x)
        keepdims_shape = tuple(1 if dim in axes else size for dim, size in enumerate(before))
        shape = keepdims_shape if keepdims else tuple(size for dim, size in enumerate(before) if dim not in axes)
        attributes: dict[str, Attribute] = {"keepdims": int(keepdims)}
        inputs = [x]
        if self.opset >= (_AXES_OF_SUMS_ARE_INPUTS if op_type == "ReduceSum" else _AXES_ARE_INPUTS):
            inputs.append(self.ints(axes, self.part_of(hint, "axes")))
        else:
            attributes["axes"] = tuple(axes)
        return self.one(op_type, inputs, shape, self.dtype(x), hint=hint, attributes=attributes)

    def reduce_sum(self, x: str, axes: Sequence[int], *, keepdims: bool = False, hint: str = "") -> str:
        """The sum over some dims, counted from the front."""
        if not axes:
            return x
        if all(self.shape(x)[axis] == 1 for axis in axes):
            return x if keepdims else self.squeeze(x, axes)
        return self.reduce("ReduceSum", x, sorted(axes), hint, keepdims=keepdims)

    def unbroadcast(self, gradient: str, shape: Shape) -> str:
        """Sum a gradient over the dims along which an operand of this shape was repeated."""
        lead = self.rank(gradient) - len(shape)
        sizes = self.shape(gradient)
        repeated = [lead + dim for dim, size in enumerate(shape) if size == 1 and sizes[lead + dim] != 1]
        summed = self.reduce_sum(gradient, [*range(lead), *repeated], keepdims=not lead)
        return self.reshape(summed, shape)

    def matmul(self, a: str, b: str, hint: str = "") -> str:
        """``numpy.matmul`` of operands of rank 2 or more."""
        *batch_a, rows, inner = self.shape(a)
        *batch_b, inner_b, columns = self.shape(b)
        assert inner == inner_b, f"MatMul of {self.shape(a)} and {self.shape(b)}"
        shape = (*np.broadcast_shapes(tuple(batch_a), tuple(batch_b)), rows, columns)
        return self.one("MatMul", [a, b], shape, self.dtype(a), hint=hint)


def free_prefix(wanted: str, names: Sequence[str]) -> str:
    """``wanted``, or that with a number before its last letter, so that no name begins with it.

    Args:
        wanted: what the prefix should be.
        names: sorted.
    """
    prefix, number = wanted, 2
    while _begins_a_name(prefix, names):
        prefix = f"{wanted[:-1]}.{number}{wanted[-1]}"
        number += 1
    return prefix


def _begins_a_name(prefix: str, names: Sequence[str]) -> bool:
    position = bisect_left(names, prefix)
    return position < len(names) and names[position].startswith(prefix)
