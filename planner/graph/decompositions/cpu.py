"""Operators in others for CPUs, where ONNX Runtime's kernel is slow."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from itertools import product
from typing import Final

from planner.graph.attributes import integer, integers
from planner.graph.decompositions.image_kernels import LEAST_OPSET, ImageKernel
from planner.graph.decompositions.registry import Purpose, stands_for
from planner.graph.emitter import Emitter
from planner.graph.model import DType, Op, Shape
from planner.graph.rewriting.products import Labels, product_of
from planner.graph.traits import BROADCASTING

_LEAST_CHANNELS: Final = 16
"""Below, the rows that a window takes of an image in which channels lie together are too short."""
_MOST_TAPS: Final = 9
"""Of windows of few channels."""
_SMALL_IMAGE: Final = 64
"""Elements up to which the boxes of all windows are one operand: they lie in the cache."""
_FEW_COLUMNS: Final = 16
"""Elements of an image up to which a product for each sample has too few columns."""
_MOST_LINE: Final = 16
"""Elements of a padded line of an image for each of a line's windows."""
_LEAST_ELEMENTS: Final = 256
"""Of an operand that is worth two Reshapes."""


@stands_for("Conv", purpose=Purpose.CPU, is_better=True)
def filter_gradient(emitter: Emitter, op: Op) -> tuple[str, ...] | None:
    """A convolution of no more windows than the kernel has elements as matrix products with what each window takes.

    Such is the gradient of a filter, whose kernel is an image. ONNX Runtime's kernel makes a matrix of as few columns
    as there are windows for each sample, and takes two to six times as long. Transposes around the op, and those made
    here, become one.
    """
    image = ImageKernel.of(emitter, op) if len(op.inputs) == 2 else None
    if image is None or emitter.opset < LEAST_OPSET:
        return None
    if not image.windows_overlap or image.windows_count > math.prod(image.kernel):
        return None
    if image.group != 1:
        is_by_channel = image.samples == image.channels == image.windows[0] == 1
        return _by_line(emitter, op, image) if is_by_channel and image.before[0] == image.after[0] == 0 else None
    size, channels = math.prod(image.kernel), image.samples
    is_dense = all(step == 1 for step in (*image.strides, *image.dilations))
    few = image.windows_count * channels * image.kernels <= (channels + image.kernels) * size
    if is_dense and ((image.windows_count == 1 and few) or channels < _LEAST_CHANNELS):
        return _by_image(emitter, op, image) if image.windows_count <= _MOST_TAPS else None
    return _by_channels(emitter, op, image) if channels >= _LEAST_CHANNELS else None


def _by_image(emitter: Emitter, op: Op, image: ImageKernel) -> tuple[str, ...]:
    """A product for each image, and the sum over images: their elements lie together."""
    spatial = range(2, 2 + len(image.kernel))
    x, w = (emitter.transpose(name, (1, 0, *spatial)) for name in op.inputs)
    size = math.prod(image.kernel)
    boxes = [emitter.reshape(box, (image.channels, image.samples, size)) for box in _boxes(emitter, image, x, 2)]
    left = emitter.reshape(w, (image.channels, image.kernels, size))
    right = emitter.transpose(emitter.concat(boxes, 1), (0, 2, 1))
    return (_gradient(emitter, image, emitter.reduce_sum(emitter.matmul(left, right, "products"), [0])),)


def _by_channels(emitter: Emitter, op: Op, image: ImageKernel) -> tuple[str, ...]:
    """A product for each window, or one for all where an image is small: the channels of an element lie together."""
    rank, rows = len(image.kernel), image.channels * math.prod(image.kernel)
    x = emitter.transpose(op.inputs[0], (*range(1, 2 + rank), 0))
    left = emitter.reshape(op.inputs[1], (image.kernels, rows))
    boxes = _boxes(emitter, image, x, 1)
    if math.prod(image.kernel) <= _SMALL_IMAGE:
        boxes = [emitter.concat(boxes, 1 + rank)]
    products = [emitter.matmul(left, emitter.reshape(box, (rows, emitter.shape(box)[-1]))) for box in boxes]
    return (_gradient(emitter, image, emitter.concat(products, 1)),)


def _by_line(emitter: Emitter, op: Op, image: ImageKernel) -> tuple[str, ...] | None:
    """Each channel has a filter of its own, and the images are the first dim: a product of lines for each channel.

    ``lines[o, p]`` is the sum over all lines of the kernel's element o times the image's element p. Those that a window
    k adds up are p = o · dilation + k · stride: a column, once each line has as many elements more as the dilation.
    """
    *rest, width = image.kernel
    group, rows, times = image.group, math.prod(rest), image.kernels // image.group
    whole = emitter.shape(op.inputs[0])[-1] + image.before[-1] + image.after[-1]
    if whole > _MOST_LINE * image.windows[-1]:
        return None
    x = emitter.reshape(op.inputs[0], emitter.shape(op.inputs[0])[1:])
    of_lines = replace(
        image,
        kernel=(*rest, whole),
        windows=(*image.windows[:-1], 1),
        strides=(*image.strides[:-1], 1),
        dilations=(*image.dilations[:-1], 1),
    )
    boxes = [emitter.reshape(box, (group, rows, whole)) for box in _boxes(emitter, of_lines, x, 1)]
    kernels = emitter.transpose(emitter.reshape(op.inputs[1], (group, times, rows, width)), (0, 1, 3, 2))
    left, count = emitter.reshape(kernels, (group, times * width, rows)), len(boxes)
    lines = emitter.reshape(emitter.matmul(left, emitter.concat(boxes, 2)), (group * times, width, count, whole))
    step, stride = image.dilations[-1], image.strides[-1]
    flat = emitter.reshape(emitter.transpose(lines, (0, 2, 1, 3)), (group * times, count, width * whole))
    longer = emitter.pad(flat, (0, 0, 0), (0, 0, width * step))
    columns = emitter.reshape(longer, (group * times, count, width, whole + step))
    windows = image.windows[-1]
    read = emitter.slice(columns, (0, 0, 0, 0), (group * times, count, width, (windows - 1) * stride + 1))
    sums = emitter.reduce_sum(emitter.every(read, {3: stride}), [2])
    return (emitter.reshape(sums, (1, group * times, *image.windows)),)


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
    """A convolution with the filters turned, where each window is an element; of small images one product of all
    samples, whose parts are added up.
    """
    x, w = op.inputs[:2]
    samples, kernels, *sizes = emitter.shape(x)
    _, channels, *kernel = emitter.shape(w)
    rank = len(kernel)
    is_plain = len(op.inputs) == 2 and integer(op, "group", 1) == 1 and op.attribute("auto_pad") in (None, "NOTSET")
    if not is_plain or op.attribute("output_shape") or emitter.opset < LEAST_OPSET:
        return None
    strides, result = integers(op, "strides", (1,) * rank), emitter.shape(op.outputs[0])
    dilations, before = integers(op, "dilations", (1,) * rank), integers(op, "pads", (0,) * (2 * rank))[:rank]
    if math.prod(kernel) == 1 and not any(before):
        turned = emitter.transpose(w, (1, 0, *range(2, 2 + rank)))
        shape, stated = (samples, channels, *sizes), {"kernel_shape": tuple(kernel)}
        small = emitter.one("Conv", [x, turned], shape, emitter.dtype(x), attributes=stated)
        return (_spread(emitter, small, strides, result),)
    if math.prod(sizes) > _FEW_COLUMNS or samples == 1 or set(strides) != {1}:
        return None
    turned = emitter.transpose(emitter.reshape(w, (kernels, channels * math.prod(kernel))), (1, 0))
    columns = emitter.reshape(emitter.transpose(x, (1, 0, *range(2, 2 + rank))), (kernels, samples * math.prod(sizes)))
    parts = emitter.reshape(emitter.matmul(turned, columns), (channels, math.prod(kernel), samples * math.prod(sizes)))
    moved = []
    for number, tap in enumerate(product(*map(range, kernel))):
        part = emitter.slice(parts, (0, number, 0), (channels, number + 1, samples * math.prod(sizes)))
        starts = [index * step - pad for index, step, pad in zip(tap, dilations, before, strict=True)]
        ends = [whole - size - start for whole, size, start in zip(result[2:], sizes, starts, strict=True)]
        moved.append(emitter.pad(emitter.reshape(part, (channels, samples, *sizes)), (0, 0, *starts), (0, 0, *ends)))
    total = emitter.one("Sum", moved, (channels, samples, *result[2:]), emitter.dtype(x), hint="total")
    return (emitter.transpose(total, (1, 0, *range(2, 2 + rank))),)


@stands_for("Einsum", purpose=Purpose.CPU, is_better=True)
def matrix_product(emitter: Emitter, op: Op) -> tuple[str, ...] | None:
    """A product of stacks of matrices as MatMul between Transposes, which ONNX Runtime makes one kernel of."""
    product = product_of(op, {name: emitter.tensor(name) for name in (*op.inputs, *op.outputs)})
    if product is None or len(product.operands) != 2 or product.dtype is not DType.FLOAT32:
        return None
    left, right = product.labels
    stack = [label for label in product.result if label in left and label in right]
    rows, columns = (
        [label for label in product.result if label in own and label not in stack] for own in (left, right)
    )
    inner = [label for label in left if label in right and label not in stack]
    # What one operand alone has, and the result has not, is a sum before the product.
    if {*left, *right} != {*stack, *rows, *columns, *inner} or {*product.result} != {*stack, *rows, *columns}:
        return None
    sizes = {label: size for name, own in zip(product.operands, product.labels, strict=True)
             for label, size in zip(own, emitter.shape(name), strict=True)}  # fmt: skip

    def turned(name: str, own: Labels, first: list[int], second: list[int]) -> str:
        order = [*stack, *first, *second]
        shape = [
            *(sizes[label] for label in stack),
            *(math.prod(sizes[label] for label in part) for part in (first, second)),
        ]
        return emitter.reshape(emitter.transpose(name, [own.index(label) for label in order]), shape)

    a, b = product.operands
    result = emitter.matmul(turned(a, left, rows, inner), turned(b, right, inner, columns))
    order = [*stack, *rows, *columns]
    apart = emitter.reshape(result, [sizes[label] for label in order])
    return (emitter.transpose(apart, [order.index(label) for label in product.result]),)


def _spread(emitter: Emitter, x: str, strides: Sequence[int], shape: Shape) -> str:
    """[samples, channels, *sizes] with zeros between elements, and behind them up to a shape."""
    head, sizes = shape[:2], emitter.shape(x)[2:]
    if any(step != 1 for step in strides):
        apart = emitter.reshape(x, (*head, *(part for size in sizes for part in (size, 1))))
        after = (0, 0, *(part for step in strides for part in (0, step - 1)))
        apart = emitter.pad(apart, (0,) * len(after), after)
        x = emitter.reshape(apart, (*head, *(size * step for size, step in zip(sizes, strides, strict=True))))
    behind = [whole - size for whole, size in zip(shape, emitter.shape(x), strict=True)]
    return emitter.pad(x, (0,) * len(shape), behind)


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
