"""New ops with names in one scope: what graph passes write bodies of standard operators with."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from math import prod

import numpy as np

from planner.errors import ModelError
from planner.graph.model import Attribute, DType, Op, Shape, Tensor

_DTYPES: Mapping[str, DType] = {dtype.value: dtype for dtype in DType}
ELEM_TYPES: Mapping[DType, int] = {
    DType.FLOAT32: 1, DType.UINT8: 2, DType.INT8: 3, DType.UINT16: 4, DType.INT16: 5, DType.INT32: 6, DType.INT64: 7,
    DType.BOOL: 9, DType.FLOAT16: 10, DType.FLOAT64: 11, DType.UINT32: 12, DType.UINT64: 13, DType.BFLOAT16: 16,
    DType.FLOAT8E4M3FN: 17, DType.FLOAT8E4M3FNUZ: 18, DType.FLOAT8E5M2: 19, DType.FLOAT8E5M2FNUZ: 20, DType.UINT4: 21,
    DType.INT4: 22, DType.FLOAT8E8M0: 24, DType.UINT2: 25, DType.INT2: 26,
}  # fmt: skip
"""What Cast's ``to`` calls each dtype (``TensorProto.DataType``), for those who do without the onnx package."""
_AXES_ARE_INPUTS, _AXES_OF_SUMS_ARE_INPUTS = 18, 13
"""From this opset on every Reduce operator takes its axes as an input; ReduceSum from the second on."""


class Emitter:
    """Ops, tensors and constants under construction.

    Names are ``prefix + part``, so that they depend on the scope alone and not on what else was emitted.

    Args:
        prefix: begins every name; no tensor and no op of the graph begins with it.
        known: tensors of the graph that may be read.
        values: of the graph's constants.
        opset: version of the default operator domain.
        workers: how many a plan is for; 1 where it is not known.
    """

    def __init__(
        self,
        prefix: str,
        known: Mapping[str, Tensor],
        values: Mapping[str, np.ndarray | None],
        opset: int,
        *,
        workers: int = 1,
    ) -> None:
        self.prefix = prefix
        self.opset = opset
        self.workers = workers
        self.tensors: dict[str, Tensor] = {}
        """What is new."""
        self.constants: dict[str, np.ndarray] = {}
        self.ops: list[Op] = []
        self._known = known
        self._values = values

    # tensors -------------------------------------------------------------------------------------------------------

    def tensor(self, name: str) -> Tensor:
        """A tensor of the graph or a new one."""
        return self.tensors[name] if name in self.tensors else self._known[name]

    def shape(self, name: str) -> Shape:
        """Sizes of a tensor."""
        return self.tensor(name).shape

    def rank(self, name: str) -> int:
        """Number of dims of a tensor."""
        return len(self.tensor(name).shape)

    def dtype(self, name: str) -> DType:
        """Element type of a tensor."""
        return self.tensor(name).dtype

    def value(self, name: str) -> np.ndarray | None:
        """The value of a constant; None if the tensor is none, or was not loaded."""
        return self.constants[name] if name in self.constants else self._values.get(name)

    def constant(self, array: np.ndarray, part: str) -> str:
        """A new constant."""
        name = self._name(part)
        array = np.ascontiguousarray(array).reshape(array.shape)
        array.flags.writeable = False
        self.tensors[name] = Tensor(name, array.shape, _DTYPES[array.dtype.name])
        self.constants[name] = array
        return name

    def scalar(self, value: float, dtype: DType, part: str) -> str:
        """A constant of rank 0."""
        return self.constant(np.array(value, dtype.array_dtype), part)

    def ints(self, values: Sequence[int], part: str) -> str:
        """A constant of rank 1: axes, a shape."""
        return self.constant(np.array(values, np.int64).reshape(len(values)), part)

    # ops -----------------------------------------------------------------------------------------------------------

    def emit(
        self,
        op_type: str,
        inputs: Sequence[str],
        part: str,
        shape: Shape,
        dtype: DType,
        attributes: Mapping[str, Attribute] | None = None,
    ) -> str:
        """An op of one output, which has the op's name."""
        (name,) = self.emit_all(op_type, inputs, (part,), shape, (dtype,), attributes)
        return name

    def emit_all(
        self,
        op_type: str,
        inputs: Sequence[str],
        parts: Sequence[str],
        shape: Shape,
        dtypes: Sequence[DType],
        attributes: Mapping[str, Attribute] | None = None,
    ) -> tuple[str, ...]:
        """An op of outputs of one shape; it has the first one's name."""
        names = tuple(map(self._name, parts))
        for name, dtype in zip(names, dtypes, strict=True):
            self.tensors[name] = Tensor(name, tuple(shape), dtype)
        stated = tuple(sorted((attributes or {}).items(), key=lambda item: item[0]))
        self.ops.append(Op(names[0], op_type, tuple(inputs), names, stated))
        return names

    def each(self, op_type: str, part: str, *inputs: str, dtype: DType | None = None) -> str:
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
        return self.emit(op_type, inputs, part, shape, dtype or self.dtype(inputs[-1]))

    def reduce(self, op_type: str, x: str, axes: Sequence[int], part: str, *, keepdims: bool = True) -> str:
        """A reduction over dims; over none it is the identity."""
        before = self.shape(x)
        kept = tuple(1 if dim in axes else size for dim, size in enumerate(before))
        shape = kept if keepdims else tuple(size for dim, size in enumerate(before) if dim not in axes)
        attributes: dict[str, Attribute] = {"keepdims": int(keepdims)}
        inputs = [x]
        if self.opset >= (_AXES_OF_SUMS_ARE_INPUTS if op_type == "ReduceSum" else _AXES_ARE_INPUTS):
            inputs.append(self.ints(axes, f"{part}.axes"))
        else:
            attributes["axes"] = tuple(axes)
        return self.emit(op_type, inputs, part, shape, self.dtype(x), attributes)

    def reshape(self, x: str, shape: Sequence[int], part: str) -> str:
        """The same elements in another shape; the tensor itself if it has that one."""
        assert prod(shape) == prod(self.shape(x)), f"{self.shape(x)} cannot become {shape}"
        if tuple(shape) == self.shape(x):
            return x
        return self.emit("Reshape", (x, self.ints(shape, f"{part}.shape")), part, tuple(shape), self.dtype(x))

    def cast(self, x: str, dtype: DType, part: str) -> str:
        """The same numbers in another dtype; the tensor itself if it has that one."""
        if self.dtype(x) is dtype:
            return x
        return self.emit("Cast", (x,), part, self.shape(x), dtype, {"to": ELEM_TYPES[dtype]})

    def standing_for(self, op: Op, made: Sequence[str]) -> tuple[Op, ...]:
        """The emitted ops that an op's outputs need, the last ones under the names of the outputs.

        Args:
            op: which they stand for.
            made: an emitted tensor for each output, in order; those of outputs that are absent do not matter.
        """
        outputs = {name: output for name, output in zip(made, op.outputs, strict=False) if output}
        wanted, live = set(outputs), list[Op]()
        for one in reversed(self.ops):
            if not wanted.isdisjoint(one.outputs):
                wanted.update(one.inputs)
                live.append(one.renamed(outputs))
        return tuple(reversed(live))

    def _name(self, part: str) -> str:
        name = f"{self.prefix}{part}"
        assert name not in self.tensors, f"{name} is emitted twice"
        return name


def free_prefix(wanted: str, taken: Sequence[str]) -> str:
    """``wanted``, or that with a number before its last letter, so that no name begins with it.

    Args:
        wanted: what the prefix should be.
        taken: names, sorted.
    """
    prefix, number = wanted, 2
    while _begins_a_name(prefix, taken):
        prefix = f"{wanted[:-1]}.{number}{wanted[-1]}"
        number += 1
    return prefix


def _begins_a_name(prefix: str, taken: Sequence[str]) -> bool:
    position = bisect_left(taken, prefix)
    return position < len(taken) and taken[position].startswith(prefix)
