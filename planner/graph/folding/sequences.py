"""Sequences whose every element is known by name: what makes and reads them is a Split, a Concat, or nothing.

Exporters write SplitToSequence and SequenceAt where a list of tensors is indexed; once lengths and positions are known,
each element is a tensor like any other.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from planner.graph.core.attributes import integer
from planner.graph.core.model import Op, Tensor
from planner.graph.core.wellformed import namer

_AT_RUN_TIME: Final = "sequences, optionals and strings"


class SequenceError(Exception):
    """A sequence whose elements cannot be told before a run; the text says why."""


@dataclass(frozen=True, slots=True)
class SequenceForm:
    """The form of an op that makes or reads a sequence."""

    elements: tuple[str, ...] | None = None
    """Of the sequence that it makes, by name; None where it makes a tensor."""
    constants: Mapping[str, np.ndarray] | None = None
    ops: tuple[Op, ...] = ()
    """They make elements, or the tensor."""


def sequence_form(
    op: Op,
    sequences: Mapping[str, Sequence[str]],
    tensors: Mapping[str, Tensor],
    value: Callable[[str], np.ndarray | None],
) -> SequenceForm:
    """An op of ``traits.SEQUENCES``, or an Identity of a sequence, in tensors.

    Args:
        op: its operands are in ``sequences`` or ``tensors``.
        sequences: elements by sequence.
        tensors: static types by name.
        value: of a tensor, where it can be known.

    Raises:
        SequenceError: a sequence, position or length that is known only at run time; a position outside.
    """
    match op.op_type:
        case "SplitToSequence":
            return _split(op, tensors, value)
        case "SequenceConstruct" | "SequenceEmpty":
            return SequenceForm(op.inputs)
    if op.inputs[0] not in sequences:
        raise SequenceError(_AT_RUN_TIME)
    elements = tuple(sequences[op.inputs[0]])
    match op.op_type:
        case "Identity":
            return SequenceForm(elements)
        case "SequenceLength":
            return SequenceForm(constants={op.outputs[0]: np.array(len(elements), np.int64)})
        case "SequenceAt":
            source = elements[_position(op, 1, value, len(elements))]
            return SequenceForm(ops=(Op(op.name, "Identity", (source,), op.outputs),))
        case "SequenceInsert":
            at = _position(op, 2, value, len(elements), is_open=True)
            return SequenceForm((*elements[:at], op.inputs[1], *elements[at:]))
        case "SequenceErase":
            at = _position(op, 1, value, len(elements))
            return SequenceForm((*elements[:at], *elements[at + 1 :]))
        case _:
            return _concatenated(op, elements, tensors)


def _position(
    op: Op, slot: int, value: Callable[[str], np.ndarray | None], length: int, *, is_open: bool = False
) -> int:
    """A position counted from the front, the last where none is stated; an open one may be behind the last element."""
    position = value(op.inputs[slot]) if op.has_input(slot) else np.array(length if is_open else -1)
    if position is None:
        raise SequenceError("its position in a sequence is known only at run time")
    stated = int(position.reshape(()))
    at = stated + length if stated < 0 else stated
    if not 0 <= at < length + is_open:
        raise SequenceError(f"position {stated} of a sequence of {length}")
    return at


def _split(op: Op, tensors: Mapping[str, Tensor], value: Callable[[str], np.ndarray | None]) -> SequenceForm:
    """Elements of the lengths stated; without them of length 1, of which ``keepdims`` 0 takes the dim away."""
    source, shape = op.inputs[0], tensors[op.inputs[0]].shape
    axis = integer(op, "axis", 0)
    size, axis = shape[axis], axis % len(shape)
    lengths, is_squeezed = np.ones(size, np.int64), not op.attribute("keepdims", 1)
    if op.has_input(1):
        stated, is_squeezed = value(op.inputs[1]), False
        if stated is None:
            raise SequenceError("the lengths of a sequence's elements are known only at run time")
        lengths = stated.astype(np.int64).ravel()
        if stated.ndim == 0 and lengths[0] > 0:
            lengths = np.minimum(lengths[0], size - np.arange(0, size, lengths[0]))
    if int(lengths.sum()) != size or (lengths < 1).any():
        raise SequenceError(f"a dim of {size} split into {', '.join(map(str, lengths))}")
    fresh = namer(op.name, tensors)
    elements = tuple(fresh(str(number)) for number in range(len(lengths)))
    sizes = fresh("sizes")
    if not is_squeezed:
        split = Op(op.name, "Split", (source, sizes), elements, (("axis", axis),))
        return SequenceForm(elements, {sizes: lengths}, (split,))
    wide, axes = tuple(fresh(f"{number}.wide") for number in range(len(lengths))), fresh("axes")
    split = Op(op.name, "Split", (source, sizes), wide, (("axis", axis),))
    squeezed = [Op(out, "Squeeze", (x, axes), (out,)) for x, out in zip(wide, elements, strict=True)]
    return SequenceForm(elements, {sizes: lengths, axes: np.array([axis], np.int64)}, (split, *squeezed))


def _concatenated(op: Op, elements: tuple[str, ...], tensors: Mapping[str, Tensor]) -> SequenceForm:
    axis = integer(op, "axis")
    if not elements:
        raise SequenceError("a Concat of a sequence without elements")
    if not op.attribute("new_axis", 0):
        return SequenceForm(ops=(Op(op.name, "Concat", elements, op.outputs, (("axis", axis),)),))
    axis %= len(tensors[elements[0]].shape) + 1
    fresh = namer(op.name, tensors)
    axes, wide = fresh("axes"), [fresh(str(number)) for number in range(len(elements))]
    unsqueezed = [Op(out, "Unsqueeze", (x, axes), (out,)) for x, out in zip(elements, wide, strict=True)]
    joined = Op(op.name, "Concat", tuple(wide), op.outputs, (("axis", axis),))
    return SequenceForm(constants={axes: np.array([axis], np.int64)}, ops=(*unsqueezed, joined))
