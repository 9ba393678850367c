"""Training graphs held against float64 finite differences of the forward model.

ONNX's reference evaluator runs both. Windowed operators are NumPy code of our own here: the evaluator's are slow and
do not take every attribute. ``test_windows`` holds them against ONNX Runtime.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import onnx
import pytest
from onnx import NodeProto, TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator
from onnx.reference.op_run import OpRun

from planner.graph.core.model import Graph
from planner.graph.files.to_onnx import to_model
from planner.graph.reading.from_onnx import graph_from_proto
from planner.training import rules
from planner.training.build import build_training_graph
from planner.training.gradients.expand import expanded
from planner.training.parameters.infer import Decision, Parameters, Verdict
from stock_runtime import NO_ERRORS, run


def _spatial(pads, strides, dilations, rank, auto_pad, sizes, kernel):
    strides, dilations = strides or [1] * rank, dilations or [1] * rank
    if auto_pad in (None, "", "NOTSET"):
        pads = pads or [0] * 2 * rank
        return list(pads[:rank]), list(pads[rank:]), strides, dilations
    if auto_pad == "VALID":
        return [0] * rank, [0] * rank, strides, dilations
    totals = [
        max(0, (-(-n // s) - 1) * s + (k - 1) * d + 1 - n)
        for n, s, k, d in zip(sizes, strides, kernel, dilations, strict=True)
    ]
    less = [total // 2 for total in totals]
    more = [total - half for total, half in zip(totals, less, strict=True)]
    return (less, more, strides, dilations) if auto_pad == "SAME_UPPER" else (more, less, strides, dilations)


def _windows(x, kernel, before, after, strides, dilations, fill, ceil=False):
    """[N, C, positions..., K]: every window's elements; positions beyond the padding hold NaN."""
    rank = len(kernel)
    padded = np.pad(x, [(0, 0), (0, 0), *zip(before, after, strict=True)], constant_values=fill)
    positions = []
    for dim in range(rank):
        room = padded.shape[2 + dim] - (kernel[dim] - 1) * dilations[dim] - 1
        count = (-(-room // strides[dim]) if ceil else room // strides[dim]) + 1
        if ceil and (count - 1) * strides[dim] >= x.shape[2 + dim] + before[dim]:
            count -= 1
        positions.append(count)
    missing = [
        max(0, (count - 1) * s + (k - 1) * d + 1 - n)
        for count, s, k, d, n in zip(positions, strides, kernel, dilations, padded.shape[2:], strict=True)
    ]
    padded = np.pad(padded, [(0, 0), (0, 0), *((0, width) for width in missing)], constant_values=np.nan)
    parts = []
    for offset in itertools.product(*(range(k) for k in kernel)):
        index = tuple(
            slice(o * d, o * d + (count - 1) * s + 1, s)
            for o, d, s, count in zip(offset, dilations, strides, positions, strict=True)
        )
        parts.append(padded[(slice(None), slice(None), *index)])
    return np.stack(parts, axis=-1)


class Conv(OpRun):
    def _run(self, x, w, b=None, auto_pad=None, dilations=None, group=1, kernel_shape=None, pads=None, strides=None):
        kernel = w.shape[2:]
        group = group or 1
        before, after, strides, dilations = _spatial(
            pads, strides, dilations, len(kernel), auto_pad, x.shape[2:], kernel
        )
        windows = _windows(x, kernel, before, after, strides, dilations, 0)
        n, c, *positions, k = windows.shape
        windows = windows.reshape(n, group, c // group, *positions, k)
        weights = w.reshape(group, w.shape[0] // group, c // group, k)
        y = np.einsum("ngc...k,gmck->ngm...", windows, weights).reshape(n, w.shape[0], *positions)
        return (y if b is None else y + b.reshape(-1, *(1 for _ in kernel)),)


class ConvTranspose(OpRun):
    def _run(
        self, x, w, b=None, auto_pad=None, dilations=None, group=1, kernel_shape=None, output_padding=None,
        output_shape=None, pads=None, strides=None,
    ):  # fmt: skip
        kernel = w.shape[2:]
        rank, group = len(kernel), group or 1
        strides, dilations = strides or [1] * rank, dilations or [1] * rank
        pads, output_padding = pads or [0] * 2 * rank, output_padding or [0] * rank
        n, c, *positions = x.shape
        full = [
            (p - 1) * s + (k - 1) * d + 1 + extra
            for p, s, k, d, extra in zip(positions, strides, kernel, dilations, output_padding, strict=True)
        ]
        channels = w.shape[1] * group
        y = np.zeros((n, channels, *full), x.dtype)
        grouped = x.reshape(n, group, c // group, *positions)
        weights = w.reshape(group, c // group, w.shape[1], *kernel)
        for offset in itertools.product(*(range(k) for k in kernel)):
            index = tuple(
                slice(o * d, o * d + (p - 1) * s + 1, s)
                for o, d, s, p in zip(offset, dilations, strides, positions, strict=True)
            )
            part = np.einsum("ngc...,gcm->ngm...", grouped, weights[(..., *offset)])
            y[(slice(None), slice(None), *index)] += part.reshape(n, channels, *positions)
        y = y[
            (
                ...,
                *(slice(first, size - last) for first, last, size in zip(pads[:rank], pads[rank:], full, strict=True)),
            )
        ]
        return (y,)


class MaxPool(OpRun):
    def _run(
        self, x, auto_pad=None, ceil_mode=0, dilations=None, kernel_shape=None, pads=None, storage_order=0,
        strides=None,
    ):  # fmt: skip
        before, after, strides, dilations = _spatial(
            pads, strides, dilations, len(kernel_shape), auto_pad, x.shape[2:], kernel_shape
        )
        windows = _windows(x, kernel_shape, before, after, strides, dilations, -np.inf, bool(ceil_mode))
        return (np.nanmax(windows, axis=-1).astype(x.dtype),)


class AveragePool(OpRun):
    def _run(
        self, x, auto_pad=None, ceil_mode=0, count_include_pad=0, dilations=None, kernel_shape=None, pads=None,
        strides=None,
    ):  # fmt: skip
        before, after, strides, dilations = _spatial(
            pads, strides, dilations, len(kernel_shape), auto_pad, x.shape[2:], kernel_shape
        )
        fill = 0 if count_include_pad else np.nan
        windows = _windows(x, kernel_shape, before, after, strides, dilations, fill, bool(ceil_mode))
        return (np.nanmean(windows, axis=-1).astype(x.dtype),)


class Erf(OpRun):
    """The evaluator's own computes in float32."""

    def _run(self, x):
        return (np.vectorize(math.erf, otypes=[x.dtype])(x),)


class Gelu(OpRun):
    """The evaluator's own computes in float32."""

    def _run(self, x, approximate=None):
        if approximate == "tanh":
            return (0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))),)
        return (0.5 * x * (1 + np.vectorize(math.erf, otypes=[x.dtype])(x / math.sqrt(2))),)


class Pad(OpRun):
    """The evaluator's own takes no negative pads."""

    def _run(self, x, pads, value=None, axes=None, mode=None):
        axes = list(range(x.ndim)) if axes is None else [int(axis) % x.ndim for axis in axes]
        widths = [(0, 0)] * x.ndim
        for index, axis in enumerate(axes):
            widths[axis] = (int(pads[index]), int(pads[len(axes) + index]))
        border = [(max(0, before), max(0, after)) for before, after in widths]
        if mode in (None, "", "constant"):
            x = np.pad(x, border, constant_values=0 if value is None else value)
        else:
            x = np.pad(x, border, mode=mode)
        cut = tuple(slice(max(0, -b), size - max(0, -a)) for (b, a), size in zip(widths, x.shape, strict=True))
        return (x[cut],)


class Mean(OpRun):
    """The evaluator's own adds in place, into the first operand's shape."""

    def _run(self, *operands):
        return (sum(operands) / len(operands),)


class LpNormalization(OpRun):
    """The evaluator's own takes no absolute values."""

    def _run(self, x, axis=None, p=None):
        return (x / np.linalg.norm(x, ord=p or 2, axis=-1 if axis is None else axis, keepdims=True),)


class MeanVarianceNormalization(OpRun):
    """The evaluator's own function body is in float32."""

    def _run(self, x, axes=None):
        over = tuple(axes or (0, 2, 3))
        return ((x - x.mean(over, keepdims=True)) / (x.std(over, keepdims=True) + 1e-9),)


class LRN(OpRun):
    """The evaluator's own loops over samples where it means channels."""

    def _run(self, x, alpha=None, beta=None, bias=None, size=None):
        total = np.zeros_like(x)
        for c in range(x.shape[1]):
            first, last = max(0, c - (size - 1) // 2), c + size // 2 + 1
            total[:, c] = (x[:, first:last] ** 2).sum(axis=1)
        return (x / ((1.0 if bias is None else bias) + alpha / size * total) ** (0.75 if beta is None else beta),)


class LpPool(OpRun):
    def _run(
        self, x, auto_pad=None, ceil_mode=0, dilations=None, kernel_shape=None, p=2, pads=None, strides=None,
    ):  # fmt: skip
        before, after, strides, dilations = _spatial(
            pads, strides, dilations, len(kernel_shape), auto_pad, x.shape[2:], kernel_shape
        )
        windows = _windows(x, kernel_shape, before, after, strides, dilations, 0, bool(ceil_mode))
        return (np.nansum(abs(windows) ** p, axis=-1) ** (1 / p),)


class GlobalLpPool(OpRun):
    def _run(self, x, p=2):
        return ((abs(x) ** p).sum(axis=tuple(range(2, x.ndim)), keepdims=True) ** (1 / p),)


FEW = 32
"""Elements that a constant may have anyway: lists of dims, places in windows of a tiny picture."""

OWN: list[type[OpRun]] = [
    GlobalLpPool, LRN, LpPool, Pad, Conv, ConvTranspose, MaxPool, AveragePool, Erf, Gelu, Mean, LpNormalization,
    MeanVarianceNormalization,
]  # fmt: skip
for _class in OWN:
    _class.op_domain = ""


def evaluate(model: onnx.ModelProto, feeds: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The outputs of a model by the reference evaluator."""
    defaults = {
        proto.name: numpy_helper.to_array(proto)
        for proto in model.graph.initializer
        if proto.name in {value.name for value in model.graph.input}
    }
    evaluator = ReferenceEvaluator(model, new_ops=OWN)
    results = evaluator.run(None, {**defaults, **feeds})
    return dict(zip(evaluator.output_names, results, strict=True))


@dataclass
class Forward:
    """A forward model: nodes, and values for what they read."""

    nodes: Sequence[NodeProto]
    parameters: Mapping[str, np.ndarray] = field(default_factory=dict)
    """Float initializers of rank 1 or more."""
    data: Mapping[str, np.ndarray] = field(default_factory=dict)
    """Inputs."""
    constants: Mapping[str, np.ndarray] = field(default_factory=dict)
    """Integer and boolean initializers, and scalars."""
    outputs: Sequence[str] = ("y",)
    opset: int = 21

    def model(self) -> onnx.ModelProto:
        inputs = [
            helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(value.dtype), value.shape)
            for name, value in self.data.items()
        ]
        initializers = [
            numpy_helper.from_array(np.asarray(value), name)
            for name, value in {**self.parameters, **self.constants}.items()
        ]
        outputs = [helper.make_tensor_value_info(name, TensorProto.UNDEFINED, None) for name in self.outputs]
        for value in outputs:
            value.ClearField("type")
        graph = helper.make_graph(list(self.nodes), "forward", inputs, outputs, initializers)
        opsets = [helper.make_opsetid("", self.opset)]
        return helper.make_model(graph, opset_imports=opsets, ir_version=10)

    def graph(self) -> Graph:
        return graph_from_proto(self.model())

    def trained(self) -> Parameters:
        """All parameters, whatever reads them and whatever they hold."""
        read = {name for one in self.nodes if one.op_type == "BatchNormalization" for name in one.input[3:5]}
        return Parameters(
            tuple(
                Decision(name, value.shape, Verdict.STATISTIC if name in read else Verdict.TRAINED, "", ("stated",))
                for name, value in self.parameters.items()
            )
        )


def _mse_loss(forward: Forward, model: onnx.ModelProto, target: np.ndarray) -> Callable[[Mapping], float]:
    """The loss as a function of the parameters, by the forward model."""
    proto = onnx.ModelProto()
    proto.CopyFrom(model)
    kept = [tensor for tensor in proto.graph.initializer if tensor.name not in forward.parameters]
    del proto.graph.initializer[:]
    proto.graph.initializer.extend(kept)
    proto.graph.input.extend(
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(value.dtype), value.shape)
        for name, value in forward.parameters.items()
    )
    evaluator = ReferenceEvaluator(proto, new_ops=OWN)

    def loss(parameters: Mapping[str, np.ndarray]) -> float:
        y = evaluator.run([forward.outputs[0]], {**forward.data, **parameters})[0]
        return float(np.mean((y - target) ** 2))

    return loss


def check_directions(
    loss: Callable[[Mapping], float],
    parameters: Mapping[str, np.ndarray],
    gradients: Mapping[str, np.ndarray],
    *,
    tolerance: float = 1e-6,
    step: float = 1e-6,
) -> None:
    """Hold gradients against central differences along random directions, one parameter at a time."""
    rng = np.random.default_rng(1)
    for name, value in parameters.items():
        assert gradients[name].shape == value.shape, name
        assert np.isfinite(gradients[name]).all(), name
        for _ in range(2):
            direction = rng.standard_normal(value.shape)
            ahead = loss({**parameters, name: value + step * direction})
            behind = loss({**parameters, name: value - step * direction})
            expected = (ahead - behind) / (2 * step)
            found = float((gradients[name] * direction).sum())
            scale = np.linalg.norm(gradients[name]) * np.linalg.norm(direction)
            assert abs(found - expected) <= tolerance * (scale + abs(expected)) + 1e-8, (name, found, expected)


def too_large(step: Graph, forward: Graph) -> list[str]:
    """The constants of a training graph that are larger than all tensors of the forward one, and than ``FEW``."""
    most = max(FEW, *(tensor.elements for tensor in forward.tensors.values()))
    return [name for name in step.constants if step.tensors[name].elements > most]


@pytest.fixture(scope="session")
def check_gradients() -> Callable[..., Graph]:
    """Builds the training graph of a forward model, checks it as ONNX, and holds its gradients to differences."""

    def check(
        forward: Forward, *, loss: Callable[[Mapping], float] | None = None, tolerance: float = 1e-6, **options: object
    ) -> Graph:
        model = forward.model()
        first = forward.graph()
        shape = first.tensors[forward.outputs[0]].shape
        target = np.random.default_rng(7).standard_normal(shape)
        step = build_training_graph(
            first, loss="mse", optimizer="sgd", learning_rate=1.0, output=forward.outputs[0],
            parameters=forward.trained(), **options,
        )  # fmt: skip
        assert too_large(step, first) == []
        proto = to_model(step)
        # Of pools that round up, ONNX's inference counts windows that the runtime does not make.
        rounds_up = any(one.name == "ceil_mode" and one.i for node in proto.graph.node for one in node.attribute)
        onnx.checker.check_model(proto, full_check=not rounds_up)
        found = evaluate(proto, {**forward.data, "target": target})
        gradients = {name: value - found[f"{name}.next"] for name, value in forward.parameters.items()}
        reference = loss(target) if loss else _mse_loss(forward, model, target)
        assert found["loss"] == pytest.approx(reference(forward.parameters), rel=1e-6)
        check_directions(reference, forward.parameters, gradients, tolerance=tolerance)
        return step

    return check


@pytest.fixture(scope="session")
def check_written(check_gradients: Callable[..., Graph]) -> Callable[..., Graph]:
    """Holds the written-out form of composites to the runtime's kernels in float32, and its gradients to differences.

    Differences are of the written-out model: the evaluator's own composites compute in float32, or take few attributes.
    """

    def check(forward: Forward, *, tolerance: float = 1e-6) -> Graph:
        narrow = Forward(
            forward.nodes,
            {name: value.astype(np.float32) for name, value in forward.parameters.items()},
            forward.data,
            {n: v.astype(np.float32) if v.dtype == np.float64 else v for n, v in forward.constants.items()},
            forward.outputs,
            forward.opset,
        )
        graph = narrow.graph()
        form = expanded(graph, tuple(graph.constants), rules.standard())
        assert not {op.op_type for op in form.ops} & {node.op_type for node in forward.nodes}
        assert form.tensors["y"] == graph.tensors["y"]
        whole = run(narrow.model(), {}, log_level=NO_ERRORS)["y"]
        np.testing.assert_allclose(run(to_model(form), {}, log_level=NO_ERRORS)["y"], whole, rtol=2e-5, atol=5e-6)
        graph = forward.graph()
        written = to_model(expanded(graph, tuple(graph.constants), rules.standard()))
        return check_gradients(forward, loss=lambda target: _mse_loss(forward, written, target), tolerance=tolerance)

    return check


@pytest.fixture(scope="session")
def forward_model() -> type[Forward]:
    return Forward


@pytest.fixture(scope="session")
def reference() -> Callable[..., dict[str, np.ndarray]]:
    return evaluate


@pytest.fixture(scope="session")
def directions() -> Callable[..., None]:
    return check_directions
