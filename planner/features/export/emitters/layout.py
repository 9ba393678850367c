"""Ops that lay out elements anew, and make new ones of nothing."""

from __future__ import annotations

import numpy as np

from planner.features.export.emitters.registry import Form, emitter, literal, per_axes, tensor_attribute
from planner.graph.files.protos import dtype_of


@emitter("Reshape")
def reshape(form: Form) -> str:
    """A size of 0 is that of the input."""
    shape = form.integers(1)
    if form.integer("allowzero"):
        return f"jnp.reshape({form[0]}, {shape})"
    sizes = [f"{form[0]}.shape[{dim}]" if size == 0 else str(size) for dim, size in enumerate(shape)]
    return f"jnp.reshape({form[0]}, ({', '.join(sizes)}{',' if len(sizes) == 1 else ''}))"


@emitter("Flatten")
def flatten(form: Form) -> str:
    """Into two dims."""
    axis, text = form.integer("axis", 1), form[0]
    if axis == 1:
        return f"jnp.reshape({text}, ({text}.shape[0], -1))"
    if axis == 0:
        return f"jnp.reshape({text}, (1, -1))"
    raise form.refuse(f"axis {axis}")


@emitter("Transpose")
def transpose(form: Form) -> str:
    """Dims in another order."""
    order = form.listed("perm")
    return f"jnp.transpose({form[0]})" if order is None else f"jnp.transpose({form[0]}, {order})"


@emitter("Squeeze")
def squeeze(form: Form) -> str:
    """Without dims of size 1."""
    axes = per_axes(form)
    return f"jnp.squeeze({form[0]})" if axes is None else f"jnp.squeeze({form[0]}, {axes})"


@emitter("Unsqueeze")
def unsqueeze(form: Form) -> str:
    """With dims of size 1."""
    return f"jnp.expand_dims({form[0]}, {per_axes(form)})"


@emitter("Expand")
def expand(form: Form) -> str:
    """Broadcast, either way."""
    shape = form.integers(1)
    operand = form.operands[0]
    if operand is not None and operand.constant is not None and operand.constant.size == 1 >= operand.constant.ndim:
        return f"jnp.full({shape}, {form[0]})"
    return f"jnp.broadcast_to({form[0]}, jnp.broadcast_shapes({form[0]}.shape, {shape}))"


@emitter("Tile")
def tile(form: Form) -> str:
    """Repeated."""
    return f"jnp.tile({form[0]}, {form.integers(1)})"


@emitter("Concat")
def concat(form: Form) -> str:
    """Along an axis."""
    texts = ", ".join(form[position] for position in range(len(form.operands)))
    return f"jnp.concatenate(({texts}{',' if len(form.operands) == 1 else ''}), axis={form.integer('axis')})"


_END = 1 << 31


@emitter("Slice")
def slice_of(form: Form) -> str:
    """Python's slices, along some axes."""
    starts, ends = form.integers(1), form.integers(2)
    axes = form.integers(3) if form.has(3) else tuple(range(len(starts)))
    steps = form.integers(4) if form.has(4) else (1,) * len(starts)
    if any(axis < 0 for axis in axes):
        raise form.refuse("axes from the end")
    along = {}
    for axis, start, end, step in zip(axes, starts, ends, steps, strict=True):
        stop = "" if abs(end) >= _END else str(end)
        along[axis] = f"{start or '' if step > 0 else start}:{stop}" + (f":{step}" if step != 1 else "")
    return f"{form[0]}[{', '.join(along.get(dim, ':') for dim in range(max(along) + 1))}]"


@emitter("Pad")
def pad(form: Form) -> str:
    """With a constant."""
    if form.attribute("mode", "constant") != "constant":
        raise form.refuse(f"mode {form.attribute('mode')}")
    pads = form.integers(1) if form.has(1) else form.listed("pads") or ()
    if form.has(3):
        raise form.refuse("axes")
    half = len(pads) // 2
    value = f"jnp.reshape({form[2]}, ())" if form.has(2) else repr(form.number("value", 0.0))
    edges = tuple((pads[dim], pads[dim + half], 0) for dim in range(half))
    return f"lax.pad({form[0]}, jnp.array({value}, {form[0]}.dtype), {edges})"


@emitter("ConstantOfShape")
def constant_of_shape(form: Form) -> str:
    """Of one value."""
    value = tensor_attribute(form, "value")
    number = np.zeros((), dtype=np.float32) if value is None else value.reshape(())
    return f"jnp.full({form.integers(0)}, {literal(number)})"


@emitter("Constant")
def constant(form: Form) -> str:
    """As it stands."""
    value = tensor_attribute(form, "value")
    if value is None:
        raise form.refuse("a value that is no tensor")
    return literal(value)


@emitter("Range")
def numbers(form: Form) -> str:
    """From start to limit."""
    start, limit, delta = (form.constant(position) for position in range(3))
    return literal(np.arange(start.item(), limit.item(), delta.item(), dtype=start.dtype))


@emitter("Trilu")
def trilu(form: Form) -> str:
    """The upper or lower triangle."""
    offset = form.integers(1)[0] if form.has(1) else 0
    return f"jnp.{'triu' if form.integer('upper', 1) else 'tril'}({form[0]}, {offset})"


@emitter("EyeLike")
def eye_like(form: Form) -> str:
    """Ones on a diagonal."""
    stated = form.integer("dtype")
    dtype = dtype_of(stated) if stated else form.dtypes[0] if form.dtypes else None
    name = f"{form[0]}.dtype" if dtype is None else f"jnp.{dtype.value}"
    return f"jnp.eye(*{form[0]}.shape, k={form.integer('k')}, dtype={name})"
