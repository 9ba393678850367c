"""The dims of an op's operands and results that run together, and the parts that it takes of a tensor or puts together.

This is the one place where the rewriting of a graph says what an operator does to dims: an op that has no rule here may
do anything.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from itertools import accumulate, pairwise
from math import prod
from typing import Final, NamedTuple, TypeAlias

from planner.graph.core.attributes import axis_of, integer, integers, reduced_dims
from planner.graph.core.model import Graph, Op, of_types
from planner.graph.core.traits import ALONG_AXIS, CONVOLUTIONS, ELEMENT_WISE, PRODUCTS, REDUCTIONS, carried
from planner.graph.rewriting.products import Labels, product_of

NO_LABEL: Final = -1
"""The label of a dim along which an op moves, repeats or makes elements."""
Box: TypeAlias = tuple[str, int, int, int]
"""A tensor that lies in another one: along which dim, from where to where."""


class WholeError(Exception):
    """An op reads or makes a whole, and has no use for its parts."""


class Dims(NamedTuple):
    """The dims of an op's tensors that run together."""

    labels: tuple[tuple[str, Labels], ...]
    """The label of each dim by tensor, equal where the op reads and makes the same places along it; outputs are last,
    and a tensor that is read twice is there twice."""
    along: Collection[int] = ()
    """Labels of the dims along which the op takes all places together: a softmax, a sum, what is put side by side."""
    rigid: Collection[int] = ()
    """Labels of the dims that cannot be several dims: an attribute names them, or an operand is repeated there."""


def dims_of(graph: Graph, op: Op) -> Dims | None:
    """The dims of an op that run together; None of an op that may do anything.

    Raises:
        WholeError: the op takes or puts together parts that are not known.
    """
    rule = None if op.domain or not any(op.inputs[:1]) or not all(op.outputs) else _RULES.get(op.op_type)
    return None if rule is None else rule(graph, op)


def turn_of(graph: Graph, op: Op) -> tuple[int, ...] | None:
    """The order in which a Transpose has the dims of its operand; None of another op."""
    return None if not of_types(op, ("Transpose",)) else integers(op, "perm", _plain(graph, op.inputs[0])[::-1])


def _plain(graph: Graph, name: str) -> Labels:
    return tuple(range(len(graph.tensors[name].shape)))


def _without(labels: Labels, dims: Collection[int]) -> Labels:
    return tuple(NO_LABEL if dim in dims else label for dim, label in enumerate(labels))


def _broadcast(
    graph: Graph, op: Op, operands: Sequence[str], factors: Sequence[tuple[str, Labels]], result: Labels
) -> Dims | None:
    """Dims of an op whose operands are repeated to what it makes; None where one is not."""
    full, uses, rigid = graph.tensors[op.outputs[0]].shape, [], set[int]()
    for name in filter(None, operands):
        shape = graph.tensors[name].shape
        skip = len(full) - len(shape)
        if skip < 0 or any(size not in (1, most) for size, most in zip(shape, full[skip:], strict=True)):
            return None
        repeated = [dim for dim, size in enumerate(shape) if size == 1]
        uses.append((name, _without(result[skip:], repeated)))
        # With more dims there, what is before a dim that is repeated would not fit.
        rigid.update(result[skip + dim] for dim in repeated if prod(shape[:dim]) > 1)
    return Dims((*factors, *uses, (op.outputs[0], result)), (), rigid)


def _by_element(graph: Graph, op: Op) -> Dims | None:
    return _broadcast(graph, op, op.inputs, (), _plain(graph, op.outputs[0]))


def _of_product(graph: Graph, op: Op) -> Dims | None:
    product = product_of(op, graph.tensors)
    if product is None:
        return None
    factors = list(zip(product.operands, product.labels, strict=True))
    return _broadcast(graph, op, product.added, factors, product.result)


def _of_transpose(graph: Graph, op: Op) -> Dims | None:
    plain = _plain(graph, op.inputs[0])
    return Dims(((op.inputs[0], plain), (op.outputs[0], turn_of(graph, op) or plain)))


def _of_groups(graph: Graph, op: Op) -> Dims | None:
    if integer(op, "group", 1) == 1:
        return None
    # With groups, channels correspond and nothing else does: dim 1 of images, dim 0 of filters and bias.
    channels = [(op.inputs[0], 1), *((name, 0) for name in op.inputs[1:] if name), (op.outputs[0], 1)]
    ranks = {name: len(graph.tensors[name].shape) for name, _ in channels}
    return Dims(
        tuple((name, (*(NO_LABEL,) * dim, 0, *(NO_LABEL,) * (ranks[name] - dim - 1))) for name, dim in channels)
    )


def _along_axis(graph: Graph, op: Op) -> Dims | None:
    plain = _plain(graph, op.outputs[0])
    operands = [op.inputs[slot] for slot in carried(op.op_type, len(op.inputs)) or (0,)]
    along = (axis_of(op, len(plain), ALONG_AXIS[op.op_type]),)
    return Dims(tuple((name, plain) for name in (*operands, *op.outputs)), along, along)


def _of_reduction(graph: Graph, op: Op) -> Dims | None:
    plain = _plain(graph, op.inputs[0])
    axes = reduced_dims(op, len(plain), graph.constants.get)
    if axes is None:
        return None
    keeps = integer(op, "keepdims", 1)
    result = tuple(label for label in _without(plain, axes) if keeps or label != NO_LABEL)
    return Dims(((op.inputs[0], plain), (op.outputs[0], result)), axes, axes if keeps else ())


def _of_gather(graph: Graph, op: Op) -> Dims | None:
    plain, index = _plain(graph, op.inputs[0]), _plain(graph, op.inputs[1])
    axis = axis_of(op, len(plain), 0)
    result = (*plain[:axis], *_without(index, index), *plain[axis + 1 :])
    return Dims(((op.inputs[0], _without(plain, (axis,))), (op.outputs[0], result)))


def _of_box(graph: Graph, op: Op) -> Dims | None:
    labels = _without(_plain(graph, op.inputs[0]), {dim for _, dim, _, _ in parts_of(graph, op)})
    return Dims(((op.inputs[0], labels), (op.outputs[0], labels)))


_RULES: Final[Mapping[str, Callable[[Graph, Op], Dims | None]]] = {
    **dict.fromkeys(ELEMENT_WISE, _by_element),
    **dict.fromkeys(PRODUCTS, _of_product),
    **dict.fromkeys(CONVOLUTIONS, _of_groups),
    **dict.fromkeys(ALONG_AXIS, _along_axis),
    **dict.fromkeys(REDUCTIONS, _of_reduction),
    "Gather": _of_gather,
    "Pad": _of_box,
    "Slice": _of_box,
    "Transpose": _of_transpose,
}

# parts of a tensor ---------------------------------------------------------------------------------------------------


def whole_of(op: Op) -> str:
    """The tensor that others are parts of: what an op takes parts of, or what it puts together; "" of another op."""
    if not of_types(op, _PARTS):
        return ""
    return op.outputs[0] if op.op_type in _PUTTING else op.inputs[0]


def parts_of(graph: Graph, op: Op) -> list[Box]:
    """The parts that an op takes or puts together (``whole_of``); nothing of a dim that is taken whole.

    Raises:
        WholeError: that is not known, or these are no boxes.
    """
    return _PARTS[op.op_type](graph, op)


def _in_a_row(graph: Graph, op: Op, names: Sequence[str]) -> list[Box]:
    axis = axis_of(op, len(graph.tensors[op.inputs[0]].shape), 0)
    if not all(names):
        raise WholeError
    borders = pairwise(accumulate((graph.tensors[name].shape[axis] for name in names), initial=0))
    return [(name, axis, start, end) for name, (start, end) in zip(names, borders, strict=True)]


def _lists(graph: Graph, op: Op) -> list[list[int]]:
    """The values of an op's further operands.

    Raises:
        WholeError: they are not known, or the op has none.
    """
    arrays = [value for name in op.inputs[1:] if (value := graph.constants.get(name)) is not None]
    if not arrays or len(arrays) < len(op.inputs) - 1:
        raise WholeError
    return [value.reshape(-1).tolist() for value in arrays]


def _gathered(graph: Graph, op: Op) -> list[Box]:
    shape, (index,) = graph.tensors[op.inputs[0]].shape, _lists(graph, op)
    axis = axis_of(op, len(shape), 0)
    index = [position % shape[axis] for position in index]
    is_listed = len(graph.tensors[op.inputs[1]].shape) < 2
    if not is_listed or not index or index != list(range(index[0], index[0] + len(index))):
        raise WholeError
    return [(op.outputs[0], axis, index[0], index[-1] + 1)]


def _padded(graph: Graph, op: Op) -> list[Box]:
    shape, (widths, *fills) = graph.tensors[op.inputs[0]].shape, _lists(graph, op)
    before, after = widths[: len(shape)], widths[len(shape) :]
    is_plain = op.attribute("mode", "constant") == "constant" and len(after) == len(shape) and min(widths) >= 0
    if not is_plain or any(map(any, fills)):
        raise WholeError
    around = enumerate(zip(before, after, shape, strict=True))
    return [(op.inputs[0], dim, low, low + size) for dim, (low, high, size) in around if low or high]


def _sliced(graph: Graph, op: Op) -> list[Box]:
    shape, values = graph.tensors[op.inputs[0]].shape, _lists(graph, op)
    count = len(values[0])
    # A Slice may leave out its axes, then the first ones, and its steps, then 1.
    stated = [*values, *([*range(count)], [1] * count)[len(values) - 2 :]]
    parts = []
    for start, end, axis, step in zip(*stated, strict=True):
        span = range(*slice(start, end, step).indices(shape[axis]))
        if span.step != 1 or not span:
            raise WholeError
        if len(span) < shape[axis]:
            parts.append((op.outputs[0], axis % len(shape), span.start, span.stop))
    return parts


_Parts: TypeAlias = Mapping[str, Callable[[Graph, Op], list[Box]]]
_PUTTING: Final[_Parts] = {
    "Concat": lambda graph, op: _in_a_row(graph, op, op.inputs),
    "Pad": _padded,
}
_PARTS: Final[_Parts] = {
    **_PUTTING,
    "Gather": _gathered,
    "Slice": _sliced,
    "Split": lambda graph, op: _in_a_row(graph, op, op.outputs),
}
