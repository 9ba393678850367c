"""ONNX Runtime's own attention and rotary embedding: samples and heads are independent, and most queries.

Heads lie side by side in the last dim, which is cut between them. A bias and past keys and values of a
MultiHeadAttention are written in other operators before a plan is made (``planner.graph.microsoft_forms``).
"""

from __future__ import annotations

from collections.abc import Sequence

from opdefs.microsoft import DOMAIN, like_first, shape_of
from planner.errors import DescriptionError, UnsupportedError
from planner.graph.model import Implied
from planner.tdl.builder import Ix, NodeView, Opaque, Sum, TensorArg, Val, op, over
from planner.tdl.local import LocalOp, NotLocalError, Part, same_op

EVERYTHING = slice(None)


def heads_of(node: NodeView, name: str = "num_heads") -> int:
    """How many heads the op says that it has.

    Raises:
        DescriptionError: none.
    """
    heads = node.attribute(name, 0)
    if not isinstance(heads, int) or heads < 1:
        raise DescriptionError(f"attribute {name} is {heads}, and says of no heads")
    return heads


def head_size(width: int, heads: int) -> int:
    """Elements of a head, of several side by side.

    Raises:
        DescriptionError: the heads are not of one size.
    """
    if width % heads:
        raise DescriptionError(f"{heads} heads do not divide {width} elements")
    return width // heads


def head(node: NodeView, tensor: TensorArg, b: Ix, number: Ix, s: Ix | slice, heads: int) -> Val:
    """All elements of one head, side by side with others or in a dim of its own."""
    if tensor.rank == 4:
        return tensor[b, number, s, :]
    size = head_size(node.size(tensor.slot, 2), heads)
    return Sum(over((f"r{tensor.slot}",), lambda r: tensor[b, s, number * size + r]), extents=(size,))


def _attention_results(node: NodeView) -> Sequence[Implied | None]:
    query, heads = shape_of(node, 0), heads_of(node)
    if len(query) != 3 or not node.has(1) or not node.has(2):
        raise DescriptionError("queries, keys and values in one tensor are taken by no kernel of the CPU")
    value = shape_of(node, 2)
    return (((*query[:2], value[2] if len(value) == 3 else value[3] * heads), None),)


def _whole_heads(node: NodeView, part: Part) -> int:
    """The heads that a part holds of an output in which they lie side by side.

    Raises:
        NotLocalError: it holds a part of a head.
    """
    made = part.outputs[0]
    assert made is not None, "the output is made"
    size = head_size(node.output_size(2), heads_of(node))
    if made.lo[2] % size or made.hi[2] % size:
        raise NotLocalError("a part of an attention holds whole heads")
    return made.shape[2] // size


def _attention_local(node: NodeView, part: Part) -> LocalOp:
    return same_op(node, part, attributes={"num_heads": _whole_heads(node, part)})


@op("MultiHeadAttention", domain=DOMAIN, local=_attention_local, results=_attention_results)
def multi_head_attention(
    node: NodeView,
    Q: TensorArg,
    K: TensorArg | None = None,
    V: TensorArg | None = None,
    bias: TensorArg | None = None,
    mask: TensorArg | None = None,
    added: TensorArg | None = None,
    *more: TensorArg | None,
) -> object:
    """Softmax of the queries' products with all keys, times the values; a causal mask depends on the query's position.

    Raises:
        UnsupportedError: it has a form that no kernel of the CPU has.
    """
    if K is None or V is None or Q.rank != 3 or any(one is not None for one in (bias, *more)):
        raise UnsupportedError(
            f"op {node.op.name} (MultiHeadAttention) has inputs packed into one, or of a decoder's beams",
            hint="export the model with queries, keys and values of their own",
        )
    heads = heads_of(node)
    is_causal = bool(node.attribute("unidirectional", 0))
    if is_causal and node.size(0, 1) != node.size(1, 1 if K.rank == 3 else 2):
        raise UnsupportedError(
            f"op {node.op.name} (MultiHeadAttention) is causal, and has other positions of queries than of keys",
            hint="export the model without ONNX Runtime's optimizer",
        )

    def scores(b: Ix, h: Ix, s: Ix | slice) -> list[Val]:
        rows = [head(node, Q, b, h, s, heads), head(node, K, b, h, EVERYTHING, heads)]
        if mask is not None:
            rows.append(mask[(b, s, EVERYTHING) if mask.rank == 3 else (b, EVERYTHING)[: mask.rank]])
        if added is not None:
            of_batch, of_head = (0 if node.is_single(5, dim) else var for dim, var in enumerate((b, h)))
            rows.append(added[of_batch, of_head, s, :])
        return rows

    def attended(b: Ix, s: Ix, c: Ix) -> Val:
        h = c // head_size(node.output_size(2), heads)
        value = head(node, V, b, h, EVERYTHING, heads)
        made = Opaque("MultiHeadAttention")(*scores(b, h, EVERYTHING if is_causal else s), value)
        return made[(s,) if is_causal else ()]

    return over(("b", "s", "c"), attended)


def _rotary_heads(node: NodeView) -> int:
    """Elements of a head: as many as the attribute says, or as the tables have angles for."""
    heads = node.attribute("num_heads", 0)
    return head_size(node.size(0, 2), heads) if heads else 2 * node.size(2, 1)


def _rotary_local(node: NodeView, part: Part) -> LocalOp:
    """The heads that the part holds.

    Raises:
        NotLocalError: it holds a part of a head.
    """
    if node.rank(0) == 4:
        return same_op(node, part)
    size, made = _rotary_heads(node), part.outputs[0]
    assert made is not None, "the output is made"
    if made.lo[2] % size or made.hi[2] % size:
        raise NotLocalError("a part of a rotary embedding holds whole heads")
    has_number = node.attribute("num_heads", 0) > 0
    return same_op(node, part, attributes={"num_heads": made.shape[2] // size} if has_number else {})


@op("RotaryEmbedding", domain=DOMAIN, local=_rotary_local, results=like_first)
def rotary_embedding(node: NodeView, X: TensorArg, positions: TensorArg, cosine: TensorArg, sine: TensorArg) -> object:
    """Turns pairs of each head's elements by an angle that depends on the position.

    Where the position of the first alone is given, the others count from it, so that they stay together.
    """
    if node.attribute("is_packed_batching", 0):
        raise UnsupportedError(
            f"op {node.op.name} (RotaryEmbedding) has samples packed one after another",
            hint="export the model with samples in a dim of their own",
        )
    counted = positions.rank == 1

    def angles(b: Ix, s: Ix) -> list[Val]:
        return [cosine[:, :], sine[:, :], positions[0] if counted else positions[b, s]]

    def turned(b: Ix, h: Ix, s: Ix, d: Ix) -> Val:
        row = X[b, h, EVERYTHING if counted else s, :]
        return Opaque("RotaryEmbedding")(row, *angles(b, s))[(s, d) if counted else (d,)]

    def turned_flat(b: Ix, s: Ix, c: Ix) -> Val:
        size = _rotary_heads(node)
        every = EVERYTHING if counted else s
        row = Sum(lambda r: X[b, every, (c // size) * size + r], extents=(size,))
        return Opaque("RotaryEmbedding")(row, *angles(b, s))[(s,) if counted else ()]

    return turned if X.rank == 4 else turned_flat
