"""Reductions."""

from __future__ import annotations

from types import MappingProxyType
from typing import Final

from planner.features.export.emitters.registry import Form, emitter, per_axes
from planner.graph.core.model import DType

_FUNCTIONS: Final = MappingProxyType(
    {
        "ReduceSum": "jnp.sum({0}, {1})",
        "ReduceMean": "jnp.mean({0}, {1})",
        "ReduceMax": "jnp.max({0}, {1})",
        "ReduceMin": "jnp.min({0}, {1})",
        "ReduceProd": "jnp.prod({0}, {1})",
        "ReduceL1": "jnp.sum(jnp.abs({0}), {1})",
        "ReduceL2": "jnp.sqrt(jnp.sum(jnp.square({0}), {1}))",
        "ReduceSumSquare": "jnp.sum(jnp.square({0}), {1})",
        "ReduceLogSum": "jnp.log(jnp.sum({0}, {1}))",
        "ReduceLogSumExp": "jax.nn.logsumexp({0}, {1})",
    }
)


@emitter(*_FUNCTIONS)
def reduce(form: Form) -> str:
    """Over some axes, or all."""
    is_noop = form.integer("noop_with_empty_axes")
    axes = per_axes(form) or (() if is_noop else None)
    arguments = f"axis={axes}, keepdims={bool(form.integer('keepdims', 1))}"
    text = _FUNCTIONS[form.node.op_type].format(form[0], arguments)
    dtype = form.dtypes[0] if form.dtypes else None
    # JAX widens sums of integers, and makes floats of their means and roots.
    return text if dtype in (None, DType.FLOAT32) else f"{text}.astype({form[0]}.dtype)"


@emitter("ArgMax", "ArgMin")
def arg(form: Form) -> str:
    """The first of equal ones, or the last."""
    if form.integer("select_last_index"):
        raise form.refuse("select_last_index")
    arguments = f"axis={form.integer('axis')}, keepdims={bool(form.integer('keepdims', 1))}"
    return f"jnp.{form.node.op_type.lower()}({form[0]}, {arguments}).astype(jnp.int64)"


@emitter("TopK")
def top_k(form: Form) -> str:
    """The first in rank, and where they stand; without ``sorted`` any order is right."""
    form.read.add("sorted")
    is_largest = bool(form.integer("largest", 1))
    return f"{form.needs('top_k')}({form[0]}, {form.integers(1)[0]}, {form.integer('axis', -1)}, {is_largest})"


@emitter("CumSum")
def cumsum(form: Form) -> str:
    """Sums so far, from either end, with an element itself or without it."""
    axis, is_exclusive, is_reverse = form.integers(1)[0], form.integer("exclusive"), form.integer("reverse")
    if is_exclusive or is_reverse:
        return f"{form.needs('sums_so_far')}({form[0]}, {axis}, {bool(is_exclusive)}, {bool(is_reverse)})"
    return f"jnp.cumsum({form[0]}, axis={axis}, dtype={form[0]}.dtype)"
