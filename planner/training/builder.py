"""A graph under construction: ops are emitted one by one, and every tensor has its shape and dtype at once.

Names tell where a tensor comes from: the emitter opens a scope (``relu_3.backward``) and each op of it makes
``SCOPE.HINT``. Ops are pure, so the same op on the same operands is emitted once, and constants are shared by content.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import MappingProxyType
from typing import Final

import numpy as np

from planner.graph.model import Attribute, DType, Graph, Op, Shape, StatePair, Tensor, TensorAttribute
from planner.graph.protos import dtype_of_array, elem_type_of, numpy_dtype
from planner.graph.wellformed import fresh_name

_INT64_MAX: Final = 2**63 - 1
_NO_ATTRIBUTES: Final[Mapping[str, Attribute]] = MappingProxyType({})


class Builder:
    """Emits ops after one another, and gives the graph of those that its outputs need.

    Args:
        source: what inputs, constants and names are taken from. Its ops are not: see ``replay``.
    """

    def __init__(self, source: Graph) -> None:
        self._source = source
        self.tensors: dict[str, Tensor] = {name: source.tensors[name] for name in (*source.inputs, *source.constants)}
        self.constants: dict[str, np.ndarray | None] = dict(source.constants)
        self.folded: set[str] = set(source.folded)
        self._taken: set[str] = set(source.tensors)
        self._op_names: set[str] = {op.name for op in source.ops}
        self._ops: list[Op] = []
        self._own: set[str] = set()
        self._final: dict[str, str] = {}
        self._memo: dict[tuple[object, ...], tuple[str, ...]] = {}
        self._shared: dict[tuple[str, Shape, bytes], str] = {}
        self._producer: dict[str, Op] = {}
        self._scope = ""

    # names ---------------------------------------------------------------------------------------------------------

    @contextmanager
    def scope(self, name: str) -> Iterator[None]:
        """Everything emitted inside is named ``name.HINT``."""
        before, self._scope = self._scope, name
        try:
            yield
        finally:
            self._scope = before

    def rename(self, name: str, wanted: str) -> str:
        """Give an emitted tensor the name that it has in the finished graph; only the first call for a tensor counts.

        Returns:
            The name in the finished graph. Until then the tensor goes on under the old one.
        """
        if name in self._own and name not in self._final:
            self._final[name] = self.reserve(wanted)
        return self._final.get(name, name)

    def reserve(self, wanted: str) -> str:
        """A name that no tensor has."""
        name = fresh_name(wanted, self._taken)
        self._taken.add(name)
        return name

    # tensors -------------------------------------------------------------------------------------------------------

    def shape(self, name: str) -> Shape:
        """The sizes of a tensor."""
        return self.tensors[name].shape

    def rank(self, name: str) -> int:
        """The number of dims of a tensor."""
        return len(self.tensors[name].shape)

    def dtype(self, name: str) -> DType:
        """The element type of a tensor."""
        return self.tensors[name].dtype

    def value(self, name: str) -> np.ndarray | None:
        """The value of a constant, if it is known."""
        return self.constants.get(name)

    def declare(self, wanted: str, shape: Shape, dtype: DType) -> str:
        """A new tensor that no emitted op makes: an input, or an output of an op that is replayed."""
        name = self.reserve(wanted)
        self.tensors[name] = Tensor(name, shape, dtype)
        return name

    def take(self, name: str) -> None:
        """A constant becomes an input: from here on its value is not known."""
        self.constants.pop(name)
        self.folded.discard(name)

    # constants -----------------------------------------------------------------------------------------------------

    def constant(self, array: np.ndarray, hint: str) -> str:
        """A constant with this value; one tensor for equal values."""
        key = (str(array.dtype), array.shape, array.tobytes())
        if key not in self._shared:
            name = self.reserve(hint)
            array = np.ascontiguousarray(array).reshape(array.shape)
            array.flags.writeable = False
            self.tensors[name] = Tensor(name, array.shape, dtype_of_array(array))
            self.constants[name] = array
            self.folded.add(name)
            self._shared[key] = name
        return self._shared[key]

    def scalar(self, value: float, like: str) -> str:
        """A rank-0 constant of the dtype of tensor ``like``."""
        array = np.array(value, numpy_dtype(self.dtype(like)))
        return self.constant(array, f"constant.{value:g}")

    def ints(self, values: Sequence[int], hint: str = "ints") -> str:
        """A rank-1 int64 constant: axes, a shape, bounds."""
        shown = "x".join(str(value) for value in values) if len(values) <= 8 else str(len(values))
        return self.constant(np.array(values, np.int64), f"{hint}.{shown}" if values else hint)

    # ops -----------------------------------------------------------------------------------------------------------

    def emit(
        self,
        op_type: str,
        inputs: Sequence[str],
        shapes: Sequence[Shape],
        dtypes: Sequence[DType],
        *,
        hint: str = "",
        attributes: Mapping[str, Attribute] = _NO_ATTRIBUTES,
    ) -> tuple[str, ...]:
        """Emit an op, or hand back the outputs of an equal one.

        Args:
            op_type: an operator of the default domain.
            inputs: by position; "" where an optional one is absent.
            shapes: of the outputs.
            dtypes: of the outputs.
            hint: last part of the outputs' names; the operator's name if "".
            attributes: of the op.

        Returns:
            The names of the outputs.
        """
        stated = tuple(sorted(attributes.items(), key=lambda item: item[0]))
        key = (op_type, tuple(inputs), stated)
        if key in self._memo:
            return self._memo[key]
        stem = f"{self._scope}.{hint or op_type.lower()}" if self._scope else hint or op_type.lower()
        names = tuple(self.reserve(stem) for _ in shapes)
        for name, shape, dtype in zip(names, shapes, dtypes, strict=True):
            self.tensors[name] = Tensor(name, tuple(shape), dtype)
        self._own.update(names)
        # Its name is settled with its output's, in ``finish``.
        self._append(Op("", op_type, tuple(inputs), names, stated))
        self._memo[key] = names
        return names

    def _append(self, op: Op) -> None:
        self._ops.append(op)
        for name in op.outputs:
            if name:
                self._producer[name] = op

    def replay(self, op: Op) -> None:
        """Take over an op of the source, with its names."""
        for name in op.outputs:
            if name:
                self.tensors[name] = self._source.tensors.get(name) or self.tensors[name]
        self._append(op)

    def define(self, output: str, made: str) -> None:
        """A tensor of the source is made by an emitted op.

        Raises:
            AssertionError: the tensor that was made has another shape or dtype, or is no fresh one.
        """
        expected = self._source.tensors[output]
        actual = self.tensors[made]
        assert (actual.shape, actual.dtype) == (expected.shape, expected.dtype), f"{output} is {expected}, not {actual}"
        if made in self._own and made not in self._final:
            self._final[made] = output
        else:
            self._append(Op("", "Identity", (made,), (output,)))
        self.tensors[output] = expected

    def one(
        self,
        op_type: str,
        inputs: Sequence[str],
        shape: Shape,
        dtype: DType,
        *,
        hint: str = "",
        attributes: Mapping[str, Attribute] = _NO_ATTRIBUTES,
    ) -> str:
        """``emit`` for an op with one output."""
        return self.emit(op_type, inputs, [shape], [dtype], hint=hint, attributes=attributes)[0]

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
        return tuple(np.broadcast_shapes(*(self.shape(name) for name in names)))

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

    # the graph -----------------------------------------------------------------------------------------------------

    def finish(
        self,
        *,
        inputs: Sequence[str],
        outputs: Sequence[str],
        state: Sequence[StatePair],
        initial: Mapping[str, np.ndarray | None],
        opset: int,
        notes: Mapping[str, str],
    ) -> Graph:
        """The graph of the ops that lead to the outputs.

        Args:
            inputs: names, those of states included.
            outputs: names as ``rename`` and ``define`` settled them.
            state: pairs of such names.
            initial: values of inputs before the first step.
            opset: version of the default domain.
            notes: metadata.
        """
        wanted = set(outputs)
        live: list[Op] = []
        for op in reversed([self._settled(op) for op in self._ops]):
            if any(name in wanted for name in op.outputs if name):
                wanted.update(name for name in op.inputs if name)
                live.append(op)
        live.reverse()
        ops = tuple(self._named(op) for op in live)
        final = {self._final.get(name, name): tensor for name, tensor in self.tensors.items()}
        names = dict.fromkeys([*inputs, *(name for op in ops for name in (*op.inputs, *op.outputs) if name)])
        constants = {name: value for name, value in self.constants.items() if name in names}
        return Graph(
            name=self._source.name,
            tensors={name: Tensor(name, final[name].shape, final[name].dtype) for name in names},
            ops=ops,
            inputs=tuple(inputs),
            outputs=tuple(outputs),
            constants=constants,
            folded=frozenset(self.folded & constants.keys()),
            initial=dict(initial),
            state=tuple(state),
            opset=opset,
            notes=dict(notes),
        )

    def _settled(self, op: Op) -> Op:
        names = self._final
        return Op(
            op.name,
            op.op_type,
            tuple(names.get(name, name) for name in op.inputs),
            tuple(names.get(name, name) for name in op.outputs),
            op.attributes,
            op.domain,
        )

    def _named(self, op: Op) -> Op:
        if op.name:
            return op
        name = fresh_name(f"{op.op_type}.{next(filter(None, op.outputs))}", self._op_names)
        self._op_names.add(name)
        return Op(name, op.op_type, op.inputs, op.outputs, op.attributes, op.domain)
