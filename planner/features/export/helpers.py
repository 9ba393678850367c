"""Helper functions that a file of JAX gets where it uses them."""

from __future__ import annotations

from types import MappingProxyType
from typing import Final

HELPERS: Final = MappingProxyType(
    {
        "mine": '''
def mine(table):
    """What a table, a row for each device, says of this one."""
    return jnp.array(table)[lax.axis_index(AXES)]
''',
        "put": '''
def put(whole, box, place):
    """A box put, or added, at a place of an array; a device to which nothing was sent has a box of zeros."""
    there = lax.dynamic_update_slice(jnp.zeros_like(whole), box, place)
    return whole | there if whole.dtype == jnp.bool_ else whole + there
''',
        "only": '''
def only(takes, box):
    """A box where a table says so, and zeros on other devices."""
    return jnp.where(mine(takes), box, jnp.zeros_like(box))
''',
        "join": '''
def join(whole, box, place, takes, function):
    """A box joined with what an array has at a place, on the devices that a table names."""
    joined = function(lax.dynamic_slice(whole, place, box.shape), box)
    return jnp.where(mine(takes), lax.dynamic_update_slice(whole, joined, place), whole)
''',
        "part": '''
def part(x, axes, dim):
    """This device's part of a dim that is divided along axes of the mesh."""
    size = x.shape[dim] // lax.axis_size(axes)
    return lax.dynamic_slice_in_dim(x, lax.axis_index(axes) * size, size, dim)
''',
        "conv_transpose": '''
def conv_transpose(x, w, strides, edges, dilations, groups):
    """The data gradient of a convolution with this kernel, [in, out / groups, ...]."""
    w = w.reshape(groups, w.shape[0] // groups, *w.shape[1:]).swapaxes(1, 2)
    w = jnp.flip(w.reshape(-1, *w.shape[2:]), tuple(range(2, x.ndim)))
    ones = (1,) * (x.ndim - 2)
    return lax.conv_general_dilated(x, w, ones, edges, strides, dilations, feature_group_count=groups)
''',
        "max_pool": '''
def max_pool(x, kernel, strides, edges, dilations):
    """The largest element of each window."""
    lowest = jnp.array(-jnp.inf if jnp.issubdtype(x.dtype, jnp.floating) else jnp.iinfo(x.dtype).min, x.dtype)
    sizes = ((1, 1, *kernel), (1, 1, *strides), ((0, 0), (0, 0), *edges), (1,) * x.ndim, (1, 1, *dilations))
    return lax.reduce_window(x, lowest, lax.max, *sizes)
''',
        "max_pool_indices": '''
def max_pool_indices(x, kernel, strides, edges, dilations):
    """The largest element of each window, and its number in the array."""
    lowest = -jnp.inf if jnp.issubdtype(x.dtype, jnp.floating) else jnp.iinfo(x.dtype).min
    pads = ((0, 0), (0, 0), *edges)
    values = jnp.pad(x, pads, constant_values=lowest)
    numbers = jnp.pad(jnp.arange(x.size, dtype=jnp.int64).reshape(x.shape), pads)
    offsets = [()]
    for size, dilation in zip(kernel, dilations):
        offsets = [(*before, number * dilation) for before in offsets for number in range(size)]
    ends = [whole - (size - 1) * dilation for whole, size, dilation in zip(values.shape[2:], kernel, dilations)]

    def taken(array):
        return jnp.stack([
            array[:, :, *(slice(first, first + end, stride) for first, end, stride in zip(offset, ends, strides))]
            for offset in offsets
        ])

    chosen = jnp.argmax(taken(values), axis=0)[None]
    return tuple(jnp.take_along_axis(taken(array), chosen, axis=0)[0] for array in (values, numbers))
''',
        "average_pool": '''
def average_pool(x, kernel, strides, edges, dilations, counts_padding):
    """The mean of each window; padding counts as elements, or it does not."""
    sizes, pads = ((1, 1, *kernel), (1, 1, *strides)), ((0, 0), (0, 0), *edges)
    gaps = ((1,) * x.ndim, (1, 1, *dilations))
    zero = jnp.array(0, x.dtype)
    ones = jnp.pad(jnp.ones((1, 1, *x.shape[2:]), x.dtype), pads, constant_values=1 if counts_padding else 0)
    counts = lax.reduce_window(ones, zero, lax.add, *sizes, "VALID", *gaps)
    return lax.reduce_window(x, zero, lax.add, *sizes, pads, *gaps) / counts
''',
        "layer_normalization": '''
def layer_normalization(x, scale, bias, axis, epsilon):
    """The result, the mean, and one over the deviation."""
    axes = tuple(range(axis % x.ndim, x.ndim))
    mean = jnp.mean(x, axes, keepdims=True)
    inverse = 1 / jnp.sqrt(jnp.mean(jnp.square(x - mean), axes, keepdims=True) + epsilon)
    result = (x - mean) * inverse * scale
    return (result if bias is None else result + bias), mean, inverse
''',
        "batch_normalization": '''
def batch_normalization(x, scale, bias, mean, variance, epsilon):
    """By statistics that are given, one for each channel."""
    scale, bias, mean, variance = (one.reshape(-1, *(1,) * (x.ndim - 2)) for one in (scale, bias, mean, variance))
    return (x - mean) / jnp.sqrt(variance + epsilon) * scale + bias
''',
        "sums_so_far": '''
def sums_so_far(x, axis, exclusive, reverse):
    """Sums of what comes before each element (after it, reverse), and of the element unless exclusive."""
    x = jnp.flip(x, axis) if reverse else x
    if exclusive:
        zero = jnp.zeros_like(lax.slice_in_dim(x, 0, 1, axis=axis))
        x = jnp.concatenate([zero, lax.slice_in_dim(x, 0, x.shape[axis] - 1, axis=axis)], axis)
    x = jnp.cumsum(x, axis, dtype=x.dtype)
    return jnp.flip(x, axis) if reverse else x
''',
        "top_k": '''
def top_k(x, k, axis, largest):
    """The k largest or smallest elements along an axis, of equal ones the first, and their numbers."""
    places = lax.slice_in_dim(jnp.argsort(x, axis=axis, stable=True, descending=largest), 0, k, axis=axis)
    return jnp.take_along_axis(x, places, axis=axis), places.astype(jnp.int64)
''',
        "at_elements": '''
def at_elements(x, indices, axis):
    """Where elements are put by their numbers along an axis."""
    where = list(jnp.indices(indices.shape, sparse=True))
    where[axis] = indices
    return x.at[tuple(where)]
''',
    }
)
"""Sources by name; ``mine`` and ``put`` need the mesh's axes, which stand before them."""
