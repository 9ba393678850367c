"""Lookups and scatters."""

from __future__ import annotations

from planner.features.export.emitters.registry import Form, emitter


@emitter("Gather")
def gather(form: Form) -> str:
    """Rows by number; a negative one counts from the end."""
    return f'jnp.take({form[0]}, {form[1]}, axis={form.integer("axis")}, mode="wrap")'


@emitter("GatherElements")
def gather_elements(form: Form) -> str:
    """Elements by number."""
    return f"jnp.take_along_axis({form[0]}, {form[1]}, axis={form.integer('axis')})"


@emitter("GatherND")
def gather_nd(form: Form) -> str:
    """Slices by the numbers of their first dims."""
    if form.integer("batch_dims"):
        raise form.refuse("batch_dims")
    return f"{form[0]}[tuple(jnp.moveaxis({form[1]}, -1, 0))]"


_SCATTERED = {"none": "set", "add": "add", "mul": "multiply", "max": "max", "min": "min"}


@emitter("ScatterND")
def scatter_nd(form: Form) -> str:
    """Slices put, or joined, at the numbers of their first dims."""
    how = _SCATTERED[str(form.attribute("reduction", "none"))]
    return f"{form[0]}.at[tuple(jnp.moveaxis({form[1]}, -1, 0))].{how}({form[2]})"


@emitter("ScatterElements")
def scatter_elements(form: Form) -> str:
    """Elements put, or joined, by number."""
    how = _SCATTERED[str(form.attribute("reduction", "none"))]
    return f"{form.needs('at_elements')}({form[0]}, {form[1]}, {form.integer('axis')}).{how}({form[2]})"


@emitter("OneHot")
def one_hot(form: Form) -> str:
    """One of two values; a negative index counts from the end, and one beyond the depth sets nothing."""
    depth = int(form.constant(1).reshape(()))
    index = f"jnp.where({form[0]} < 0, {form[0]} + {depth}, {form[0]})"
    hot = f"jax.nn.one_hot({index}, {depth}, axis={form.integer('axis', -1)}, dtype=jnp.bool_)"
    return f"jnp.where({hot}, {form[2]}[1], {form[2]}[0])"
