"""Operators in others for CPUs, where ONNX Runtime's kernel is slow."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from itertools import product
from typing import Final

from planner.graph.core.attributes import integer, integers
from planner.graph.core.emitter import Emitter
from planner.graph.core.model import Attribute, DType, Op, Shape
from planner.graph.core.traits import BROADCASTING
from planner.graph.decompositions.channel_blocks import in_blocks
from planner.graph.decompositions.image_kernels import LEAST_OPSET, ImageKernel
from planner.graph.decompositions.registry import Purpose, stands_for
from planner.graph.rewriting.products import Labels, product_of

_LEAST_CHANNELS: Final = 16
"""Below, the rows that a window takes of an image in which channels lie together are too short."""
_MOST_WINDOWS: Final = 9
"""Of few channels."""
_SMALL_IMAGE: Final = 64
"""Elements up to which what belongs to all windows, or makes them, is one operand: it lies in the cache."""
_FEW_COLUMNS: Final = 16
"""Windows below which a product for each sample has too few columns."""
_MOST_TAPS: Final = 25
"""Elements of a filter that have a Slice or a Pad each."""
_MOST_PARTS: Final = 1 << 23
"""Elements of what a product of all samples reads or makes, which is there besides the images."""
_LEAST_TURNED: Final = 512
"""Sizes of products from which on it is faster to turn an operand before."""
_LEAST_ELEMENTS: Final = 256
"""Of an operand that is worth two Reshapes."""


@stands_for("Conv", purpose=Purpose.CPU, is_better=True)
def convolution(emitter: Emitter, op: Op) -> tuple[str, ...] | None:
    """A convolution of few windows as products, or on blocks of channels."""
    image = ImageKernel.of(emitter, op)
    if image is None or emitter.opset < LEAST_OPSET:
        return None
    windows, size = image.windows_count, math.prod(image.kernel)
    is_small = 1 < windows < (_SMALL_IMAGE if set(image.strides) == {1} else _FEW_COLUMNS) and image.samples > 1
    is_small = is_small and size * windows * image.channels * image.samples <= _MOST_PARTS
    if is_small and image.group == 1 < size <= _MOST_TAPS:
        return (_of_small_images(emitter, image, *op.inputs),)
    if len(op.inputs) == 2 and (gradient := _filter_gradient(emitter, op, image)) is not None:
        return gradient
    x, w, *bias = op.inputs
    blocks = in_blocks(emitter, x, w, image, *bias)
    return None if blocks is None else (blocks,)


def _filter_gradient(emitter: Emitter, op: Op, image: ImageKernel) -> tuple[str, ...] | None:
    """A convolution of no more windows than the kernel has elements as matrix products with what each window takes.

    Such is the gradient of a filter, whose kernel is an image. ONNX Runtime's kernel makes a matrix of as few columns
    as there are windows for each sample, and takes two to six times as long. Transposes around the op, and those made
    here, become one.
    """
    if not image.windows_overlap or image.windows_count > math.prod(image.kernel) or image.group != 1:
        return None
    size, channels = math.prod(image.kernel), image.samples
    is_dense = all(step == 1 for step in (*image.strides, *image.dilations))
    is_small = image.windows_count * channels * image.kernels <= (channels + image.kernels) * size
    if is_dense and ((image.windows_count == 1 and is_small) or channels < _LEAST_CHANNELS):
        return _by_image(emitter, op, image) if image.windows_count <= _MOST_WINDOWS else None
    return _by_channels(emitter, op, image) if channels >= _LEAST_CHANNELS else None


def _by_image(emitter: Emitter, op: Op, image: ImageKernel) -> tuple[str, ...]:
    """A product for each image, and the sum over images: their elements lie together."""
    spatial = range(2, 2 + len(image.kernel))
    x, w = (emitter.transpose(name, (1, 0, *spatial)) for name in op.inputs)
    size = math.prod(image.kernel)
    boxes = [emitter.reshape(box, (image.channels, image.samples, size)) for box in _boxes(emitter, image, x, 2)]
    lhs = emitter.reshape(w, (image.channels, image.kernels, size))
    rhs = emitter.transpose(emitter.concat(boxes, 1), (0, 2, 1))
    return (_gradient(emitter, image, emitter.reduce_sum(emitter.matmul(lhs, rhs, "products"), [0])),)


def _by_channels(emitter: Emitter, op: Op, image: ImageKernel) -> tuple[str, ...]:
    """A product for each window, or one for all where an image is small: the channels of an element lie together."""
    rank, rows = len(image.kernel), image.channels * math.prod(image.kernel)
    x = emitter.transpose(op.inputs[0], (*range(1, 2 + rank), 0))
    lhs = emitter.reshape(op.inputs[1], (image.kernels, rows))
    boxes = _boxes(emitter, image, x, 1)
    if math.prod(image.kernel) <= _SMALL_IMAGE:
        boxes = [emitter.concat(boxes, 1 + rank)]
    products = [emitter.matmul(lhs, emitter.reshape(box, (rows, emitter.shape(box)[-1]))) for box in boxes]
    return (_gradient(emitter, image, emitter.concat(products, 1)),)


def _of_small_images(emitter: Emitter, image: ImageKernel, x: str, w: str, bias: str = "") -> str:
    """One product of all samples, which lie together."""
    rank, rows = len(image.kernel), image.channels * math.prod(image.kernel)
    taps = replace(image, kernel=image.windows, windows=image.kernel, strides=image.dilations, dilations=image.strides)
    boxes = _boxes(emitter, taps, emitter.transpose(x, (1, *range(2, 2 + rank), 0)), 1)
    columns = image.samples * image.windows_count
    flat = [emitter.reshape(box, (image.channels, 1, columns)) for box in boxes]
    rhs = emitter.reshape(emitter.concat(flat, 1), (rows, columns))
    y = emitter.matmul(emitter.reshape(w, (image.kernels, rows)), rhs)
    y = emitter.add(y, emitter.reshape(bias, (image.kernels, 1))) if bias else y
    y = emitter.reshape(y, (image.kernels, *image.windows, image.samples))
    return emitter.transpose(y, (1 + rank, *range(1 + rank)))


def _boxes(emitter: Emitter, image: ImageKernel, x: str, first: int) -> list[str]:
    """What each window takes of images whose spatial dims begin at a dim."""
    rank = len(image.kernel)
    around = [(0,) * first, (0,) * (emitter.rank(x) - first - rank)]
    x = emitter.pad(x, (*around[0], *image.before, *around[1]), (*around[0], *image.after, *around[1]))
    sizes = emitter.shape(x)
    steps = dict(enumerate(image.dilations, first))
    spans = [(size - 1) * step + 1 for size, step in zip(image.kernel, image.dilations, strict=True)]
    boxes = []
    for starts in image.starts():
        begin, end = [0] * len(sizes), list(sizes)
        begin[first : first + rank] = starts
        end[first : first + rank] = [start + span for start, span in zip(starts, spans, strict=True)]
        boxes.append(emitter.every(emitter.slice(x, begin, end), steps))
    return boxes


def _gradient(emitter: Emitter, image: ImageKernel, products: str) -> str:
    """The result of [kernels, windows · samples], as the op has it."""
    apart = emitter.reshape(products, (image.kernels, image.windows_count, image.samples))
    turned = emitter.reshape(emitter.transpose(apart, (0, 2, 1)), (image.kernels, image.samples, *image.windows))
    return emitter.transpose(turned, (1, 0, *range(2, 2 + len(image.windows))))


@stands_for("ConvTranspose", purpose=Purpose.CPU, is_better=True)
def data_gradient(emitter: Emitter, op: Op) -> tuple[str, ...] | None:
    """A convolution with the filters turned, where each window is an element, or on blocks of channels; of small images
    one product of all samples, whose parts are added up.
    """
    x, w = op.inputs[:2]
    samples, kernels, *sizes = emitter.shape(x)
    _, channels, *kernel = emitter.shape(w)
    rank, group, dtype, result = len(kernel), integer(op, "group", 1), emitter.dtype(x), emitter.shape(op.outputs[0])
    is_plain = len(op.inputs) == 2 and op.attribute("auto_pad") in (None, "NOTSET")
    if not is_plain or op.attribute("output_shape") or emitter.opset < LEAST_OPSET:
        return None
    strides, dilations = (integers(op, name, (1,) * rank) for name in ("strides", "dilations"))
    before = integers(op, "pads", (0,) * (2 * rank))[:rank]
    turned = (1, 0, *range(2, 2 + rank))
    is_small = group == 1 < samples and math.prod(sizes) < _SMALL_IMAGE
    is_small = is_small and math.prod((channels, samples, *kernel, *sizes)) <= _MOST_PARTS
    if is_small and max(math.prod(kernel), math.prod(strides)) <= _MOST_TAPS:
        return (_added(emitter, x, w, result, strides, dilations, before),)
    if group == math.prod((*kernel, *strides)) == 1 and not any(before) and result[2:] == tuple(sizes):
        stated: dict[str, Attribute] = {"kernel_shape": tuple(kernel)}
        return (emitter.one("Conv", [x, emitter.transpose(w, turned)], result, dtype, attributes=stated),)
    spans = [(size - 1) * step + 1 for size, step in zip(kernel, dilations, strict=True)]
    first = tuple(span - 1 - pad for span, pad in zip(spans, before, strict=True))
    last = tuple(extent - size + pad for extent, size, pad in zip(result[2:], sizes, before, strict=True))
    if set(strides) != {1} or min(*first, *last) < 0 or (group != 1 and (channels != 1 or group != kernels)):
        return None
    w = emitter.reverse(w if group != 1 else emitter.transpose(w, turned), range(2, 2 + rank))
    image = ImageKernel(samples, emitter.shape(w)[1], emitter.shape(w)[0], group, tuple(kernel), result[2:], strides,
                        dilations, first, last)  # fmt: skip
    blocks = in_blocks(emitter, x, w, image)
    return None if blocks is None else (blocks,)


def _added(
    emitter: Emitter, x: str, w: str, result: Shape, strides: Shape, dilations: Shape, before: Sequence[int]
) -> str:
    """What every element of the kernels makes of all images, added up where it belongs: samples lie together.

    Elements that lie a stride apart are added up by themselves.
    """
    (samples, kernels, *sizes), (_, channels, *kernel) = emitter.shape(x), emitter.shape(w)
    rank, columns, dtype = len(sizes), samples * math.prod(sizes), emitter.dtype(x)
    lhs = emitter.transpose(emitter.reshape(w, (kernels, channels * math.prod(kernel))), (1, 0))
    rhs = emitter.reshape(emitter.transpose(x, (1, *range(2, 2 + rank), 0)), (kernels, columns))
    parts = emitter.reshape(emitter.matmul(lhs, rhs), (channels, math.prod(kernel), columns))
    apart = [-(-size // stride) for size, stride in zip(result[2:], strides, strict=True)]
    moved: dict[tuple[int, ...], list[str]] = {}
    for number, tap in enumerate(product(*map(range, kernel))):
        part = emitter.slice(parts, (0, number, 0), (channels, number + 1, columns))
        places = [index * step - pad for index, step, pad in zip(tap, dilations, before, strict=True)]
        starts = [place // stride for place, stride in zip(places, strides, strict=True)]
        ends = [length - size - start for length, size, start in zip(apart, sizes, starts, strict=True)]
        if any(end <= -size or start <= -size for size, start, end in zip(sizes, starts, ends, strict=True)):
            continue  # all of it lies beyond
        part = emitter.pad(emitter.reshape(part, (channels, *sizes, samples)), (0, *starts, 0), (0, *ends, 0))
        phase = tuple(place % stride for place, stride in zip(places, strides, strict=True))
        moved.setdefault(phase, []).append(part)

    def joined(*phase: int) -> str:
        """[channels, *apart, samples], where the dims are whole that the phase does not state."""
        dim = len(phase)
        shape = [channels, *apart[:dim], *result[2 + dim :], samples]
        if dim == rank:
            if phase not in moved:
                return emitter.zeros(tuple(shape), x)
            return emitter.one("Sum", moved[phase], tuple(shape), dtype, hint="total")
        inner = [joined(*phase, place) for place in range(strides[dim])]
        rows = channels * math.prod(apart[: dim + 1])
        lines = [emitter.reshape(block, (rows, math.prod(shape[dim + 2 :]))) for block in inner]
        grid_shape = [channels, *apart[:dim], apart[dim] * strides[dim], *shape[dim + 2 :]]
        grid = emitter.reshape(emitter.concat(lines, 1), grid_shape)
        return emitter.slice(grid, (0,) * len(shape), shape)

    return emitter.transpose(joined(), (1 + rank, *range(1 + rank)))


@stands_for("Einsum", purpose=Purpose.CPU, is_better=True)
def matrix_product(emitter: Emitter, op: Op) -> tuple[str, ...] | None:
    """A product of stacks of matrices as MatMul between Transposes, which ONNX Runtime makes one kernel of."""
    product = product_of(op, {name: emitter.tensor(name) for name in (*op.inputs, *op.outputs)})
    if product is None or len(product.operands) != 2 or product.dtype is not DType.FLOAT32:
        return None
    lhs, rhs = product.labels
    stack = [label for label in product.result if label in lhs and label in rhs]
    rows, columns = ([label for label in product.result if label in term and label not in stack] for term in (lhs, rhs))
    inner = [label for label in lhs if label in rhs and label not in stack]
    # What one operand alone has, and the result has not, is a sum before the product.
    if {*lhs, *rhs} != {*stack, *rows, *columns, *inner} or {*product.result} != {*stack, *rows, *columns}:
        return None
    sizes = {label: size for name, term in zip(product.operands, product.labels, strict=True)
             for label, size in zip(term, emitter.shape(name), strict=True)}  # fmt: skip

    def turned(name: str, labels: Labels, first: list[int], second: list[int]) -> str:
        order = [*stack, *first, *second]
        shape = [
            *(sizes[label] for label in stack),
            *(math.prod(sizes[label] for label in part) for part in (first, second)),
        ]
        return emitter.reshape(emitter.transpose(name, [labels.index(label) for label in order]), shape)

    a, b = product.operands
    result = emitter.matmul(turned(a, lhs, rows, inner), turned(b, rhs, inner, columns))
    order = [*stack, *rows, *columns]
    apart = emitter.reshape(result, [sizes[label] for label in order])
    return (emitter.transpose(apart, [order.index(label) for label in product.result]),)


@stands_for("Gemm", purpose=Purpose.CPU, is_better=True)
def turned_product(emitter: Emitter, op: Op) -> tuple[str, ...] | None:
    """A product whose first operand is read turned, as in gradients of matrices: the smaller operand is turned before.

    ONNX Runtime's kernel turns it block by block, most of them several times, and is slow where rows are many.
    """
    if not integer(op, "transA", 0) or integer(op, "transB", 0) or op.has_input(2) or op.attribute("alpha", 1.0) != 1.0:
        return None
    a, b = op.inputs[:2]
    (inner, rows), columns = emitter.shape(a), emitter.shape(b)[1]
    if min(inner, rows, columns) < _LEAST_TURNED:
        return None
    first, second = (a, b) if rows <= columns else (b, a)
    # Reshapes keep the optimizer from putting Transposes into the product again.
    turned = emitter.reshape(emitter.transpose(first, (1, 0)), (1, min(rows, columns), inner))
    y = emitter.reshape(emitter.matmul(turned, second), (min(rows, columns), max(rows, columns)))
    return (y if rows <= columns else emitter.transpose(y, (1, 0)),)


@stands_for(*sorted(BROADCASTING), purpose=Purpose.CPU, is_better=True)
def flat(emitter: Emitter, op: Op) -> tuple[str, ...] | None:
    """An op of a number and a tensor that ends in dims of one element, on the tensor as a list.

    ONNX Runtime loops over the last dims that broadcast alike: over one element at a time.
    """
    shapes = {emitter.shape(name) for name in op.inputs if math.prod(emitter.shape(name)) != 1}
    if len(shapes) != 1 or all(math.prod(emitter.shape(name)) != 1 for name in op.inputs):
        return None
    (shape,) = shapes
    if shape[-1] != 1 or math.prod(shape) < _LEAST_ELEMENTS or any(emitter.rank(x) > len(shape) for x in op.inputs):
        return None
    operands = [emitter.reshape(name, (math.prod(emitter.shape(name)),)) for name in op.inputs]
    dtype = emitter.dtype(op.outputs[0])
    result = emitter.one(op.op_type, operands, (math.prod(shape),), dtype, attributes=dict(op.attributes))
    return (emitter.reshape(result, shape),)
