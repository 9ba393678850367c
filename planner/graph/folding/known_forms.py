"""Ops written otherwise for what is known of what they read: CastLike, Compress by known flags, Mod, Split, Resize,
InstanceNormalization of groups of channels.

Each function gives the constants that the new form reads, by name, and the ops that stand for the old one: the last of
them has its name and makes its outputs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import prod
from operator import mul
from typing import Final, TypeAlias

import numpy as np

from planner.graph.core.attributes import integer, integers, text
from planner.graph.core.emitter import Emitter, free_prefix
from planner.graph.core.model import Op, Tensor
from planner.graph.core.traits import carried
from planner.graph.core.wellformed import fresh_name, namer
from planner.graph.files.protos import elem_type_of
from planner.graph.folding.known import KnownGraph

_FLOATS_FLOORED: Final = 28
"""Since this opset Mod takes floats without ``fmod``, too."""
KnownForm: TypeAlias = tuple[Mapping[str, np.ndarray], tuple[Op, ...]]


def cast_for(op: Op, graph: KnownGraph) -> KnownForm | None:
    """CastLike's second operand matters by its dtype alone, so the op is a Cast."""
    if not op.has_input(1):
        return None
    to = elem_type_of(graph.tensors[op.inputs[1]].dtype)
    return {}, (replace(op, op_type="Cast", inputs=op.inputs[:1]).with_attributes(to=to),)


def gather_for(op: Op, graph: KnownGraph) -> KnownForm | None:
    """A Compress by known flags is a Gather of the positions that they name; without axis, of all elements."""
    if not graph.demand(op.inputs[1:]) or (flags := graph.values[op.inputs[1]]) is None:
        return None
    source, axis = op.inputs[0], op.attribute("axis")
    constants: dict[str, np.ndarray] = {}
    before: tuple[Op, ...] = ()
    if axis is None:
        flat, shape = (fresh_name(f"{op.name}.{part}", graph.tensors) for part in ("flat", "shape"))
        constants[shape] = np.array([-1], np.int64)
        before = (Op(flat, "Reshape", (source, shape), (flat,)),)
        source, axis = flat, 0
    positions = fresh_name(f"{op.name}.positions", graph.tensors)
    constants[positions] = np.flatnonzero(flags).astype(np.int64)
    return constants, (*before, Op(op.name, "Gather", (source, positions), op.outputs, (("axis", axis),)))


def mod_for(op: Op, graph: KnownGraph) -> KnownForm | None:
    """A Mod of floats by the sign of the divisor, as opset 28 has it, from the runtime's by the sign of the dividend.

    Of a remainder whose sign is not the divisor's, the divisor is added; a remainder of zero gets that sign. So NumPy
    has it, exactly, where ``a - floor(a / b) * b`` is rounded three times and is no number for an infinite divisor.
    """
    is_floored = graph.written_at >= _FLOATS_FLOORED and op.has_input(0) and not op.attribute("fmod", 0)
    if not is_floored or not graph.tensors[op.inputs[0]].dtype.is_float:
        return None
    a, b = op.inputs
    dtype = graph.tensors[a].dtype.array_dtype
    zero, remainder, way, sign, product, differs, moved, modulo, size = map(
        namer(op.name, graph.tensors), ("zero", "rest", "way", "sign", "both", "other", "moved", "kept", "size")
    )
    return {zero: np.array(0.0, dtype)}, (
        Op(remainder, "Mod", (a, b), (remainder,), (("fmod", 1),)),
        Op(way, "Sign", (remainder,), (way,)),
        Op(sign, "Sign", (b,), (sign,)),
        Op(product, "Mul", (way, sign), (product,)),
        Op(differs, "Less", (product, zero), (differs,)),
        Op(moved, "Add", (remainder, b), (moved,)),
        Op(modulo, "Where", (differs, moved, remainder), (modulo,)),
        # The runtime's Where makes a zero of minus zero, and its constants of both are one.
        Op(size, "Abs", (modulo,), (size,)),
        Op(op.name, "Mul", (size, sign), op.outputs),
    )


def instances_for(op: Op, graph: KnownGraph) -> KnownForm | None:
    """A normalisation of groups as PyTorch writes it below opset 21, with the dims of what it normalises kept apart.

    Example: a Reshape of [2, 64, 8, 8] to [2, 32, 128] is normalised as [2, 32, 2, 8, 8]. Of the merged dim, a piece is
    no piece of channels or rows. The tensor whose groups a Reshape merged is some moves above; the nearest that gives a
    form counts.
    """
    form, maker = None, graph.makers.get(op.inputs[0])
    while form is None and maker is not None and not maker.domain and carried(maker.op_type, 1):
        source = graph.tensors.get(maker.inputs[0])
        form = None if source is None else _by_groups(op, source, graph.tensors)
        maker = graph.makers.get(maker.inputs[0])
    return form


def _by_groups(op: Op, source: Tensor, tensors: Mapping[str, Tensor]) -> KnownForm | None:
    """An InstanceNormalization of the elements of its input in the dims that they had in ``source``."""
    merged = tensors[op.inputs[0]].shape
    if len(merged) != 3 or len(source.shape) < 3 or source.shape[0] != merged[0] or source.shape[1] % merged[1]:
        return None
    together = source.shape[1] // merged[1]
    apart = (*merged[:2], *((together,) if together > 1 else ()), *source.shape[2:])
    if apart == merged or prod(apart) != prod(merged):
        return None
    fine, normal, shape, back = map(namer(op.name, tensors), ("apart", "normal", "apart.shape", "merged.shape"))
    return {shape: np.array(apart, np.int64), back: np.array(merged, np.int64)}, (
        Op(fine, "Reshape", (source.name, shape), (fine,)),
        Op(normal, op.op_type, (fine, *op.inputs[1:]), (normal,), op.attributes),
        Op(op.name, "Reshape", (normal, back), op.outputs),
    )


def unguarded_for(op: Op, graph: KnownGraph) -> KnownForm | None:
    """A softmax, of which a Where takes what is a number, if no row of its constant mask is empty.

    PyTorch's exporter writes attention so. Only a row of -inf alone has no softmax. Products of numbers have one, also
    with a mask that has a number in each row.
    """
    guard, softmax = graph.made_by(op.inputs[0], "IsNaN"), graph.made_by(op.inputs[2], "Softmax")
    if guard is None or softmax is None or guard.inputs != op.inputs[2:]:
        return None
    scores = softmax.inputs[0]
    if masked := graph.made_by(scores, "Add"):
        masks = [name for name in masked.inputs if name in graph.folded and graph.values.get(name) is not None]
        if len(masks) != 1 or not _has_numbers(masks[0], softmax, graph):
            return None
        scores = next(name for name in masked.inputs if name != masks[0])
    is_number = graph.made_by(scores, "MatMul") is not None
    return ({}, (Op(op.name, "Identity", op.inputs[2:], op.outputs),)) if is_number else None


def _has_numbers(mask: str, softmax: Op, graph: KnownGraph) -> bool:
    """Whether each row of a known mask has a number, and is nowhere larger than all numbers."""
    value, rank = graph.values[mask], len(graph.tensors[softmax.inputs[0]].shape)
    axis = integer(softmax, "axis", -1)
    assert value is not None, "it is known"
    wide = value.reshape((1,) * (rank - value.ndim) + value.shape)
    return bool(np.isfinite(wide).any(axis=axis).all() and (wide < np.inf).all())


def unpooled_for(op: Op, graph: KnownGraph) -> KnownForm | None:
    """A MaxUnpool of the places that a pool found, whose windows share no element: a value goes to one of its window.

    A place counts through the whole tensor, and may be anywhere in it; what a pool found is in its own window, so that
    each value is held against the places there. None where windows differ, overlap or are padded.
    """
    (x, places), tensors, opset = op.inputs[:2], graph.tensors, graph.opset
    pool = graph.made_by(places, "MaxPool")
    if pool is None:
        return None
    sizes = graph.value_of(op.inputs[2]) if op.has_input(2) else tensors[pool.inputs[0]].shape
    if sizes is None or tuple(sizes) != tensors[pool.inputs[0]].shape:
        return None
    shape, unpooled = tensors[x].shape, tensors[pool.inputs[0]].shape
    kernel = integers(pool, "kernel_shape", ())
    count = len(kernel)
    plain = {"strides": kernel, "kernel_shape": kernel, "pads": (0,) * (2 * count), "dilations": (1,) * count}
    attributes = ((window_op, name) for window_op in (op, pool) for name in plain)
    default = {**plain, "strides": (1,) * count}
    fits = tensors[places].shape == shape and unpooled[2:] == tuple(map(mul, shape[2:], kernel)) and opset >= 13
    if not fits or any(integers(window_op, name, default[name]) != plain[name] for window_op, name in attributes):
        return None
    if text(pool, "auto_pad", "NOTSET") not in ("NOTSET", "VALID") or integer(pool, "storage_order", 0):
        return None
    emitter = Emitter(free_prefix(f"{op.name}/", sorted(tensors)), tensors, {}, opset)
    plane, apart = prod(unpooled[2:]), [3 + 2 * dim for dim in range(count)]
    first = (np.arange(prod(shape[:2])) * plane).reshape(*shape[:2], *(1 for _ in kernel))
    # Each dim becomes two, the window and the place in it, so that a value meets all places of its own window.
    inner = tuple(size for pair in zip(shape[2:], kernel, strict=True) for size in pair)
    places = emitter.unsqueeze(emitter.sub(places, emitter.constant(first, "planes")), apart)
    hit = emitter.compare("Equal", places, emitter.constant(np.arange(plane).reshape(inner), "positions"))
    spread = emitter.each("Where", "spread", hit, emitter.unsqueeze(x, apart), emitter.scalar(0.0, x, "nought"))
    *before, last = emitter.standing_for(op, (emitter.reshape(spread, unpooled, "unpooled"),))
    return emitter.constants, (*before, replace(last, name=op.name))


def split_for(op: Op, outputs: Sequence[Tensor], tensors: Mapping[str, Tensor]) -> KnownForm:
    """A Split without its empty outputs."""
    names = tuple(tensor.name for tensor in outputs)
    axis = integer(op, "axis", 0)
    sizes = fresh_name(f"{op.name}.sizes", tensors)
    extents = np.array([tensor.shape[axis] for tensor in outputs], np.int64)
    return {sizes: extents}, (Op(op.name, "Split", (op.inputs[0], sizes), names, (("axis", axis),)),)


def sizes_for(op: Op, graph: KnownGraph) -> KnownForm | None:
    """A Resize by sizes, where ONNX Runtime contradicts itself about what the scales make; None where it does not.

    Its kernel multiplies in float32, its shape inference in float64: 9 rows by 1.6666666 are 15 and 14. By sizes, the
    kernel divides them in float32, which gives the same scales again; where it does not, the op stays as it is.
    """
    scales = graph.values.get(op.inputs[2]) if op.has_input(0) and op.has_input(2) else None
    if scales is None:
        return None
    before = graph.tensors[op.inputs[0]].shape
    axes = op.attribute("axes", tuple(range(len(before))))
    factors = scales.astype(np.float32).ravel()
    places = range(-len(before), len(before))
    if not isinstance(axes, tuple) or len(factors) != len(axes) or not all(axis in places for axis in axes):
        return None  # its schema refuses it
    read = [before[axis] for axis in axes if isinstance(axis, int)]
    out_sizes = [int(np.float32(size) * scale) for size, scale in zip(read, factors, strict=True)]
    inferred = [int(size * float(scale)) for size, scale in zip(read, factors, strict=True)]
    ratios = [np.float32(after) / np.float32(size) for after, size in zip(out_sizes, read, strict=True) if size]
    if out_sizes == inferred or ratios != list(factors):
        return None
    sizes = fresh_name(f"{op.name}.sizes", graph.tensors)
    form = replace(op, inputs=(op.inputs[0], op.inputs[1], "", sizes))
    return {sizes: np.array(out_sizes, np.int64)}, (form,)
