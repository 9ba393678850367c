"""A forward model under construction: layers whose shapes are computed, parameters that have a shape and no value.

An op is named by its layer (``conv1``), its output ``conv1.y``, its parameters ``conv1.weight`` and so on, so that
the names in a plan tell which layer a tensor belongs to.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from planner.graph.core.model import Attribute, DType, Graph, Op, Shape, Tensor

OPSET = 21
"""Version of the default operator domain that models are written in unless they need a later one."""
_NUMPY = {np.dtype("float32"): DType.FLOAT32, np.dtype("int64"): DType.INT64, np.dtype("bool"): DType.BOOL}

_AFFINE = (("scale", 1.0), ("bias", 0.0))
"""What follows a normalisation, and what each begins with."""


class Forward:
    """Emits layers one after another; tensors are known by name.

    Args:
        name: of the graph.
        opset: version of the default operator domain.
    """

    def __init__(self, name: str, *, opset: int = OPSET) -> None:
        self.name = name
        self.opset = opset
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

    @property
    def parameters(self) -> int:
        """Numbers that are trained, and running statistics."""
        return sum(self._tensors[name].elements for name, value in self._constants.items() if value is None)

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

    def op(
        self,
        layer: str,
        op_type: str,
        inputs: Sequence[str],
        shape: Sequence[int],
        *,
        dtype: DType = DType.FLOAT32,
        **attributes: Attribute,
    ) -> str:
        """An op with one output."""
        return self.ops(layer, op_type, inputs, [shape], dtypes=[dtype], **attributes)[0]

    def ops(
        self,
        layer: str,
        op_type: str,
        inputs: Sequence[str],
        shapes: Sequence[Sequence[int]],
        *,
        dtypes: Sequence[DType] = (),
        **attributes: Attribute,
    ) -> tuple[str, ...]:
        """An op with any number of outputs: ``layer.y``, or ``layer.y0``, ``layer.y1``, ...; of float32 if not said."""
        names = [f"{layer}.y"] if len(shapes) == 1 else [f"{layer}.y{number}" for number in range(len(shapes))]
        for name, shape, dtype in zip(names, shapes, dtypes or [DType.FLOAT32] * len(shapes), strict=True):
            self._tensor(name, shape, dtype)
        stated = tuple(sorted(attributes.items(), key=lambda item: item[0]))
        self._ops.append(Op(layer, op_type, tuple(inputs), tuple(names), stated))
        return tuple(names)

    def each(
        self, layer: str, op_type: str, *operands: str, dtype: DType = DType.FLOAT32, **attributes: Attribute
    ) -> str:
        """An element-wise op, its operands broadcast."""
        shape = np.broadcast_shapes(*(self.shape(name) for name in operands))
        return self.op(layer, op_type, operands, shape, dtype=dtype, **attributes)

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
        """A convolution of images [N, C, H, W], or of samples of any number of dims, [N, C, ...].

        Args:
            layer: its name.
            x: its input.
            filters: output channels.
            kernel: rows and columns, or all dims at once.
            stride: of all.
            pad: zeros on each side of rows and columns, or of all dims at once.
            bias: whether it has one.
        """
        samples, channels, *image = self.shape(x)
        window, pads = _of_each(kernel, len(image)), _of_each(pad, len(image))
        operands = [x, self.parameter(f"{layer}.weight", filters, channels, *window)]
        if bias:
            operands.append(self.parameter(f"{layer}.bias", filters, first=0.0))
        positions = [_windows(size, k, stride, p) for size, k, p in zip(image, window, pads, strict=True)]
        return self.op(
            layer,
            "Conv",
            operands,
            (samples, filters, *positions),
            kernel_shape=window,
            pads=(*pads, *pads),
            strides=(stride,) * len(image),
        )

    def pool(self, layer: str, op_type: str, x: str, kernel: int, *, stride: int, pad: int = 0) -> str:
        """A MaxPool or an AveragePool over square windows; zeros of the padding count in the mean (as in PyTorch)."""
        *lead, rows, columns = self.shape(x)
        shape = (*lead, _windows(rows, kernel, stride, pad), _windows(columns, kernel, stride, pad))
        windows: dict[str, Attribute] = {"kernel_shape": (kernel,) * 2, "pads": (pad,) * 4, "strides": (stride,) * 2}
        if op_type == "AveragePool" and pad:
            windows["count_include_pad"] = 1
        return self.op(layer, op_type, [x], shape, dtype=DType.FLOAT32, **windows)

    def global_average_pool(self, layer: str, x: str) -> str:
        """The mean of each channel: [N, C, H, W] becomes [N, C]."""
        samples, channels = self.shape(x)[:2]
        pooled = self.op(layer, "GlobalAveragePool", [x], (samples, channels, 1, 1))
        return self.flatten(f"{layer}.flat", pooled)

    def flatten(self, layer: str, x: str) -> str:
        """[N, ...] as [N, features]."""
        samples, *features = self.shape(x)
        return self.op(layer, "Flatten", [x], (samples, math.prod(features)), axis=1)

    def linear(self, layer: str, x: str, width: int) -> str:
        """A fully-connected layer of [N, features]; its weight is [width, features]."""
        samples, features = self.shape(x)
        operands = [x, self.parameter(f"{layer}.weight", width, features)]
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

    def plain_layer_norm(self, layer: str, x: str, *, epsilon: float = 1e-5) -> str:
        """Normalisation over the last dim without scale and bias: ONNX's operator has a scale, so it is ones."""
        width = self.shape(x)[-1]
        ones = self.known(f"ones.{width}", np.ones(width, np.float32))
        return self.op(layer, "LayerNormalization", [x, ones], self.shape(x), axis=-1, epsilon=epsilon)

    def rms_norm(self, layer: str, x: str) -> str:
        """Division by the root of the mean square over the last dim (Zhang and Sennrich 2019)."""
        scale = self.parameter(f"{layer}.scale", self.shape(x)[-1], first=1.0)
        return self.op(layer, "RMSNormalization", [x, scale], self.shape(x), axis=-1, epsilon=1e-5)

    def group_norm(self, layer: str, x: str, groups: int, *, epsilon: float) -> str:
        """Normalisation of each sample's groups of channels (Wu and He 2018)."""
        channels = self.shape(x)[1]
        scale, bias = (self.parameter(f"{layer}.{name}", channels, first=first) for name, first in _AFFINE)
        return self.op(layer, "GroupNormalization", [x, scale, bias], self.shape(x), num_groups=groups, epsilon=epsilon)

    def silu(self, layer: str, x: str) -> str:
        """The operand times its sigmoid."""
        return self.each(f"{layer}.silu", "Mul", x, self.each(f"{layer}.sigmoid", "Sigmoid", x))

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
        return self.op(layer, "Reshape", [x, wanted], shape, dtype=self._tensors[x].dtype)

    def transpose(self, layer: str, x: str, *order: int) -> str:
        """The dims in another order."""
        shape = [self.shape(x)[dim] for dim in order]
        return self.op(layer, "Transpose", [x], shape, dtype=self._tensors[x].dtype, perm=order)

    def split(self, layer: str, x: str, parts: int, *, axis: int = -1) -> tuple[str, ...]:
        """A dim, the last if not said, in equal parts."""
        sizes = list(self.shape(x))
        assert sizes[axis] % parts == 0, f"{sizes[axis]} is no multiple of {parts}"
        sizes[axis] //= parts
        return self.ops(layer, "Split", [x], [sizes] * parts, axis=axis, num_outputs=parts)

    def parted(self, layer: str, x: str, sizes: Sequence[int], *, axis: int) -> tuple[str, ...]:
        """A dim in parts of these sizes."""
        shape = self.shape(x)
        assert sum(sizes) == shape[axis], f"{list(sizes)} are not the {shape[axis]} of {x}"
        stated = self.known("sizes." + "x".join(str(size) for size in sizes), np.array(sizes, np.int64))
        shapes = [(*shape[:axis], size, *shape[axis:][1:]) for size in sizes]
        return self.ops(layer, "Split", [x, stated], shapes, axis=axis)

    def sum(self, layer: str, x: str, axis: int, *, dtype: DType = DType.FLOAT32) -> str:
        """The sum over a dim, which stays with size 1."""
        sizes = list(self.shape(x))
        sizes[axis] = 1
        axes = self.known(f"axes.{axis}", np.array([axis], np.int64))
        return self.op(layer, "ReduceSum", [x, axes], sizes, dtype=dtype, keepdims=1)

    def cast(self, layer: str, x: str, dtype: DType) -> str:
        """The same values in another dtype."""
        # Imported here: the papers' models need no ONNX before they are written.
        from planner.graph.files.protos import elem_type_of

        return self.op(layer, "Cast", [x], self.shape(x), dtype=dtype, to=elem_type_of(dtype))

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
            opset=self.opset,
        )


def _of_each(value: int | tuple[int, int], dims: int) -> tuple[int, ...]:
    return (value,) * dims if isinstance(value, int) else value


def _windows(size: int, kernel: int, stride: int, pad: int) -> int:
    return (size + 2 * pad - kernel) // stride + 1
