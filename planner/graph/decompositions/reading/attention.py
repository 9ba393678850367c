"""Attentions of ONNX Runtime as one MultiHeadAttention between simpler ops.

Attention makes queries, keys and values by one product, whose weights hold three matrices side by side: cut by head,
a worker needs three strips of them. A MultiHeadAttention may add a bias that is packed so, and hand on past keys and
values. Written out, each part is cut by itself; what is left is one MultiHeadAttention, which ONNX Runtime executes by
the same kernel.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from planner.errors import ModelError
from planner.graph.core.attributes import attributes_of, integer, refuse
from planner.graph.core.model import DType, Op
from planner.graph.decompositions.parts.weighted_sums import by_head
from planner.graph.decompositions.reading.form import FormWriter
from planner.graph.decompositions.registry import Purpose, stands_for


@stands_for("com.microsoft.Attention", purpose=Purpose.READING)
def attention_form(writer: FormWriter, op: Op) -> tuple[str, ...]:
    """Three products and sums, then MultiHeadAttention."""
    if op.has_input(6) or integer(op, "past_present_share_buffer", 0):
        raise refuse(op, "a cache that is written in place")
    if integer(op, "do_rotary", 0):
        raise refuse(op, "a rotary embedding inside")
    _, positions, width = writer.sizes(0, 3)
    depth, columns = writer.sizes(1, 2)
    if depth != width:
        raise ModelError(f"its input 1 has {depth} rows for {width} columns")
    sizes = op.attribute("qkv_hidden_sizes") or (columns // 3,) * 3
    if not isinstance(sizes, tuple) or len(sizes) != 3 or not all(isinstance(size, int) for size in sizes):
        raise ModelError("its attribute qkv_hidden_sizes is no list of three sizes")
    counts = [int(size) for size in sizes]
    qkv = [
        writer.matmul(op.inputs[0], weight, f"{part}.product")
        for part, weight in zip("qkv", writer.strips(1, counts, ".weight"), strict=True)
    ]
    if op.has_input(2):
        biases = writer.strips(2, counts, ".bias")
        qkv = [writer.add(name, bias, part) for name, bias, part in zip(qkv, biases, "qkv", strict=True)]
    # A cache of Attention is one tensor with keys and values along its first dim; MultiHeadAttention reads two.
    past = []
    if op.has_input(4):
        _, *sizes_of_past = writer.sizes(4, 5)
        dtype = writer.dtype(op.inputs[4])
        for number, part in enumerate("kv"):
            which = writer.constant(np.array(number), f"past.{part}.which")
            past.append(writer.one("Gather", (op.inputs[4], which), tuple(sizes_of_past), dtype, hint=f"past.{part}"))
    before = writer.shape(past[0])[2] if past else 0
    y, caches = _attend(writer, op, qkv, counts, _mask(writer, op, 3, before + positions), past)
    if not any(op.outputs[1:]):
        return y, ""
    rows = [writer.unsqueeze(cache, [0]) for cache in caches]
    return y, writer.concat(rows, 0, "present")


@stands_for("com.microsoft.MultiHeadAttention", purpose=Purpose.READING)
def multi_head_attention_form(writer: FormWriter, op: Op) -> tuple[str, ...] | None:
    """The bias added before, past keys and values joined to the new ones before."""
    is_plain = not any(map(op.has_input, (3, 6, 7, 8, 9))) and not any(op.outputs[1:])
    if is_plain and (not op.has_input(4) or _is_by_sample(writer, op, 4)):
        return None
    if op.has_input(8) or op.has_input(9) or not (op.has_input(1) and op.has_input(2)) or len(writer.sizes(0)) != 3:
        raise refuse(op, "inputs packed into one")
    if any(op.outputs[3:]):
        raise refuse(op, "the scores as an output")
    qkv, heads = list(op.inputs[:3]), _heads(op)
    is_flat = [writer.rank(name) == 3 for name in qkv]
    counts = [
        writer.sizes(slot, 3)[2] if flat else heads * writer.sizes(slot, 4)[3] for slot, flat in enumerate(is_flat)
    ]
    if op.has_input(3):
        for slot, bias in enumerate(writer.strips(3, counts, ".bias")):
            qkv[slot] = writer.add(qkv[slot], bias, "qkv"[slot]) if is_flat[slot] else qkv[slot]
    past = [writer.input(slot) for slot in (6, 7)] if op.has_input(6) else []
    if past and not all(is_flat):
        raise refuse(op, "past keys before those that are cached")
    y, caches = _attend(writer, op, qkv, counts, _mask(writer, op, 4), past)
    return (y, *(writer.unary("Identity", cache, f"{part}.out") for cache, part in zip(caches, "kv", strict=False)))


@stands_for("com.microsoft.GroupQueryAttention", purpose=Purpose.READING)
def group_query_attention_form(writer: FormWriter, op: Op) -> tuple[str, ...] | None:
    """Queries, keys and values that lie side by side in one tensor are taken apart before."""
    if op.has_input(1) or op.has_input(2):
        return None
    width = writer.sizes(0, 3)[2]
    heads, keys = _heads(op), integer(op, "kv_num_heads", 0)
    if keys < 1 or width % (heads + 2 * keys):
        raise ModelError(f"{heads} heads of queries and {keys} of keys do not divide {width} elements")
    size = width // (heads + 2 * keys)
    qkv = writer.strips(0, [heads * size, keys * size, keys * size], "")
    writer.part(op.op_type, (*qkv, *op.inputs[3:]), "attention", attributes_of(op), outputs=op.outputs)
    return op.outputs


def _attend(
    writer: FormWriter, op: Op, qkv: Sequence[str], counts: Sequence[int], mask: str, past: Sequence[str]
) -> tuple[str, list[str]]:
    """One MultiHeadAttention.

    Args:
        writer: of the op.
        op: what is written out.
        qkv: queries, keys and values.
        counts: columns of each, all heads together.
        mask: "" for none.
        past: keys and values by head; none, if there are none.

    Returns:
        Its result; and keys and values of all positions by head, where they are needed.
    """
    heads, queries, before = _heads(op), writer.shape(qkv[0])[1], writer.shape(past[0])[2] if past else 0
    if any(count % heads for count in counts):
        raise ModelError(f"its {heads} heads do not divide {', '.join(map(str, counts))} elements")
    q, *pair = qkv
    caches: list[str] = []
    if past or any(op.outputs[1:]):
        caches = [by_head(writer, name, heads, part) for name, part in zip(pair, "kv", strict=True)]
    if past:
        caches = [
            writer.concat((old, new), 2, f"{part}.all") for old, new, part in zip(past, caches, "kv", strict=True)
        ]
        pair = caches
    stated = dict(attributes_of(op, "mask_filter_value", "scale"))
    added = op.inputs[5] if op.has_input(5) else ""
    # The attribute lets query i see keys up to i: behind past keys, a mask added to the scores takes its place.
    if integer(op, "unidirectional", 0) and before:
        added = _causal(writer, op, added, queries, before)
    elif integer(op, "unidirectional", 0):
        stated["unidirectional"] = 1
    stated["num_heads"] = heads
    operands = (q, *pair, "", mask, added)
    return writer.part("MultiHeadAttention", operands, "attention", stated, outputs=op.outputs[:1]), caches


def _heads(op: Op) -> int:
    heads = integer(op, "num_heads", 0)
    if heads < 1:
        raise ModelError(f"its attribute num_heads is {heads}")
    return heads


def _is_by_sample(writer: FormWriter, op: Op, slot: int) -> bool:
    """Whether a mask is a number for each key, or the length of each sample."""
    shape = writer.sizes(slot)
    return len(shape) > 1 or shape == writer.sizes(0)[:1]


def _mask(writer: FormWriter, op: Op, slot: int, keys: int = 0) -> str:
    """The mask in a form that is cut by sample: lengths, or a number for each key."""
    if not op.has_input(slot):
        return ""
    (batch, *_), name, shape = writer.sizes(0), op.inputs[slot], writer.sizes(slot)
    if len(shape) > 3:
        raise refuse(op, "a mask of four dims, which no kernel of the CPU takes")
    if _is_by_sample(writer, op, slot):
        return name
    if not shape or shape[0] not in (2 * batch, 3 * batch + 2):
        raise ModelError(f"its mask is {list(shape)} for {batch} samples")
    # Of 2 · batch numbers the first are ends of samples, the others starts; of 3 · batch + 2 the first are lengths.
    ends = writer.slice(name, (0,), (batch,))
    if shape[0] != 2 * batch or not keys:
        return ends
    starts = writer.slice(name, (batch,), (2 * batch,))
    positions = writer.constant(np.arange(keys, dtype=np.int32), "positions")
    is_before_end = writer.compare("Less", positions, writer.reshape(ends, (batch, 1), "ends"), "is_before_end")
    is_behind = writer.compare("GreaterOrEqual", positions, writer.reshape(starts, (batch, 1), "starts"), "is_behind")
    return writer.cast(writer.compare("And", is_before_end, is_behind, "is_valid"), DType.INT32, "mask")


def _causal(writer: FormWriter, op: Op, added: str, queries: int, before: int) -> str:
    """What is added to the scores so that no query sees a later key; nothing where there is one query, the last."""
    if queries == 1:
        return added
    dtype = writer.dtype(op.inputs[0]).array_dtype
    seen = np.tri(queries, before + queries, before, dtype=bool)
    lowest = np.where(seen, dtype.type(0), np.finfo(dtype).min).astype(dtype)
    causal = writer.constant(lowest[None, None], "causal")
    return writer.add(added, causal, "masked") if added else causal
