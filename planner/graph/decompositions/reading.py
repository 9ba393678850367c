"""ONNX Runtime's operators that do several things at once, written in others before a plan is made.

Attention makes queries, keys and values by one product, whose weights hold three matrices side by side: cut by head,
a worker needs three strips of them. A MultiHeadAttention may add a bias that is packed so, and hand on past keys and
values. EmbedLayerNormalization looks up in two or three tables. Written out, each part is cut by itself, and a table by
its rows; what is left of an attention is one MultiHeadAttention, which ONNX Runtime executes by the same kernel.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Final

import numpy as np

from planner.errors import ModelError, UnsupportedError
from planner.graph.core.emitter import Emitter
from planner.graph.core.model import ELEM_TYPES, Attribute, DType, Op, Shape, Tensor
from planner.graph.core.wellformed import fresh_name
from planner.graph.decompositions.registry import Purpose, decomposition, stands_for

DOMAIN: Final = "com.microsoft"


@dataclass(frozen=True, slots=True)
class Form:
    """The ops that stand for an op."""

    ops: tuple[Op, ...]
    """In execution order."""
    constants: Mapping[str, np.ndarray]
    """Shapes, axes, masks."""
    weights: Mapping[str, np.ndarray]
    """Parts of weights."""


class _Writer(Emitter):
    """A form under construction: names begin with the op's, shapes are inferred by who reads it."""

    def __init__(self, op: Op, tensors: Mapping[str, Tensor], values: Mapping[str, np.ndarray | None]) -> None:
        super().__init__(f"{op.name}/", tensors, values, opset=0)
        self.op = op
        self.weights: dict[str, np.ndarray] = {}

    def has(self, slot: int) -> bool:
        """Whether the op has an input there."""
        return self.op.has_input(slot)

    def input(self, slot: int) -> str:
        """The name of an input."""
        if not self.has(slot):
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

    def integer(self, name: str, default: int = 0) -> int:
        """An attribute that is a whole number."""
        value = self.op.attribute(name, default)
        if not isinstance(value, int):
            raise ModelError(f"its attribute {name} is no whole number")
        return value

    def attributes(self, *names: str) -> dict[str, Attribute]:
        """The attributes of these names that the op states."""
        return {name: value for name, value in self.op.attributes if name in names}

    def part(
        self,
        op_type: str,
        inputs: Sequence[str],
        part: str,
        *,
        domain: str = "",
        output: str = "",
        attributes: Mapping[str, Attribute] | None = None,
    ) -> str:
        """An op of one output, which it names; ``output`` is one of the op's own."""
        name = output or self._name(part)
        stated = tuple(sorted((attributes or {}).items()))
        self.ops.append(Op(f"{self.op.name}/{part}", op_type, tuple(inputs), (name,), stated, domain))
        return name

    def normalised_sum(self, inputs: Sequence[str], summed: str) -> None:
        """SkipLayerNormalization with the op's first output, and the sum under a name if it has one."""
        outputs = (self.op.outputs[0], "", "", summed) if summed else self.op.outputs[:1]
        stated = tuple(self.attributes("epsilon").items())
        name = f"{self.op.name}/normal"
        self.ops.append(Op(name, "SkipLayerNormalization", tuple(inputs), tuple(outputs), stated, DOMAIN))

    def whole_numbers(self, value: Sequence[int] | int, part: str) -> str:
        """A constant of 64 bits."""
        return self.constant(np.array(value, np.int64), part)

    def strips(self, slot: int, sizes: Sequence[int], parts: Sequence[str]) -> list[str]:
        """Parts of a weight along its last dim: weights themselves where its value is known."""
        name, axis = self.input(slot), len(self.sizes(slot)) - 1
        if self.sizes(slot)[axis] != sum(sizes):
            raise ModelError(f"its input {slot} has {self.sizes(slot)[axis]} columns, not {sum(sizes)}")
        value, names = self.value(name), [self._name(part) for part in parts]
        if value is None:
            lengths = self.whole_numbers(list(sizes), f"{parts[0]}.sizes")
            kind: tuple[tuple[str, Attribute], ...] = (("axis", axis),)
            self.ops.append(Op(names[0], "Split", (name, lengths), tuple(names), kind))
            return names
        ends = list(accumulate(sizes))
        for strip, size, end in zip(names, sizes, ends, strict=True):
            self.weights[strip] = np.ascontiguousarray(value[..., end - size : end])
        return names

    def _name(self, part: str) -> str:
        return fresh_name(f"{self.prefix}{part}", self._graph_tensors)

    def form(self) -> Form:
        """The form that was written."""
        return Form(tuple(self.ops), self.constants, self.weights)


@stands_for("com.microsoft.Attention", purpose=Purpose.READING)
def attention_form(writer: _Writer, op: Op) -> tuple[str, ...] | None:
    """Attention: three products and sums, then MultiHeadAttention."""
    _refuse(writer, writer.has(6) or writer.integer("past_present_share_buffer"), "a cache that is written in place")
    _refuse(writer, bool(writer.integer("do_rotary")), "a rotary embedding inside")
    _, positions, width = writer.sizes(0, 3)
    depth, columns = writer.sizes(1, 2)
    if depth != width:
        raise ModelError(f"its input 1 has {depth} rows for {width} columns")
    sizes = writer.op.attribute("qkv_hidden_sizes") or (columns // 3,) * 3
    if not isinstance(sizes, tuple) or len(sizes) != 3 or not all(isinstance(size, int) for size in sizes):
        raise ModelError("its attribute qkv_hidden_sizes is no list of three sizes")
    counts = [int(size) for size in sizes]
    projections = []
    weights = writer.strips(1, counts, ("q.weight", "k.weight", "v.weight"))
    biases = writer.strips(2, counts, ("q.bias", "k.bias", "v.bias")) if writer.has(2) else ["", "", ""]
    for part, weight, bias in zip("qkv", weights, biases, strict=True):
        projections.append(writer.part("MatMul", (writer.input(0), weight), f"{part}.product"))
        if bias:
            projections[-1] = writer.part("Add", (projections[-1], bias), part)
    # A cache of Attention is one tensor with keys and values along its first dim; MultiHeadAttention reads two.
    past, before = None, 0
    if writer.has(4):
        before = writer.sizes(4, 5)[3]
        past = [
            writer.part("Gather", (writer.input(4), writer.whole_numbers(number, f"past.{part}.which")), f"past.{part}")
            for number, part in enumerate("kv")
        ]
    mask = _mask(writer, 3, before + positions)
    caches = _attend(writer, projections, counts, mask, past=past, before=before)
    if len(writer.op.outputs) > 1 and writer.op.outputs[1]:
        axis = writer.whole_numbers([0], "present.axis")
        rows = [writer.part("Unsqueeze", (cache, axis), f"{cache_name}.row") for cache, cache_name in caches]
        writer.part("Concat", rows, "present", output=writer.op.outputs[1], attributes={"axis": 0})
    return op.outputs


@stands_for("com.microsoft.MultiHeadAttention", purpose=Purpose.READING)
def multi_head_attention_form(writer: _Writer, op: Op) -> tuple[str, ...] | None:
    """MultiHeadAttention: the bias added before, past keys and values joined to the new ones before."""
    if not any(map(op.has_input, (3, 6, 7, 8, 9))) and not any(op.outputs[1:]) and _has_plain_mask(writer):
        return None
    _refuse(writer, any(writer.has(slot) for slot in (8, 9)) or len(writer.sizes(0)) != 3, "inputs packed into one")
    _refuse(writer, not (writer.has(1) and writer.has(2)), "inputs packed into one")
    _refuse(writer, any(writer.op.outputs[3:]), "the scores as an output")
    qkv = [writer.input(slot) for slot in range(3)]
    flat = [len(writer.sizes(slot)) == 3 for slot in range(3)]
    for slot in (1, 2):
        writer.sizes(slot, 3 if flat[slot] else 4)
    width = writer.sizes(0)[2]
    heads = _heads(writer)
    counts = [width, *(writer.sizes(slot)[2] if flat[slot] else heads * writer.sizes(slot)[3] for slot in (1, 2))]
    if writer.has(3):
        for slot, bias in enumerate(writer.strips(3, counts, ("q.bias", "k.bias", "v.bias"))):
            if flat[slot]:
                qkv[slot] = writer.part("Add", (qkv[slot], bias), "qkv"[slot])
    past = [writer.input(6), writer.input(7)] if writer.has(6) else None
    before = writer.sizes(6, 4)[2] if past is not None else 0
    _refuse(writer, past is not None and not all(flat), "past keys before those that are cached")
    caches = _attend(writer, qkv, counts, _mask(writer, 4), past=past, before=before, flat=flat)
    for output, (cache, part) in zip(writer.op.outputs[1:3], caches, strict=False):
        if output:
            writer.part("Identity", (cache,), f"{part}.out", output=output)
    return op.outputs


@stands_for("com.microsoft.GroupQueryAttention", purpose=Purpose.READING)
def group_query_attention_form(writer: _Writer, op: Op) -> tuple[str, ...] | None:
    """GroupQueryAttention of queries, keys and values side by side in one tensor: they are taken apart before."""
    if op.has_input(1) or op.has_input(2):
        return None
    width = writer.sizes(0, 3)[2]
    heads, keys = _heads(writer), writer.integer("kv_num_heads")
    if keys < 1 or width % (heads + 2 * keys):
        raise ModelError(f"{heads} heads of queries and {keys} of keys do not divide {width} elements")
    size = width // (heads + 2 * keys)
    sizes = writer.whole_numbers([heads * size, keys * size, keys * size], "sizes")
    names = tuple(writer._name(part) for part in "qkv")
    kind: tuple[tuple[str, Attribute], ...] = (("axis", 2),)
    writer.ops.append(Op(f"{op.name}/split", "Split", (writer.input(0), sizes), names, kind))
    writer.ops.append(replace(op, name=f"{op.name}/attention", inputs=(*names, *op.inputs[3:])))
    return op.outputs


def _attend(
    writer: _Writer,
    qkv: Sequence[str],
    counts: Sequence[int],
    mask: str,
    *,
    past: Sequence[str] | None,
    before: int,
    flat: Sequence[bool] = (True, True, True),
) -> list[tuple[str, str]]:
    """One MultiHeadAttention with the op's first output.

    Args:
        writer: of the op.
        qkv: queries, keys and values.
        counts: columns of each, all heads together.
        mask: "" for none.
        past: keys and values by head; None for none.
        before: how many positions are past.
        flat: whether heads lie side by side, in queries, keys and values.

    Returns:
        Keys and values of all positions by head, beside what they are called; where they are needed.
    """
    heads, (batch, queries, _) = _heads(writer), writer.sizes(0)
    if any(count % heads for count in counts):
        raise ModelError(f"its {heads} heads do not divide {', '.join(map(str, counts))} elements")
    q, *pair = qkv
    is_causal = bool(writer.integer("unidirectional"))
    caches: list[tuple[str, str]] = []
    if past is not None or any(writer.op.outputs[1:]):
        for slot, (name, part) in enumerate(zip(pair, ("k", "v"), strict=True), start=1):
            if flat[slot]:
                shape = writer.whole_numbers([batch, -1, heads, counts[slot] // heads], f"{part}.shape")
                split = writer.part("Reshape", (name, shape), f"{part}.split")
                name = writer.part("Transpose", (split,), f"{part}.heads", attributes={"perm": (0, 2, 1, 3)})
            if past is not None:
                joined = (past[slot - 1], name)
                name = writer.part("Concat", joined, f"{part}.all", attributes={"axis": 2})
            caches.append((name, part))
    if past is not None:
        pair = [name for name, _ in caches]
    stated = writer.attributes("mask_filter_value", "scale")
    added = writer.input(5) if writer.has(5) else ""
    # The attribute lets query i see keys up to i: behind past keys, a mask added to the scores takes its place.
    if is_causal and before:
        added = _causal(writer, added, queries, before)
    elif is_causal:
        stated["unidirectional"] = 1
    stated["num_heads"] = heads
    inputs = (q, *pair, "", mask, added)
    output = writer.op.outputs[0]
    writer.part("MultiHeadAttention", inputs, "attention", domain=DOMAIN, output=output, attributes=stated)
    return caches


def _heads(writer: _Writer) -> int:
    heads = writer.integer("num_heads")
    if heads < 1:
        raise ModelError(f"its attribute num_heads is {heads}")
    return heads


def _mask(writer: _Writer, slot: int, keys: int = 0) -> str:
    """The mask in a form that is cut by sample: lengths, or a number for each key."""
    batch = writer.sizes(0)[0]
    if not writer.has(slot):
        return ""
    name, shape = writer.input(slot), writer.sizes(slot)
    _refuse(writer, len(shape) > 3, "a mask of four dims, which no kernel of the CPU takes")
    if len(shape) > 1 or shape == (batch,):
        return name
    if not shape:
        raise ModelError("its mask is a single number")
    if shape[0] not in (2 * batch, 3 * batch + 2):
        raise ModelError(f"its mask has {shape[0]} elements for {batch} samples")

    def part(number: int, called: str) -> str:
        ends = [
            writer.whole_numbers([number * batch], f"{called}.lo"),
            writer.whole_numbers([(number + 1) * batch], f"{called}.hi"),
        ]
        return writer.part("Slice", (name, *ends), called)

    # Of 2 · batch numbers the first are ends of samples, the others starts; of 3 · batch + 2 the first are lengths.
    if shape[0] != 2 * batch or not keys:
        return part(0, "lengths")
    positions = writer.constant(np.arange(keys, dtype=np.int32), "positions")
    column = writer.whole_numbers([1], "column")
    last, first = (
        writer.part("Unsqueeze", (part(number, called), column), f"{called}.column")
        for number, called in enumerate(("ends", "starts"))
    )
    inside = (
        writer.part("Less", (positions, last), "before_end"),
        writer.part("GreaterOrEqual", (positions, first), "from_start"),
    )
    is_valid = writer.part("And", inside, "is_valid")
    return writer.part("Cast", (is_valid,), "mask", attributes={"to": ELEM_TYPES[DType.INT32]})


def _causal(writer: _Writer, added: str, queries: int, before: int) -> str:
    """What is added to the scores so that no query sees a later key; nothing where there is one query, the last."""
    if queries == 1:
        return added
    dtype = writer.dtype(writer.input(0)).array_dtype
    seen = np.tri(queries, before + queries, before, dtype=bool)
    lowest = np.where(seen, dtype.type(0), np.finfo(dtype).min).astype(dtype)
    causal = writer.constant(lowest[None, None], "causal")
    return writer.part("Add", (added, causal), "masked") if added else causal


@stands_for("com.microsoft.EmbedLayerNormalization", purpose=Purpose.READING)
def embed_layer_normalization_form(writer: _Writer, op: Op) -> tuple[str, ...] | None:
    """EmbedLayerNormalization: a lookup in each table, their sum normalised, and the length of each sample."""
    samples, positions = writer.sizes(0, 2)
    total = writer.part("Gather", (writer.input(2), writer.input(0)), "words")
    where = writer.input(8) if writer.has(8) else writer.constant(np.arange(positions)[None], "positions")
    places = writer.part("Gather", (writer.input(3), where), "places")
    if writer.has(1) and writer.has(4):
        segments = writer.part("Gather", (writer.input(4), writer.input(1)), "segments")
        total = writer.part("Add", (total, segments), "embedded")
    summed = op.outputs[2] if len(op.outputs) > 2 else ""
    writer.normalised_sum((total, places, writer.input(5), writer.input(6)), summed)
    lengths = op.outputs[1] if len(op.outputs) > 1 else ""
    if lengths and writer.has(7):
        axes = writer.whole_numbers([1], "lengths.axes")
        attributes: dict[str, Attribute] = {"keepdims": 0}
        writer.part("ReduceSum", (writer.input(7), axes), "lengths", output=lengths, attributes=attributes)
    elif lengths:
        zeros = writer.constant(np.zeros(samples, np.int32), "lengths.none")
        writer.part("Identity", (zeros,), "lengths", output=lengths)
    return op.outputs


def _refuse(writer: _Writer, condition: bool | int, form: str) -> None:
    if condition:
        raise UnsupportedError(f"op {writer.op.name!r} ({writer.op.op_type}): {form}")


def microsoft_form(op: Op, tensors: Mapping[str, Tensor], values: Mapping[str, np.ndarray | None]) -> Form | None:
    """The form that stands for an op; None where it is planned as it is.

    Args:
        op: all of whose inputs are in ``tensors``.
        tensors: by name.
        values: of constants; None where it was not loaded.

    Raises:
        ModelError: the op contradicts its inputs.
        UnsupportedError: a form of the operator that is not taken.
    """
    rule = decomposition(Purpose.READING, op)
    writer = _Writer(op, tensors, values)
    return None if rule is None or rule(writer, op) is None else writer.form()


def _has_plain_mask(writer: _Writer) -> bool:
    if not writer.has(4):
        return True
    shape = writer.sizes(4)
    return len(shape) > 1 or shape == writer.sizes(0)[:1]
