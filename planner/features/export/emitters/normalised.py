"""Softmax and normalisations."""

from __future__ import annotations

from functools import partial

from planner.features.export.emitters.registry import Form, emitter


def _softmax(function: str, form: Form) -> str:
    """Along an axis; before opset 13 along all that follow it."""
    if form.opset < 13:
        raise form.refuse("opset below 13")
    return f"jax.nn.{function}({form[0]}, axis={form.integer('axis', -1)})"


emitter("Softmax")(partial(_softmax, "softmax"))
emitter("LogSoftmax")(partial(_softmax, "log_softmax"))


@emitter("LayerNormalization")
def layer_normalization(form: Form) -> str:
    """The result alone, or also the mean and the inverse deviation."""
    scale_bias = ", ".join(form[position] if form.has(position) else "None" for position in (1, 2))
    form.read.add("stash_type")  # a precision
    text = (
        f"{form.needs('layer_normalization')}({form[0]}, {scale_bias}, "
        f"{form.integer('axis', -1)}, {form.number('epsilon', 1e-5)!r})"
    )
    count = len(form.node.outputs)
    return f"{text}[0]" if count == 1 else text if count == 3 else f"{text}[:{count}]"


@emitter("RMSNormalization")
def rms_normalization(form: Form) -> str:
    """By the root of the mean square."""
    axis = form.integer("axis", -1)
    if axis >= 0:
        raise form.refuse("an axis from the front")
    axes = tuple(range(axis, 0))
    form.read.add("stash_type")
    mean = f"jnp.mean(jnp.square({form[0]}), {axes}, keepdims=True)"
    return f"{form[0]} / jnp.sqrt({mean} + {form.number('epsilon', 1e-5)!r}) * {form[1]}"


@emitter("BatchNormalization")
def batch_normalization(form: Form) -> str:
    """By statistics that are given."""
    if form.integer("training_mode"):
        raise form.refuse("training mode (its body is written)")
    form.read.add("momentum")  # of training
    function = form.needs("batch_normalization")
    return f"{function}({', '.join(form[position] for position in range(5))}, {form.number('epsilon', 1e-5)!r})"
