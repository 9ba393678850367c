"""Convolutions and pooling."""

from __future__ import annotations

from planner.features.export.emitters.registry import Form, emitter


def _edges(form: Form, rank: int) -> tuple[tuple[int, int], ...]:
    """Pads before and after, by spatial dim."""
    if form.attribute("auto_pad", "NOTSET") not in ("NOTSET", "VALID"):
        raise form.refuse(f"auto_pad {form.attribute('auto_pad')}")
    pads = form.listed("pads") or (0,) * (2 * rank)
    return tuple((pads[dim], pads[dim + rank]) for dim in range(rank))


def _per_dim(form: Form, name: str, rank: int) -> tuple[int, ...]:
    return form.listed(name) or (1,) * rank


def _biased(form: Form, text: str, rank: int) -> str:
    return text if not form.has(2) else f"{text} + jnp.reshape({form[2]}, {(-1, *(1,) * rank)})"


def _rank(form: Form) -> int:
    kernel = form.listed("kernel_shape")
    if kernel is None:
        raise form.refuse("no kernel_shape")
    for name in ("ceil_mode", "storage_order"):
        if form.integer(name):
            raise form.refuse(name)
    return len(kernel)


@emitter("Conv")
def conv(form: Form) -> str:
    """Any rank, grouped or not."""
    rank = _rank(form)
    arguments = [f"{_per_dim(form, 'strides', rank)}", f"{_edges(form, rank)}"]
    if any(dilation != 1 for dilation in _per_dim(form, "dilations", rank)):
        arguments.append(f"rhs_dilation={_per_dim(form, 'dilations', rank)}")
    if form.integer("group", 1) != 1:
        arguments.append(f"feature_group_count={form.integer('group', 1)}")
    return _biased(form, f"lax.conv_general_dilated({form[0]}, {form[1]}, {', '.join(arguments)})", rank)


@emitter("ConvTranspose")
def conv_transpose(form: Form) -> str:
    """The data gradient of a convolution."""
    rank = _rank(form)
    if form.attribute("output_shape") is not None:
        raise form.refuse("output_shape")
    strides, dilations = _per_dim(form, "strides", rank), _per_dim(form, "dilations", rank)
    extra = form.listed("output_padding") or (0,) * rank
    kernel = form.listed("kernel_shape") or ()
    edges = tuple(
        ((kernel[dim] - 1) * dilations[dim] - before, (kernel[dim] - 1) * dilations[dim] - after + extra[dim])
        for dim, (before, after) in enumerate(_edges(form, rank))
    )
    group = form.integer("group", 1)
    function = form.needs("conv_transpose")
    return _biased(form, f"{function}({form[0]}, {form[1]}, {strides}, {edges}, {dilations}, {group})", rank)


@emitter("MaxPool")
def max_pool(form: Form) -> str:
    """The largest of each window."""
    rank = _rank(form)
    has_indices = len(form.node.outputs) > 1 and bool(form.node.outputs[1])
    return (
        f"{form.needs('max_pool_indices' if has_indices else 'max_pool')}({form[0]}, {form.listed('kernel_shape')}, "
        f"{_per_dim(form, 'strides', rank)}, {_edges(form, rank)}, {_per_dim(form, 'dilations', rank)})"
    )


@emitter("AveragePool")
def average_pool(form: Form) -> str:
    """The mean of each window, with or without the padding."""
    rank = _rank(form)
    return (
        f"{form.needs('average_pool')}({form[0]}, {form.listed('kernel_shape')}, {_per_dim(form, 'strides', rank)}, "
        f"{_edges(form, rank)}, {_per_dim(form, 'dilations', rank)}, {bool(form.integer('count_include_pad'))})"
    )


@emitter("GlobalAveragePool")
def global_average_pool(form: Form) -> str:
    """The mean of each channel."""
    return f"jnp.mean({form[0]}, axis=tuple(range(2, {form[0]}.ndim)), keepdims=True)"
