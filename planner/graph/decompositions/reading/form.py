"""The other ops that an operator of ONNX Runtime's is read as, under construction."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import Final

import numpy as np

from planner.errors import ModelError
from planner.graph.core.emitter import Emitter
from planner.graph.core.model import Attribute, Op, Shape, Tensor
from planner.graph.decompositions.registry import Purpose, decomposition

DOMAIN: Final = "com.microsoft"


class FormWriter(Emitter):
    """The ops that stand for an op: names begin with the op's, and ops may leave their shapes to the reader."""

    def __init__(
        self, op: Op, tensors: Mapping[str, Tensor], values: Mapping[str, np.ndarray | None], opset: int
    ) -> None:
        super().__init__(f"{op.name}/", tensors, values, opset)
        self.op = op
        self.weights: dict[str, np.ndarray] = {}
        """Parts of weights."""

    def input(self, slot: int) -> str:
        """The name of an input."""
        if not self.op.has_input(slot):
            raise ModelError(f"its input {slot} is absent")
        return self.op.inputs[slot]

    def sizes(self, slot: int, rank: int | None = None) -> Shape:
        """The shape of an input.

        Raises:
            ModelError: it is absent, or of another rank.
        """
        shape = self.shape(self.input(slot))
        if rank is not None and len(shape) != rank:
            raise ModelError(f"its input {slot} has {len(shape)} dims, not {rank}")
        return shape

    def part(
        self,
        op_type: str,
        inputs: Sequence[str],
        part: str,
        attributes: Mapping[str, Attribute],
        *,
        outputs: Sequence[str] = (),
    ) -> str:
        """An op whose shapes are left to the reader; ONNX Runtime's own if its outputs are those of the form's op."""
        names, domain = tuple(outputs) or (self._name(part),), DOMAIN if outputs else ""
        stated = tuple(sorted(attributes.items()))
        self.ops.append(Op(f"{self.op.name}/{part}", op_type, tuple(inputs), names, stated, domain))
        return names[0]

    def strips(self, slot: int, sizes: Sequence[int], suffix: str) -> list[str]:
        """The parts of queries, keys and values of an input, which lie side by side along its last dim.

        Those of a weight whose value is known are weights themselves.
        """
        name, (*lead, width) = self.input(slot), self.sizes(slot)
        if width != sum(sizes):
            raise ModelError(f"its input {slot} has {width} columns, not {sum(sizes)}")
        shapes, dtype, parts = (
            [(*lead, size) for size in sizes],
            self.dtype(name),
            [f"{part}{suffix}" for part in "qkv"],
        )
        value = self.value(name)
        if value is None:
            operands, kind = (name, self.ints(sizes, f"sizes{suffix}")), {"axis": len(lead)}
            return list(self.emit("Split", operands, shapes, [dtype] * 3, hint=" ".join(parts), attributes=kind))
        strips = [self._name(part) for part in parts]
        for strip, shape, end in zip(strips, shapes, accumulate(sizes), strict=True):
            self.tensors[strip] = Tensor(strip, shape, dtype)
            self.weights[strip] = np.ascontiguousarray(value[..., end - shape[-1] : end])
        return strips


def microsoft_form(
    op: Op, tensors: Mapping[str, Tensor], values: Mapping[str, np.ndarray | None], opset: int, *, is_plan: bool
) -> FormWriter | None:
    """The ops that stand for an op; None where it stays as it is.

    Args:
        op: all of whose inputs are in ``tensors``.
        tensors: by name.
        values: of constants; None where it was not loaded.
        opset: version of the default operator domain.
        is_plan: False: the graph gets a gradient, so that operators that a plan takes whole are written out, too.

    Raises:
        ModelError: the op contradicts its inputs.
        UnsupportedError: a form of the operator that is not taken.
    """
    for purpose in (Purpose.READING,) if is_plan else (Purpose.READING, Purpose.PARTS, Purpose.WHOLE):
        writer, rule = FormWriter(op, tensors, values, opset), decomposition(purpose, op)
        results = None if rule is None else rule.of_foreign(writer, op)
        if results is not None:
            if any(op.outputs[len(results) :]):
                raise ModelError(f"it has {len(op.outputs)} outputs, and the operator {len(results)}")
            writer.ops[:] = writer.standing_for(op, results)
            return writer
    return None
