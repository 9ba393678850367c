"""Indices that the operator families share: ONNX's multidirectional broadcasting, and axes."""

from __future__ import annotations

from collections.abc import Sequence

from planner.errors import DescriptionError
from planner.tdl.builder import Ix, NodeView, TensorArg, Val


def aligned(node: NodeView, tensor: TensorArg, index: Sequence[Ix], *, trailing: int = 0) -> tuple[Ix | int, ...]:
    """The indices of a tensor whose leading dims broadcast against ``index``, aligned at the right.

    A dim of size 1 is read at 0; whether it is 1 becomes part of the signature.

    Args:
        node: the op.
        tensor: an input of rank at most ``len(index) + trailing``.
        index: index variables of the dims that broadcast.
        trailing: how many dims of the tensor follow those.

    Raises:
        DescriptionError: the tensor has more dims than that.
    """
    dims = tensor.rank - trailing
    if dims > len(index):
        raise DescriptionError(f"input {tensor.slot} has more dims than the output that it broadcasts to")
    chosen = index[len(index) - dims :]
    return tuple(0 if node.is_single(tensor.slot, dim) else var for dim, var in enumerate(chosen))


def broadcast(node: NodeView, tensor: TensorArg, index: Sequence[Ix]) -> Val:
    """The element of an input that an output element at ``index`` reads."""
    return tensor[aligned(node, tensor, index)]


def normal_axes(axes: Sequence[int], rank: int) -> tuple[int, ...]:
    """Axes counted from the front, ascending.

    Raises:
        DescriptionError: an axis that the rank does not have.
    """
    wrong = [axis for axis in axes if not -rank <= axis < rank]
    if wrong:
        raise DescriptionError(f"axis {wrong[0]} of a tensor of rank {rank}")
    return tuple(sorted({int(axis) % rank for axis in axes}))


def normal_axis(axis: int, rank: int) -> int:
    """An axis counted from the front.

    Raises:
        DescriptionError: an axis that the rank does not have.
    """
    return normal_axes((axis,), rank)[0]
