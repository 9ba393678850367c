"""The dim of logits in which the classes lie, read off the ops that make them.

A file does not say which dim that is, and where two dims are of equal size a wrong one fails nowhere: it is another
loss. So logits of rank 3 or more are followed back, dim by dim, to the layer that makes them: a product with a weight
has its classes along the weight's own dim (the last, of ``x @ W``), a convolution in dim 1, a softmax along its axis.
What cannot be followed is refused, with the commands that say it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import Final, TypeAlias

from planner.errors import UsageError
from planner.graph.core.attributes import axis_of, integer, integers, label, text
from planner.graph.core.dependence import computed_from
from planner.graph.core.model import Graph, Op, Shape
from planner.graph.core.traits import CONVOLUTIONS, RESHAPES
from planner.training.batch.rules import ELEMENTWISE

_Places: TypeAlias = tuple[int | None, ...]
"""Of each dim of a tensor, the dim of the output in which it lies; None where it lies in none by itself."""

_SAME_DIMS: Final = frozenset(
    {"AveragePool", "BatchNormalization", "Concat", "CumSum", "Expand", "GlobalAveragePool", "GlobalLpPool", "LRN"}
    | {"GlobalMaxPool", "GroupNormalization", "InstanceNormalization", "LayerNormalization", "LpNormalization"}
    | {"LpPool", "MaxPool", "Pad", "RMSNormalization", "Resize", "Slice", "GatherElements"}
)
"""Operators whose output has the dims of their first operand, some of other sizes; of Concat, of all operands."""


def class_axis(forward: Graph, output: str, *, stated: int | None = None, command: str = "tofu grad MODEL") -> int:
    """The dim of an output in which the classes lie, counted from the front.

    Args:
        forward: the model, as the file has it.
        output: logits or log-probabilities.
        stated: the dim as the user says it; negative from the end.
        command: how the command begins that a refusal prints.

    Raises:
        UsageError: the output has no such dim; or it is of rank 3 or more, and its ops do not tell.
    """
    shape = forward.tensors[output].shape
    if stated is not None:
        if not -len(shape) <= stated < len(shape):
            raise UsageError(
                f"--class-axis {stated}: output {output!r} is {list(shape)}, and has no such dim",
                hint=f"its dims are 0 to {len(shape) - 1}, or -{len(shape)} to -1 from the end" if shape else "",
            )
        return stated % len(shape)
    if len(shape) <= 2:
        return 1
    walk = _Walk(forward)
    dims = walk.classes(output)
    if len(dims) == 1:
        return dims[0]
    if dims:
        why = f"what it is made of has them in dim {' and in dim '.join(map(str, dims))}"
    else:
        why = walk.obstacles[0] if walk.obstacles else "no product with a weight and no convolution makes it"
    raise UsageError(
        f"which dim of output {output!r} {list(shape)} holds the classes cannot be told: {why}",
        facts=tuple(f"{command} --class-axis {axis}: {_meaning(shape, axis)}" for axis in (len(shape) - 1, 1)),
        hint="say it with one of these two: the last dim, as language models have it, or dim 1, as networks for images",
    )


def _meaning(shape: Shape, axis: int) -> str:
    return f"{shape[axis]} classes, labels {[*shape[:axis], *shape[axis + 1 :]]}"


class _Walk:
    """Follows an output back to what makes its classes."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.obstacles: list[str] = []
        """Ops and tensors at which the walk ended without a dim of classes, in words."""

    @cached_property
    def _data(self) -> frozenset[str]:
        """Tensors that depend on an input."""
        return computed_from(self.graph, self.graph.inputs)

    def _shape(self, name: str) -> Shape:
        return self.graph.tensors[name].shape

    def classes(self, output: str) -> list[int]:
        """The dims of the output that hold the classes, by all that it is made of."""
        dims: set[int] = set()
        # A tensor is looked at once for each arrangement of the output's dims in it.
        start = (output, tuple(range(len(self._shape(output)))))
        seen: set[tuple[str, _Places]] = {start}
        pending: list[tuple[str, _Places]] = [start]
        while pending:
            name, places = pending.pop()
            op = self.graph.producer.get(name)
            if op is None:
                kind = "an input" if name in self.graph.inputs else "a constant"
                self.obstacles.append(f"{name!r} is {kind} of the model")
                continue
            dim = None if op.domain else self._made_in(op)
            if dim is not None:
                place = places[dim]
                if place is None:
                    self.obstacles.append(f"the dim of classes that {label(op)} makes is merged with others, or torn")
                else:
                    dims.add(place)
                continue
            following = [] if op.domain else self._before(op, name, places)
            if not following:
                self.obstacles.append(f"{label(op)} makes it")
            for step in following:
                if step not in seen:
                    seen.add(step)
                    pending.append(step)
        return sorted(dims)

    def _made_in(self, op: Op) -> int | None:
        """The dim of an op's output in which the op makes classes; None where it makes none."""
        rank = len(self._shape(op.outputs[0]))
        if op.op_type in ("LogSoftmax", "Softmax"):
            return axis_of(op, rank, -1)
        if op.op_type in CONVOLUTIONS or op.op_type == "DeformConv":
            return 1
        weights = [position for position, name in enumerate(op.inputs[:2]) if name and name not in self._data]
        if len(weights) != 1:
            return None
        if op.op_type == "Gemm":
            return weights[0]
        if op.op_type == "Einsum":
            return self._of_einsum(op, weights[0])
        if op.op_type != "MatMul" or len(self._shape(op.inputs[weights[0]])) < 2:
            return None
        # The rows of W @ x; dim -1 of it is a dim of data, or none where x is a vector.
        is_left = weights[0] == 0
        return rank - 1 if not is_left or len(self._shape(op.inputs[1])) == 1 else rank - 2

    def _of_einsum(self, op: Op, weight: int) -> int | None:
        """The only letter of the result that the weight alone has."""
        terms, _, result = text(op, "equation", "").replace(" ", "").partition("->")
        operands = terms.split(",")
        if len(operands) != 2 or "." in terms or not result:
            return None
        letters = [letter for letter in result if letter in operands[weight] and letter not in operands[1 - weight]]
        return result.index(letters[0]) if len(letters) == 1 else None

    def _before(self, op: Op, name: str, places: _Places) -> list[tuple[str, _Places]]:
        """What a tensor is made of, and where the dims of that lie; [] where that is not known."""
        shape = self._shape(name)
        first = op.inputs[0] if op.inputs and op.inputs[0] in self._data else ""
        if op.op_type in ELEMENTWISE or op.op_type == "Concat":
            return self._broadcast(op, shape, places)
        if not first:
            return []
        before = self._shape(first)
        if op.op_type in _SAME_DIMS or op.op_type in ("Split", "Trilu", "TopK"):
            return [(first, places)] if len(before) == len(places) else []
        if op.op_type in RESHAPES:
            return [(first, _laid_out(before, shape, places))]
        if op.op_type == "Transpose":
            perm = integers(op, "perm", tuple(reversed(range(len(before)))))
            return [(first, tuple(places[perm.index(dim)] for dim in range(len(before))))]
        if op.op_type in ("ReduceMax", "ReduceMean", "ReduceSum"):
            return self._reduced(op, first, places)
        if op.op_type == "Gather":
            # What is picked is whole: a position, a head. Rows of a table of data are no layer's classes.
            axis, indexed = axis_of(op, len(before), 0), len(self._shape(op.inputs[1]))
            place = places[axis] if indexed == 1 else None
            return [(first, (*places[:axis], place, *places[axis + indexed :]))]
        return []

    def _broadcast(self, op: Op, shape: Shape, places: _Places) -> list[tuple[str, _Places]]:
        """The operands that depend on an input; those of the output's own shape alone, if there are any."""
        operands = list(dict.fromkeys(name for name in op.inputs if name in self._data))
        if op.op_type == "Where":
            operands = list(dict.fromkeys(name for name in op.inputs[1:] if name in self._data))
        full_operands = [name for name in operands if self._shape(name) == shape]
        if op.op_type == "Concat":
            full_operands = operands
        return [(name, places[len(places) - len(self._shape(name)) :]) for name in full_operands or operands]

    def _reduced(self, op: Op, operand: str, places: _Places) -> list[tuple[str, _Places]]:
        rank = len(self._shape(operand))
        axes: Iterable[int] = integers(op, "axes", ())
        if op.has_input(1):
            value = self.graph.constants.get(op.inputs[1])
            if value is None:
                return []
            axes = tuple(int(axis) for axis in value.reshape(-1))
        gone = {axis % rank for axis in axes}
        if not gone:
            return []
        if integer(op, "keepdims", 1):
            return [(operand, tuple(None if dim in gone else place for dim, place in enumerate(places)))]
        output_places = iter(places)
        return [(operand, tuple(None if dim in gone else next(output_places) for dim in range(rank)))]


def _laid_out(before: Shape, after: Shape, places: Sequence[int | None]) -> _Places:
    """Where the dims of a tensor lie once it has another shape: those that stay whole.

    >>> _laid_out((6, 5), (2, 3, 5), (0, 1, 2))
    (None, 2)
    """
    place_by_span = {
        (math.prod(after[:dim]), size): place
        for dim, (size, place) in enumerate(zip(after, places, strict=True))
        if size > 1
    }
    return tuple(place_by_span.get((math.prod(before[:dim]), size)) for dim, size in enumerate(before))
