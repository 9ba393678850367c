"""Attentions of every form that has a body, drawn: ONNX's own, and ONNX Runtime's two."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from planner.graph.core.model import DType, Graph, Op, Tensor

Arrays = Mapping[str, np.ndarray]
Drawn = tuple[Graph, dict[str, np.ndarray]]
Random = np.random.Generator


def graph_of(
    op_type: str,
    inputs: Mapping[str, np.ndarray | None],
    outputs: Mapping[str, tuple[int, ...]],
    attributes: Mapping[str, Any],
    *,
    domain: str = "",
    opset: int = 24,
    constants: tuple[str, ...] = (),
) -> Drawn:
    """A graph of one op, ``attention``, and its inputs that are no constants; results are of the first one's dtype."""
    there = {name: value for name, value in inputs.items() if value is not None}
    names = [name if name in there else "" for name in inputs]
    while not names[-1]:
        names.pop()
    tensors = {name: Tensor(name, value.shape, DType(value.dtype.name)) for name, value in there.items()}
    dtype = tensors[names[0]].dtype
    tensors |= {name: Tensor(name, shape, dtype) for name, shape in outputs.items()}
    op = Op("attention", op_type, tuple(names), tuple(outputs), tuple(sorted(attributes.items())), domain)
    values = {name: value for name, value in there.items() if name not in constants}
    known = {name: there[name] for name in constants}
    return Graph("one", tensors, (op,), tuple(values), tuple(outputs), known, frozenset(known), opset=opset), values


def _normal(random: Random, dtype: Any = np.float32) -> Callable[..., np.ndarray]:
    return lambda *shape: random.normal(size=shape).astype(dtype)


def attention(random: Random) -> Drawn:
    """ONNX's Attention: heads that share keys, masks, causal ones, caches, lengths, soft caps, 16 bits."""
    dtype = random.choice([np.float32, np.float16])
    normal = _normal(random, dtype)
    batch, own, each = (int(random.integers(1, 4)) for _ in range(3))
    queries, keys, size, width = (int(random.integers(1, most)) for most in (7, 12, 9, 9))
    heads, before, attributes = own * each, 0, {}
    if random.random() < 0.4:
        inputs: dict[str, np.ndarray | None] = {
            "q": normal(batch, queries, heads * size),
            "k": normal(batch, keys, own * size),
            "v": normal(batch, keys, own * width),
        }
        attributes |= {"q_num_heads": heads, "kv_num_heads": own}
        outputs: dict[str, tuple[int, ...]] = {"y": (batch, queries, heads * width)}
    else:
        inputs = {
            "q": normal(batch, heads, queries, size),
            "k": normal(batch, own, keys, size),
            "v": normal(batch, own, keys, width),
        }
        outputs = {"y": (batch, heads, queries, width)}
    inputs |= dict.fromkeys(("mask", "past_key", "past_value", "lengths"))
    is_causal = random.random() < 0.4
    # Of one causal query with several new keys the kernel hides none.
    if random.random() < 0.4 and not (is_causal and queries == 1):
        before = int(random.integers(1, 9))
        inputs |= {"past_key": normal(batch, own, before, size), "past_value": normal(batch, own, before, width)}
        outputs |= {"key": (batch, own, before + keys, size), "value": (batch, own, before + keys, width)}
    elif random.random() < 0.4:
        inputs["lengths"] = random.integers(max(1, keys // 2), keys + 1, batch)
    if random.random() < 0.6:
        leading = [full if random.random() < 0.6 else 1 for full in (batch, heads)][int(random.integers(0, 3)) :]
        shape = (*leading, queries, before + keys)
        inputs["mask"] = normal(*shape) if random.random() < 0.5 else random.random(shape) < 0.6
    if is_causal:
        attributes["is_causal"] = 1
    if random.random() < 0.3:
        attributes["softcap"] = float(random.random() * 3 + 0.5)
    if random.random() < 0.3:
        attributes["scale"] = float(random.random())
    if random.random() < 0.2:
        attributes["softmax_precision"] = 1
    return graph_of("Attention", inputs, outputs, attributes)


def multi_head_attention(random: Random) -> Drawn:
    """Keys and values flat or by head, masks of every form, added scores."""
    normal = _normal(random)
    batch, heads, queries, keys, size = (int(random.integers(1, most)) for most in (4, 5, 7, 12, 9))
    of_keys = (batch, heads, keys, size) if random.random() < 0.3 else (batch, keys, heads * size)
    inputs: dict[str, np.ndarray | None] = {
        "q": normal(batch, queries, heads * size),
        "k": normal(*of_keys),
        "v": normal(*of_keys),
        "bias": None,
        "mask": (
            None,
            random.integers(1, keys + 1, batch).astype(np.int32),
            random.integers(0, 2, (batch, keys)).astype(np.int32),
            random.integers(0, 2, (batch, queries, keys)).astype(np.int32),
        )[int(random.integers(0, 4))],
    }
    attributes: dict[str, Any] = {"num_heads": heads}
    if random.random() < 0.5:
        inputs["added"] = normal(*(full if random.random() < 0.6 else 1 for full in (batch, heads)), queries, keys)
    if random.random() < 0.3:
        attributes["scale"] = float(random.random()) + 0.1
    if random.random() < 0.2:
        attributes["mask_filter_value"] = -50.0
    if queries == keys and random.random() < 0.6:
        attributes["unidirectional"] = 1
    outputs = {"y": (batch, queries, heads * size)}
    return graph_of("MultiHeadAttention", inputs, outputs, attributes, domain="com.microsoft", opset=21)


def group_query_attention(random: Random) -> Drawn:
    """Prompts and steps, caches that grow and caches with room, turned, capped, within a window, with a sink."""
    dtype = random.choice([np.float32, np.float16])
    normal = _normal(random, dtype)
    own, each, size = (int(random.integers(1, 4)) for _ in range(3))
    heads, size = own * each, 16 * min(size, 2)
    new, is_prompt, is_known = int(random.choice([1, 1, 2, 4])), random.random() < 0.3, random.random() < 0.6
    # Of several new positions the kernel takes one sample, but for a prompt.
    batch = int(random.integers(1, 4)) if new == 1 or (is_prompt and is_known) else 1
    if is_prompt:
        total, room = new, int(random.choice([0, 0, new + 2]))
        lengths = np.full(batch, new - 1)
    else:
        total = int(random.integers(new + 1, 12))
        room = int(random.choice([total - new, total, total + 3]))
        lengths = np.full(batch, total - 1)
        if new == 1:
            lengths[1:] = random.integers(1, total, batch - 1)
    attributes: dict[str, Any] = {"num_heads": heads, "kv_num_heads": own}
    inputs: dict[str, np.ndarray | None] = {
        "q": normal(batch, new, heads * size),
        "k": normal(batch, new, own * size),
        "v": normal(batch, new, own * size),
        "past_key": normal(batch, own, room, size) if room else None,
        "past_value": normal(batch, own, room, size) if room else None,
        "lengths": lengths.astype(np.int32),
        "total": np.array(total, np.int32),
        **dict.fromkeys(("cosine", "sine", "positions", "added", "sink")),
    }
    if random.random() < 0.5:
        attributes |= {"do_rotary": 1, "rotary_interleaved": int(random.random() < 0.5)}
        pairs = 8 if random.random() < 0.6 else size // 2
        inputs |= {"cosine": normal(20, pairs), "sine": normal(20, pairs)}
        if random.random() < 0.3:
            inputs["positions"] = random.integers(0, 16, (batch, new))
    if random.random() < 0.3:
        inputs["added"] = normal(*(full if random.random() < 0.6 else 1 for full in (batch, heads)), new, total)
    if random.random() < 0.3:
        inputs["sink"] = normal(heads)
    elif random.random() < 0.3:
        attributes["smooth_softmax"] = 1
    if random.random() < 0.3:
        attributes["softcap"] = float(random.random() * 3 + 0.5)
    if random.random() < 0.3:
        attributes["scale"] = float(random.random()) + 0.1
    if random.random() < 0.3:
        attributes["local_window_size"] = int(random.integers(1, 6))
    rows = (batch, own, max(room, total), size)
    outputs = {"y": (batch, new, heads * size), "key": rows, "value": rows}
    constants = ("total",) if is_known else ()
    return graph_of(
        "GroupQueryAttention", inputs, outputs, attributes, domain="com.microsoft", opset=21, constants=constants
    )


DRAWN: dict[str, Callable[[Random], Drawn]] = {
    "Attention": attention,
    "MultiHeadAttention": multi_head_attention,
    "GroupQueryAttention": group_query_attention,
}
"""By op type."""
