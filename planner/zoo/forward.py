"""A forward model under construction: layers whose shapes are computed, parameters that have a shape and no value.

An op is named by its layer (``conv1``), its output ``conv1.y``, its parameters ``conv1.weight`` and so on, so that
the names in a plan tell which layer a tensor belongs to.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from planner.graph.model import Attribute, DType, Graph, Op, Shape, Tensor

OPSET = 21
"""Version of the default operator domain that the models are written in."""
_NUMPY = {np.dtype("float32"): DType.FLOAT32, np.dtype("int64"): DType.INT64, np.dtype("bool"): DType.BOOL}


class Forward:
    """Emits layers one after another; tensors are known by name.

    Args:
        name: of the graph.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.first_values: dict[str, float] = {}
        """Parameters that training begins with at one value: biases at 0, scales at 1."""
        self._tensors: dict[str, Tensor] = {}
        self._constants: dict[str, np.ndarray | None] = {}
        self._folded: set[str] = set()
        self._inputs: list[str] = []
        self._ops: list[Op] = []

    # tensors -------------------------------------------------------------------------------------------------------

    def shape(self, name: str) -> Shape:
        """Sizes of a tensor."""
        return self._tensors[name].shape

    def input(self, name: str, *shape: int, dtype: DType = DType.FLOAT32) -> str:
        """Data of the batch."""
        self._inputs.append(self._tensor(name, shape, dtype))
        return name

    def parameter(self, name: str, *shape: int, first: float | None = None) -> str:
        """A tensor to be trained, without a value.

        Args:
            name: of the tensor.
            shape: its sizes.
            first: the value that every element begins with; None: it is drawn.
        """
        self._constants[self._tensor(name, shape, DType.FLOAT32)] = None
        if first is not None:
            self.first_values[name] = first
        return name

    def known(self, name: str, value: np.ndarray) -> str:
        """A constant that is part of the model and not trained; one tensor for each name."""
        if name not in self._constants:
            self._constants[self._tensor(name, value.shape, _NUMPY[value.dtype])] = value
            self._folded.add(name)
        return name

    def _tensor(self, name: str, shape: Sequence[int], dtype: DType) -> str:
        assert name not in self._tensors, f"{name} is defined twice"
        assert all(size > 0 for size in shape), f"{name} has no elements: {shape}"
        self._tensors[name] = Tensor(name, tuple(shape), dtype)
        return name

    # any operator --------------------------------------------------------------------------------------------------

    def op(self, layer: str, op_type: str, inputs: Sequence[str], shape: Sequence[int], **attributes: Attribute) -> str:
        """An op with one output of float32."""
        return self.ops(layer, op_type, inputs, [shape], **attributes)[0]

    def ops(
        self, layer: str, op_type: str, inputs: Sequence[str], shapes: Sequence[Sequence[int]], **attributes: Attribute
    ) -> tuple[str, ...]:
        """An op with any number of outputs of float32: ``layer.y``, or ``layer.y0``, ``layer.y1``, ..."""
        names = [f"{layer}.y"] if len(shapes) == 1 else [f"{layer}.y{number}" for number in range(len(shapes))]
        for name, shape in zip(names, shapes, strict=True):
            self._tensor(name, shape, DType.FLOAT32)
        stated = tuple(sorted(attributes.items(), key=lambda item: item[0]))
        self._ops.append(Op(layer, op_type, tuple(inputs), tuple(names), stated))
        return tuple(names)

    def each(self, layer: str, op_type: str, *operands: str, **attributes: Attribute) -> str:
        """An element-wise op, its operands broadcast."""
        shape = np.broadcast_shapes(*(self.shape(name) for name in operands))
        return self.op(layer, op_type, operands, shape, **attributes)

    # layers --------------------------------------------------------------------------------------------------------

    def conv(
        self,
        layer: str,
        x: str,
        filters: int,
        kernel: int | tuple[int, int],
        *,
        stride: int = 1,
        pad: int | tuple[int, int] = 0,
        bias: bool = False,
    ) -> str:
        """A convolution of images [N, C, H, W].

        Args:
            layer: its name.
            x: its input.
            filters: output channels.
            kernel: rows and columns, or both at once.
            stride: of both.
            pad: zeros on each side of rows and columns, or of both at once.
            bias: whether it has one.
        """
        kernel, pads = _pair(kernel), _pair(pad)
        samples, channels, *image = self.shape(x)
        operands = [x, self.parameter(f"{layer}.weight", filters, channels, *kernel)]
        if bias:
            operands.append(self.parameter(f"{layer}.bias", filters, first=0.0))
        positions = [_windows(size, k, stride, p) for size, k, p in zip(image, kernel, pads, strict=True)]
        return self.op(
            layer,
            "Conv",
            operands,
            (samples, filters, *positions),
            kernel_shape=kernel,
            pads=(*pads, *pads),
            strides=(stride, stride),
        )

    def pool(self, layer: str, op_type: str, x: str, kernel: int, *, stride: int, pad: int = 0) -> str:
        """A MaxPool or an AveragePool over square windows; zeros of the padding count in the mean (as in PyTorch)."""
        *lead, rows, columns = self.shape(x)
        shape = (*lead, _windows(rows, kernel, stride, pad), _windows(columns, kernel, stride, pad))
        counted: dict[str, Attribute] = {"count_include_pad": 1} if op_type == "AveragePool" and pad else {}
        return self.op(
            layer,
            op_type,
            [x],
            shape,
            kernel_shape=(kernel, kernel),
            pads=(pad,) * 4,
            strides=(stride, stride),
            **counted,
        )

    def global_average_pool(self, layer: str, x: str) -> str:
        """The mean of each channel: [N, C, H, W] becomes [N, C]."""
        samples, channels = self.shape(x)[:2]
        pooled = self.op(layer, "GlobalAveragePool", [x], (samples, channels, 1, 1))
        return self.flatten(f"{layer}.flat", pooled)

    def flatten(self, layer: str, x: str) -> str:
        """[N, ...] as [N, features]."""
        samples, *rest = self.shape(x)
        return self.op(layer, "Flatten", [x], (samples, math.prod(rest)), axis=1)

    def linear(self, layer: str, x: str, width: int, *, bias: bool = True) -> str:
        """A fully-connected layer of [N, features]; its weight is [width, features]."""
        samples, features = self.shape(x)
        operands = [x, self.parameter(f"{layer}.weight", width, features)]
        if bias:
            operands.append(self.parameter(f"{layer}.bias", width, first=0.0))
        return self.op(layer, "Gemm", operands, (samples, width), transB=1)

    def project(self, layer: str, x: str, width: int, *, bias: bool = False) -> str:
        """Rows [N, features] times a weight [features, width].

        As a Gemm, whose gradients are Gemms: those of a MatMul have Transposes, which a plan reads in place.
        """
        features = self.shape(x)[1]
        weight = self.parameter(f"{layer}.weight", features, width)
        return self.gemm(layer, x, weight, self.parameter(f"{layer}.bias", width, first=0.0) if bias else "")

    def gemm(self, layer: str, x: str, weight: str, added: str = "") -> str:
        """Rows [N, features] times [features, width], plus something that broadcasts."""
        operands = [x, weight, added] if added else [x, weight]
        return self.op(layer, "Gemm", operands, (self.shape(x)[0], self.shape(weight)[1]))

    def batch_norm(self, layer: str, x: str, *, epsilon: float = 1e-5) -> str:
        """Normalisation of each channel over the batch, with the running statistics that inference wants."""
        channels = self.shape(x)[1]
        operands = [x] + [
            self.parameter(f"{layer}.{name}", channels, first=first)
            for name, first in (("scale", 1.0), ("bias", 0.0), ("mean", 0.0), ("variance", 1.0))
        ]
        return self.op(layer, "BatchNormalization", operands, self.shape(x), epsilon=epsilon)

    def layer_norm(self, layer: str, x: str, *, bias: bool) -> str:
        """Normalisation over the last dim."""
        width = self.shape(x)[-1]
        operands = [x, self.parameter(f"{layer}.scale", width, first=1.0)]
        if bias:
            operands.append(self.parameter(f"{layer}.bias", width, first=0.0))
        return self.op(layer, "LayerNormalization", operands, self.shape(x), axis=-1)

    def relu(self, layer: str, x: str) -> str:
        """The positive part."""
        return self.each(layer, "Relu", x)

    def concat(self, layer: str, parts: Sequence[str], *, axis: int) -> str:
        """Tensors one after the other along a dim."""
        sizes = list(self.shape(parts[0]))
        sizes[axis] = sum(self.shape(part)[axis] for part in parts)
        return self.op(layer, "Concat", parts, sizes, axis=axis)

    def reshape(self, layer: str, x: str, *shape: int) -> str:
        """The same elements in another shape."""
        assert math.prod(shape) == math.prod(self.shape(x)), f"{self.shape(x)} cannot become {shape}"
        wanted = self.known("shape." + "x".join(str(size) for size in shape), np.array(shape, np.int64))
        return self.op(layer, "Reshape", [x, wanted], shape)

    def transpose(self, layer: str, x: str, *order: int) -> str:
        """The dims in another order."""
        return self.op(layer, "Transpose", [x], [self.shape(x)[dim] for dim in order], perm=order)

    def split(self, layer: str, x: str, parts: int) -> tuple[str, ...]:
        """The last dim in equal parts."""
        *lead, size = self.shape(x)
        assert size % parts == 0, f"{size} is no multiple of {parts}"
        return self.ops(layer, "Split", [x], [(*lead, size // parts)] * parts, axis=-1, num_outputs=parts)

    # the graph -----------------------------------------------------------------------------------------------------

    def graph(self, output: str) -> Graph:
        """The forward model with one output."""
        return Graph(
            name=self.name,
            tensors=dict(self._tensors),
            ops=tuple(self._ops),
            inputs=tuple(self._inputs),
            outputs=(output,),
            constants=dict(self._constants),
            folded=frozenset(self._folded),
            opset=OPSET,
        )


def _pair(value: int | tuple[int, int]) -> tuple[int, int]:
    return (value, value) if isinstance(value, int) else value


def _windows(size: int, kernel: int, stride: int, pad: int) -> int:
    return (size + 2 * pad - kernel) // stride + 1
