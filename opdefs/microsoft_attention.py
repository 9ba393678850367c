"""ONNX Runtime's own attention and rotary embedding: samples and heads are independent, and most queries.

Heads lie side by side in the last dim, which is cut between them. A bias and past keys and values of a
MultiHeadAttention are written in other operators before a plan is made (``planner.graph.decompositions.reading``).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from planner.errors import DescriptionError, UnsupportedError
from planner.graph.core.model import Implied
from planner.opdefs.attention import element, head, head_size, rotary_local, rotated
from planner.opdefs.microsoft import DOMAIN, like_first
from planner.opdefs.parts import EVERYTHING, output_region
from planner.opdefs.weighted import weighted_sum
from planner.tdl.builder import Ix, NodeView, Opaque, Sum, TensorArg, Val, op, over
from planner.tdl.local import LocalOp, NotLocalError, Part, same_op


def heads_of(node: NodeView, name: str = "num_heads") -> int:
    """How many heads the op says that it has.

    Raises:
        DescriptionError: none.
    """
    heads = node.attribute(name, 0)
    if not isinstance(heads, int) or heads < 1:
        raise DescriptionError(f"attribute {name} is {heads}, and says of no heads")
    return heads


def _attention_results(node: NodeView) -> Sequence[Implied | None]:
    query, heads = node.input_shape(0), heads_of(node)
    if len(query) != 3 or not node.has(1) or not node.has(2):
        raise DescriptionError("queries, keys and values in one tensor are taken by no kernel of the CPU")
    value = node.input_shape(2)
    return (((*query[:2], value[2] if len(value) == 3 else value[3] * heads), None),)


def _whole_heads(node: NodeView, part: Part) -> int:
    """The heads that a part holds of an output in which they lie side by side.

    Raises:
        NotLocalError: it holds a part of a head.
    """
    output = output_region(part)
    size = head_size(node.output_size(2), heads_of(node))
    if output.lo[2] % size or output.hi[2] % size:
        raise NotLocalError("a part of an attention holds whole heads")
    return output.shape[2] // size


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
    if K is None or V is None or Q.rank != 3 or any(tensor is not None for tensor in (bias, *more)):
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
        width = head_size(node.output_size(2), heads)
        h = c // width
        value = head(node, V, b, h, EVERYTHING, heads)
        takes = weighted_sum(
            lambda d: element(node, Q, b, h, s, d, heads),
            lambda t, d: element(node, K, b, h, t, d, heads),
            lambda t: element(node, V, b, h, t, c % width, heads),
            head_size(node.size(0, 2), heads),
        )
        # A causal mask depends on the query's position, so queries stay together: all are read, one is picked.
        output = Opaque("MultiHeadAttention", (takes,))(*scores(b, h, EVERYTHING if is_causal else s), value)
        return output[(s,) if is_causal else ()]

    return over(("b", "s", "c"), attended)


def _rotary_size(node: NodeView) -> int:
    """Elements of a head: as many as the attribute says, or as the tables have angles for."""
    heads = node.attribute("num_heads", 0)
    return head_size(node.size(0, 2), heads) if heads else 2 * node.size(2, 1)


@op(
    "RotaryEmbedding",
    domain=DOMAIN,
    local=lambda node, part: rotary_local(node, part, _rotary_size),
    results=like_first,
)
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

    return rotated(X, angles, None if X.rank == 4 else _rotary_size(node), is_counted=counted)


def _grouped(node: NodeView) -> tuple[int, int, int]:
    """Heads of keys and values, heads of queries to each, and elements of a head."""
    heads, keys = heads_of(node), heads_of(node, "kv_num_heads")
    if heads % keys:
        raise DescriptionError(f"{heads} heads of queries do not share {keys} heads of keys")
    return keys, heads // keys, head_size(node.input_shape(0)[-1], heads)


def _grouped_results(node: NodeView) -> Sequence[Implied | None]:
    query = node.input_shape(0)
    if len(query) != 3:
        raise DescriptionError("its queries are no samples of positions")
    past = node.input_shape(3)[2] if node.has(3) else 0
    total = node.constant_if_known(6)
    keys, _, size = _grouped(node)
    if total is None:
        return ((query, None), None, None)
    cache = (query[0], keys, max(past, int(total.item())), size)
    return ((query, None), (cache, None), (cache, None))


def _grouped_local(node: NodeView, part: Part) -> LocalOp:
    """The groups of heads that the part holds."""
    lo, hi = part.ranges["kv"]
    _, together, _ = _grouped(node)
    return same_op(node, part, attributes={"num_heads": (hi - lo) * together, "kv_num_heads": hi - lo})


@op(
    "GroupQueryAttention",
    domain=DOMAIN,
    local=_grouped_local,
    always_local=lambda node: True,
    results=_grouped_results,
)
def group_query_attention(
    node: NodeView,
    Q: TensorArg,
    K: TensorArg,
    V: TensorArg,
    past_key: TensorArg | None,
    past_value: TensorArg | None,
    lengths: TensorArg,
    total: TensorArg,
    cosine: TensorArg | None = None,
    sine: TensorArg | None = None,
    positions: TensorArg | None = None,
    added: TensorArg | None = None,
    sink: TensorArg | None = None,
    *more: TensorArg | None,
) -> object:
    """Attention in which several heads of queries share one of keys, with past and present keys and values.

    Samples and groups of heads are independent: a group's queries, keys, values and caches are cut together. How many
    of a sample's positions are past is known only to its lengths, so that positions stay together.

    Raises:
        UnsupportedError: quantised or normalised keys, or the scores as an output.
    """
    quantised = any(node.attribute(name, "NONE") != "NONE" for name in ("k_quant_type", "v_quant_type"))
    widths = any(node.attribute(name, 0) for name in ("qk_output", "kv_cache_bit_width"))
    if quantised or widths or any(tensor is not None for tensor in more) or any(node.output_shapes[3:]):
        raise UnsupportedError(
            f"op {node.op.name} (GroupQueryAttention) has quantised caches, normalised keys or its scores as output",
            hint="export the model without them",
        )
    _, together, size = _grouped(node)

    def of_group(tensor: TensorArg, b: Ix, kv: Ix, heads: int) -> Val:
        width = heads * size
        return Sum(over((f"r{tensor.slot}",), lambda r: tensor[b, :, kv * width + r]), extents=(width,))

    def keys(b: Ix) -> list[Val]:
        """What tells where keys are, and by how much they are turned."""
        operands = [lengths[(b, *(EVERYTHING for _ in range(lengths.rank - 1)))], total[...]]
        operands += [table[...] for table in (cosine, sine) if table is not None]
        return operands if positions is None else [*operands, positions[b, :]]

    def heads_or_one(tensor: TensorArg, dim: int, kv: Ix, index: Callable[[Ix | int], Val]) -> Val:
        if node.is_single(tensor.slot, dim):
            return index(0)
        return Sum(over((f"r{tensor.slot}",), lambda r: index(kv * together + r)), extents=(together,))

    def attended(b: Ix, s: Ix, kv: Ix) -> Val:
        rows = [of_group(Q, b, kv, together), of_group(K, b, kv, 1), of_group(V, b, kv, 1), *keys(b)]
        rows += [cache[b, kv, :, :] for cache in (past_key, past_value) if cache is not None]
        if added is not None:
            sample = 0 if node.is_single(added.slot, 0) else b
            rows.append(heads_or_one(added, 1, kv, lambda h: added[sample, h, :, :]))
        if sink is not None:
            rows.append(heads_or_one(sink, 0, kv, lambda h: sink[h]))
        return Opaque("GroupQueryAttention", (head_products(b, s, kv),))(*rows)[s]

    def head_products(b: Ix, s: Ix, kv: Ix) -> Val:
        """What a group's heads take for one query: as much for the cached keys as for the new ones."""

        def of(key: Callable[[Ix, Ix], Val], value: Callable[[Ix, Ix], Val]) -> Val:
            def of_head(r: Ix, e: Ix) -> Val:
                first = (kv * together + r) * size
                return weighted_sum(lambda d: Q[b, s, first + d], key, lambda t: value(t, e), size)

            return Sum(over(("r", "e"), of_head), extents=(together, size))

        total = of(lambda t, d: K[b, t, kv * size + d], lambda t, e: V[b, t, kv * size + e])
        if past_key is None or past_value is None:
            return total
        return total + of(lambda t, d: past_key[b, kv, t, d], lambda t, e: past_value[b, kv, t, e])

    def cached(present: TensorArg, past: TensorArg | None) -> Callable[..., Val | float]:
        def value(b: Ix, kv: Ix, t: Ix, d: Ix) -> Val:
            rows = [of_group(present, b, kv, 1), *keys(b)]
            rows += [] if past is None else [past[b, kv, :, :]]
            return Opaque("cache")(*rows)[t, d]

        return over(("b", "kv", "t", "d"), value)

    # The heads of a group lie side by side in the output's last dim: kv steps over a group at a time.
    return (
        over(("b", "s", "kv"), attended, steps={"kv": together * size}),
        cached(K, past_key),
        cached(V, past_value),
    )
