"""Attention and RotaryEmbedding: samples, heads and queries are independent.

Inputs of rank 3 hold the heads side by side in their last dim, which is cut between heads.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from planner.errors import DescriptionError
from planner.graph.core.model import Attribute, DType
from planner.opdefs.parts import EVERYTHING, filled, int64, output_region
from planner.opdefs.weighted import weighted_sum
from planner.tdl.builder import Ix, NodeView, Opaque, Sum, TensorArg, Val, op, over
from planner.tdl.local import LocalNode, LocalOp, NotLocalError, Part, same_op


def _heads(node: NodeView) -> tuple[int, int]:
    """Heads of the queries, and of the keys and values."""
    if node.rank(0) == 3:
        return node.attribute("q_num_heads"), node.attribute("kv_num_heads")
    return node.size(0, 1), node.size(1, 1)


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


def element(node: NodeView, tensor: TensorArg, b: Ix, number: Ix, s: Ix, d: Ix, heads: int) -> Val:
    """Element d of one head."""
    if tensor.rank == 4:
        return tensor[b, number, s, d]
    return tensor[b, s, number * head_size(node.size(tensor.slot, 2), heads) + d]


def attention_local(node: NodeView, part: Part) -> LocalOp:
    """The heads that the part holds.

    Raises:
        NotLocalError: it holds a part of a head, or parts of several groups of heads.
    """
    queries, keys = _heads(node)
    output, read = output_region(part), part.inputs
    assert read[0] is not None, "the queries are read"
    assert read[1] is not None, "the keys are read"
    together = queries // keys
    flat = node.rank(0) == 3
    size = node.size(0, 2) // queries if flat else 1
    key_size = node.size(1, 2) // keys if flat else 1
    value_size = node.output_size(2) // queries if flat else 1
    dim = 2 if flat else 1
    if output.lo[dim] % value_size or output.hi[dim] % value_size:
        raise NotLocalError("a part of an attention holds whole heads")
    first, last = output.lo[dim] // value_size, output.hi[dim] // value_size
    heads, key_heads = read[0].shape[dim] // size, read[1].shape[dim] // key_size
    if heads != last - first or heads != key_heads * min(together, heads):
        raise NotLocalError("a part of an attention holds whole groups of heads, or lies in one")
    if key_heads > 1 and (first % together or last % together):
        raise NotLocalError("a part of an attention holds whole groups of heads, or lies in one")
    changed: dict[str, Attribute] = {"q_num_heads": heads, "kv_num_heads": key_heads} if flat else {}
    rows = (output.lo[1], output.hi[1]) if flat else (output.lo[2], output.hi[2])
    if not node.attribute("is_causal", 0) or rows == (0, node.output_size(1 if flat else 2)):
        return same_op(node, part, attributes=changed)
    return _causal_rows(node, same_op(node, part, attributes={**changed, "is_causal": 0}), rows)


def _causal_rows(node: NodeView, local: LocalOp, rows: tuple[int, int]) -> LocalOp:
    """Attention of some of the queries: which keys come before them does not begin at the first, so a mask says it.

    Raises:
        NotLocalError: the op's own mask ends before the keys do.
    """
    past = node.size(4, 2) if node.has(4) else 0
    keys = past + node.size(1, 1 if node.rank(1) == 3 else 2)
    numbers = {"first": past + rows[0], "end": past + rows[1], "nought": 0, "keys": keys, "one": 1}
    constants = {name: np.array(number, dtype=np.int64) for name, number in numbers.items()}
    constants["column"] = int64((1,))
    nodes = [
        LocalNode("Range", ("first", "end", "one"), ("positions",)),
        LocalNode("Unsqueeze", ("positions", "column"), ("query",)),
        LocalNode("Range", ("nought", "keys", "one"), ("key",)),
        LocalNode("LessOrEqual", ("key", "query"), ("before",)),
    ]
    # The op has one mask: its own, if any, also forbids the keys after the query.
    mask = "before"
    if node.has(3):
        if node.size(3, -1) not in (1, keys):
            raise NotLocalError("the mask of a causal attention has another length than its keys")
        mask, dtype = "masked", node.input_dtype(3)
        if dtype is DType.BOOL:
            nodes.append(LocalNode("And", ("in3", "before"), (mask,)))
        else:
            constants["never"] = filled(dtype, -np.inf, ())
            nodes.append(LocalNode("Where", ("before", "in3", "never"), (mask,)))
    (op_node,) = local.nodes
    inputs = [*op_node.inputs, *[""] * (4 - len(op_node.inputs))]
    inputs[3] = mask
    return LocalOp((*nodes, replace(op_node, inputs=tuple(inputs))), {**local.constants, **constants})


@op("Attention", local=attention_local)
def attention(
    node: NodeView,
    Q: TensorArg,
    K: TensorArg,
    V: TensorArg,
    mask: TensorArg | None = None,
    past_key: TensorArg | None = None,
    past_value: TensorArg | None = None,
    lengths: TensorArg | None = None,
) -> object:
    """Softmax of the queries' products with all keys, times the values.

    A causal mask depends on the query's position, which the local op's mask follows; with a window, with lengths of
    the keys, or where the scores are an output, queries then stay together.
    """
    queries, keys = _heads(node)
    together = queries // keys
    flat = Q.rank == 3
    windowed = any(node.attribute(name, -1) >= 0 for name in ("left_window_size", "right_window_size"))
    scores_wanted = len(node.output_shapes) > 3 and node.output_shapes[3] is not None
    placed = windowed or (bool(node.attribute("is_causal", 0)) and (lengths is not None or scores_wanted))
    has_more_outputs = any(shape is not None for shape in node.output_shapes[1:])

    def values(b: Ix, h: Ix, e: Ix | slice) -> list[Val]:
        group = h // together
        rows = [V[b, group, :, e] if V.rank == 4 else head(node, V, b, group, EVERYTHING, keys)]
        return rows if past_value is None else [*rows, past_value[b, group, :, e]]

    def scored(b: Ix, h: Ix, s: Ix) -> list[Val]:
        group = h // together
        rows = [head(node, Q, b, h, EVERYTHING if placed else s, queries), head(node, K, b, group, EVERYTHING, keys)]
        rows += [] if past_key is None else [past_key[b, group, :, :]]
        if mask is not None:
            wanted: Sequence[Ix | slice] = (b, h, EVERYTHING if placed else s, EVERYTHING)
            first = 4 - mask.rank
            leading = [0 if node.is_single(mask.slot, d) else wanted[first + d] for d in range(mask.rank - 1)]
            rows.append(mask[(*leading, EVERYTHING)])
        return rows if lengths is None else [*rows, lengths[b]]

    def weighted(b: Ix, h: Ix, s: Ix, e: Ix) -> Val:
        """What an element of the output takes; e is its number in the head."""
        group = h // together

        def of(key: Callable[[Ix, Ix], Val], value: Callable[[Ix], Val]) -> Val:
            size = None if Q.rank == 4 else node.size(0, 2) // queries
            return weighted_sum(lambda d: element(node, Q, b, h, s, d, queries), key, value, size)

        total = of(
            lambda t, d: element(node, K, b, group, t, d, keys), lambda t: element(node, V, b, group, t, e, keys)
        )
        if past_key is None or past_value is None:
            return total
        return total + of(lambda t, d: past_key[b, group, t, d], lambda t: past_value[b, group, t, e])

    def result(
        name: str, b: Ix, h: Ix, s: Ix, more_read: Sequence[Val], *inner: Ix, takes: tuple[Val, ...] = ()
    ) -> Val:
        # Where the caches are made too, and several heads share one, heads stay together.
        index = [*([s] if placed else []), *([h] if has_more_outputs and together > 1 and not flat else []), *inner]
        return Opaque(name, takes)(*scored(b, h, s), *more_read)[tuple(index)]

    shared = together == 1 and not flat
    """Whether the caches' heads are the outputs' heads, so that they are cut together."""

    def cache(present: TensorArg, past: TensorArg | None) -> Callable[..., Val | float]:
        def body(b: Ix, h: Ix, t: Ix, d: Ix) -> Val:
            rows = [present[b, h, :, d] if present.rank == 4 else head(node, present, b, h, EVERYTHING, keys)]
            rows += [] if past is None else [past[b, h, :, d]]
            whole_size = present is K or flat
            return Opaque("cache")(*rows)[(*([] if shared else [h]), t, *([d] if whole_size else []))]

        return body

    def attended(b: Ix, s: Ix, c: Ix) -> Val:
        size = node.output_size(2) // queries
        number, takes = c // size, (weighted(b, c // size, s, c % size),)
        more_read = values(b, number, EVERYTHING)
        return result("Attention", b, number, s, more_read, *([c] if has_more_outputs else []), takes=takes)

    def attended_heads(b: Ix, h: Ix, s: Ix, e: Ix) -> Val:
        return result("Attention", b, h, s, values(b, h, e), takes=(weighted(b, h, s, e),))

    first = over(("b", "s", "c"), attended) if flat else attended_heads
    heads = "h" if shared else "kv"
    return (
        first,
        over(("b", heads, "t", "dk"), cache(K, past_key)),
        over(("b", heads, "t", "e"), cache(V, past_value)),
        lambda b, h, s, t: result("scores", b, h, s, (), t, *([h] if flat else [])),
    )


def rotary_local(node: NodeView, part: Part, head_size: Callable[[NodeView], int]) -> LocalOp:
    """The heads that the part of a rotary embedding holds, ONNX's or ONNX Runtime's.

    Raises:
        NotLocalError: it holds a part of a head.
    """
    if node.rank(0) == 4:
        return same_op(node, part)
    size, output = head_size(node), output_region(part)
    if output.lo[2] % size or output.hi[2] % size:
        raise NotLocalError("a part of a rotary embedding holds whole heads")
    has_number = node.attribute("num_heads", 0) > 0
    return same_op(node, part, attributes={"num_heads": output.shape[2] // size} if has_number else {})


def _rotary_size(node: NodeView) -> int:
    return node.size(0, 2) // int(node.attribute("num_heads"))


@op("RotaryEmbedding", local=lambda node, part: rotary_local(node, part, _rotary_size))
def rotary_embedding(
    node: NodeView, X: TensorArg, cosine: TensorArg, sine: TensorArg, positions: TensorArg | None = None
) -> object:
    """Turns pairs of each head's elements by an angle that depends on the position."""

    def angles(b: Ix, s: Ix) -> list[Val]:
        if positions is None:
            return [tensor[b, s, :] for tensor in (cosine, sine)]
        return [cosine[:, :], sine[:, :], positions[b, s]]

    return rotated(X, angles, None if X.rank == 4 else _rotary_size(node))


def rotated(
    X: TensorArg, angles: Callable[[Ix, Ix], list[Val]], size: int | None, *, is_counted: bool = False
) -> Callable[..., Val]:
    """Pairs of each head's elements turned by angles.

    Args:
        X: by head, or of heads side by side.
        angles: what a position's angles are of.
        size: of a head, where they lie side by side.
        is_counted: positions stay together.
    """

    def turned(b: Ix, h: Ix, s: Ix, d: Ix) -> Val:
        row = X[b, h, EVERYTHING if is_counted else s, :]
        return Opaque("RotaryEmbedding")(row, *angles(b, s))[(s, d) if is_counted else (d,)]

    def turned_flat(b: Ix, s: Ix, c: Ix) -> Val:
        assert size is not None, "heads lie side by side"
        every = EVERYTHING if is_counted else s
        row = Sum(lambda r: X[b, every, (c // size) * size + r], extents=(size,))
        return Opaque("RotaryEmbedding")(row, *angles(b, s))[(s,) if is_counted else ()]

    return turned if X.rank == 4 else turned_flat
