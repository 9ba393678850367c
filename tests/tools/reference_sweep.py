"""Every floating-point operator in float64 (``planner.runtime.judge.reference``), against the stock runtime in float32.

    .venv/bin/python tests/tools/reference_sweep.py      prints what differs, and how many cases were looked at

The cases are those of the descriptions, and variants of them in one, two and three spatial dims. Also says where ONNX's
own reference evaluator differs, which is why there is NumPy of our own (``reference_ops.py``).
"""

from __future__ import annotations

import itertools
import sys
import warnings
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from onnx.reference import ReferenceEvaluator

from planner.features.ops.cases.case import Case, Given, Known, execute_case, ints, make
from planner.features.ops.cases.examples import all_cases
from planner.features.ops.execute import ExecutionError
from planner.graph.core.model import Graph
from planner.graph.files.to_onnx import to_model
from planner.graph.reading.load import MIN_OPSET
from planner.runtime.judge.compare import errors
from planner.runtime.judge.reference import NoReferenceError, Reference

TOLERANCE = 1e-4
"""A float32's rounding in one op is far below, and another formula's result far above."""
_REFERENCE_OPSET = 25
"""From the next one on, the runtime has no kernels, and the evaluator is all there is."""
_SPATIAL = {1: (2, 4, 11), 2: (2, 4, 9, 7), 3: (2, 4, 6, 5, 7)}


@dataclass
class Sweep:
    """What was found."""

    looked_at: Counter[str] = field(default_factory=Counter)
    """Cases by operator."""
    wrong: dict[str, str] = field(default_factory=dict)
    """By case: how our float64 differs from the runtime."""
    evaluator: dict[str, str] = field(default_factory=dict)
    """By case: how ONNX's evaluator differs from the runtime, or why it fails."""
    own_precision: Counter[str] = field(default_factory=Counter)
    """Cases that the runtime had to compute for us, by operator."""


def sweep(cases: Iterable[Case]) -> Sweep:
    """Executes every case that has floating-point numbers and that the runtime can execute."""
    found = Sweep()
    for name, case in {str(case): case for case in cases}.items():
        if not MIN_OPSET <= case.opset <= _REFERENCE_OPSET or case.domain:
            continue
        try:
            graph, arrays, made = execute_case(case)
        except ExecutionError:
            continue
        if not any(array.dtype.kind == "f" for array in (*arrays.values(), *made.values())):
            continue
        found.looked_at[case.op_type] += 1
        try:
            reference = Reference(graph)
            error = _difference(made, reference.step(arrays))
            found.own_precision.update(reference.own_precision)
        except NoReferenceError as reason:
            error = str(reason)
        if error:
            found.wrong[name] = error
        error = by_evaluator(graph, arrays, made)
        if error:
            found.evaluator[name] = error
    return found


def by_evaluator(graph: Graph, arrays: dict[str, np.ndarray], made: dict[str, np.ndarray]) -> str:
    """How ONNX's reference evaluator differs from the runtime on the very same float32 model; "" if it does not."""
    try:
        theirs = ReferenceEvaluator(to_model(graph)).run(None, dict(arrays))
    except Exception as error:  # noqa: BLE001 -- it raises whatever it likes
        return f"{type(error).__name__}: {error}".splitlines()[0]
    return _difference(made, dict(zip(graph.outputs, map(np.asarray, theirs), strict=True)))


def _difference(made: dict[str, np.ndarray], right: dict[str, np.ndarray]) -> str:
    for name, array in made.items():
        if array.shape != right[name].shape:
            return f"{name} is {list(right[name].shape)}, not {list(array.shape)}"
        error = errors(array, right[name])[0] if array.dtype.kind == "f" else np.mean(array != right[name])
        if not error <= (TOLERANCE if array.dtype.kind == "f" else 0):
            return f"{name} is off by {error:.2e} of the largest element"
    return ""


def variants() -> Iterator[Case]:
    """What the cases of the descriptions have few of: other ranks, borders, modes, and forms of recurrent operators."""
    for rank, shape in _SPATIAL.items():
        yield from _pools(rank, shape)
        yield from _convolutions(rank, shape)
        yield from _normalisations(rank, shape)
        yield from _reductions(rank, shape)
        yield from _losses(shape)
        yield from _borders(rank, shape)
        yield from _resizes(rank, shape)
    yield from _sampling()
    yield from _recurrent()
    yield from _elementwise()


def _pools(rank: int, shape: tuple[int, ...]) -> Iterator[Case]:
    pads = ((0,) * 2 * rank, (1,) * 2 * rank, (*(0,) * rank, *(2,) * rank))
    for ceil, stride, pad, dilation in itertools.product((0, 1), (1, 2, 3), pads, (1, 2)):
        stated: dict[str, Any] = {"ceil_mode": ceil, "strides": (stride,) * rank, "pads": pad}
        stated |= {"dilations": (dilation,) * rank, "kernel_shape": (3,) * rank}
        yield make("MaxPool", shape, **stated)
        yield make("AveragePool", shape, count_include_pad=0, **stated)
        yield make("AveragePool", shape, count_include_pad=1, **stated)
        yield make("LpPool", shape, p=1 + stride % 2, **stated)
    for op_type, mode in itertools.product(("MaxPool", "AveragePool", "LpPool"), ("SAME_UPPER", "SAME_LOWER", "VALID")):
        yield make(op_type, shape, kernel_shape=(2,) * rank, strides=(2,) * rank, auto_pad=mode)
    for whole in (shape, (2, 3, *(1,) * rank), (1, 1, *(5,) * rank)):
        yield make("GlobalMaxPool", whole)
        yield make("GlobalAveragePool", whole)
        yield make("GlobalLpPool", whole, p=1)
        yield make("GlobalLpPool", whole, p=3)


def _convolutions(rank: int, shape: tuple[int, ...]) -> Iterator[Case]:
    kernel = (3,) * rank
    for groups, stride, dilation in itertools.product((1, 2), (1, 2), (1, 2)):
        stated: dict[str, Any] = {"group": groups, "strides": (stride,) * rank, "dilations": (dilation,) * rank}
        yield make("Conv", shape, (6, 4 // groups, *kernel), (6,), pads=(*(1,) * rank, *(2,) * rank), **stated)
        stated["pads"] = (*(1,) * rank, *(0,) * rank)
        for more in range(stride):
            yield make("ConvTranspose", shape, (4, 6 // groups, *kernel), (6,), output_padding=(more,) * rank, **stated)
    for mode, stride in itertools.product(("SAME_UPPER", "SAME_LOWER", "VALID"), (1, 2, 3)):
        yield make("Conv", shape, (6, 4, *kernel), auto_pad=mode, strides=(stride,) * rank)
        yield make("ConvTranspose", shape, (4, 6, *kernel), auto_pad=mode, strides=(stride,) * rank)


def _normalisations(rank: int, shape: tuple[int, ...]) -> Iterator[Case]:
    positive = Given((4,), "float32", 0.5, 2.0)
    yield make("InstanceNormalization", shape, (4,), (4,), epsilon=0.01)
    yield make("GroupNormalization", shape, (4,), (4,), num_groups=2)
    yield make("BatchNormalization", shape, (4,), (4,), (4,), positive)
    yield make("BatchNormalization", shape, (4,), (4,), (4,), positive, training_mode=1, outputs=3, momentum=0.6)
    yield make("MeanVarianceNormalization", shape, axes=(0, *range(2, 2 + rank)))
    for axis in range(-1, rank + 2):
        yield make("LayerNormalization", shape, shape[axis:], axis=axis, outputs=3)
        yield make("RMSNormalization", shape, shape[axis:], axis=axis, opset=23)
        for op_type in ("Softmax", "LogSoftmax", "Hardmax"):
            yield make(op_type, shape, axis=axis)
        for power in (1, 2):
            yield make("LpNormalization", shape, p=power, axis=axis)
    for size in (1, 2, 3, 5):
        yield make("LRN", shape, size=size, alpha=0.3)


_DRAWN = {"LogSum": (0.5, 2.0), "Prod": (0.9, 1.1)}


def _reductions(rank: int, shape: tuple[int, ...]) -> Iterator[Case]:
    kinds = "Sum Mean Max Min Prod L1 L2 SumSquare LogSumExp LogSum".split()
    for kind, kept in itertools.product(kinds, (0, 1)):
        x = Given(shape, "float32", *_DRAWN.get(kind, (-2.0, 2.0)))
        yield make(f"Reduce{kind}", x, ints(1, -1), keepdims=kept)
        yield make(f"Reduce{kind}", x, keepdims=kept)
        yield make(f"Reduce{kind}", x, noop_with_empty_axes=1, keepdims=kept)
        yield make(f"Reduce{kind}", x, axes=(0, 2), keepdims=kept, opset=13)
    for exclusive, reverse, axis in itertools.product((0, 1), (0, 1), (0, -1, rank)):
        yield make("CumSum", shape, Known(np.array(axis)), exclusive=exclusive, reverse=reverse)
    yield make("TopK", shape, ints(2), axis=1, outputs=2)
    yield make("TopK", shape, ints(2), axis=-1, largest=0, outputs=2)


def _losses(shape: tuple[int, ...]) -> Iterator[Case]:
    labels = Known(np.random.default_rng(1).integers(0, 4, (2, *shape[2:])), constant=False)
    weights = Given((4,), "float32", 0.5, 2.0)
    for reduction, stated in itertools.product(("sum", "mean", "none"), ({}, {"ignore_index": 1})):
        yield make("SoftmaxCrossEntropyLoss", shape, labels, reduction=reduction, outputs=2, **stated)
        yield make("SoftmaxCrossEntropyLoss", shape, labels, weights, reduction=reduction, **stated)
        yield make("NegativeLogLikelihoodLoss", shape, labels, weights, reduction=reduction, **stated)


def _borders(rank: int, shape: tuple[int, ...]) -> Iterator[Case]:
    for mode, (lo, hi) in itertools.product(("constant", "edge", "reflect", "wrap"), ((1, 2), (-1, 2), (-1, -2))):
        yield make("Pad", shape, ints(0, 0, *(lo,) * rank, 0, 0, *(hi,) * rank), mode=mode)
    yield make("Pad", shape, ints(1, 2), Known(np.array(0.5, np.float32)), ints(-1))


def _resizes(rank: int, shape: tuple[int, ...]) -> Iterator[Case]:
    modes = ("half_pixel", "pytorch_half_pixel", "align_corners", "asymmetric", "half_pixel_symmetric")
    for mode, where, scale in itertools.product(("nearest", "linear"), modes, (2.0, 0.5, 1.6, 0.6)):
        scales = Known(np.array((1.0, 1.0, *(scale,) * rank), np.float32))
        yield make("Resize", shape, None, scales, mode=mode, coordinate_transformation_mode=where, opset=19)
        sizes = ints(*shape[:2], *(int(size * scale) for size in shape[2:]))
        yield make("Resize", shape, None, None, sizes, mode=mode, coordinate_transformation_mode=where, opset=19)


def _sampling() -> Iterator[Case]:
    grid = Given((2, 3, 4, 2), "float32", -1.3, 1.3)
    where = itertools.product(("linear", "nearest", "cubic"), ("zeros", "border", "reflection"), (0, 1))
    for mode, border, corners in where:
        stated: dict[str, Any] = {"padding_mode": border, "align_corners": corners}
        yield make("GridSample", (2, 3, 5, 6), grid, mode=mode, opset=20, **stated)
        older = {"linear": "bilinear", "cubic": "bicubic"}.get(mode, mode)
        yield make("GridSample", (2, 3, 5, 6), grid, mode=older, opset=16, **stated)
    boxes = Known(np.array([[0, 0, 5, 5], [1, 2, 4.5, 6], [2, 1, 7, 3]], np.float32), constant=False)
    of = Known(np.array([0, 1, 0]), constant=False)
    for mode, ratio, opset in itertools.product(("avg", "max"), (0, 1), (13, 21)):
        yield make("RoiAlign", (2, 3, 9, 8), boxes, of, mode=mode, sampling_ratio=ratio, output_width=2, opset=opset)


def _recurrent() -> Iterator[Case]:
    steps, batch, size, hidden = 5, 3, 2, 4
    lengths = Known(np.array([5, 0, 3], np.int32))
    other = {"LSTM": ("Sigmoid", "Tanh", "Relu"), "GRU": ("HardSigmoid", "Softsign"), "RNN": ("Relu",)}
    for op_type, gates in (("LSTM", 4), ("GRU", 3), ("RNN", 1)):
        ways = itertools.product(("forward", "reverse", "bidirectional"), (None, lengths), (False, True))
        for direction, ends, has_start in ways:
            d = 2 if direction == "bidirectional" else 1
            start = ((d, batch, hidden),) * (2 if op_type == "LSTM" else 1) if has_start else ()
            weights = ((d, gates * hidden, size), (d, gates * hidden, hidden), (d, 2 * gates * hidden))
            operands = ((steps, batch, size), *weights, ends, *start)
            stated: dict[str, Any] = {"hidden_size": hidden, "direction": direction}
            stated["outputs"] = 3 if op_type == "LSTM" else 2
            yield make(op_type, *operands, **stated)
            yield make(op_type, *operands, clip=0.7, **stated)
            yield make(op_type, *operands, activations=other[op_type] * d, **stated)
            if op_type == "GRU":
                yield make(op_type, *operands, linear_before_reset=1, **stated)
            if op_type == "LSTM":
                yield make(op_type, *operands, input_forget=1, **stated)
                if has_start:
                    yield make(op_type, *operands, (d, 3 * hidden), **stated)


def _elementwise() -> Iterator[Case]:
    plain = "Elu Celu Selu Mish HardSwish HardSigmoid ThresholdedRelu Shrink Softsign Softplus Sigmoid Tanh Gelu Erf"
    for op_type in f"{plain} LeakyRelu Relu Sin Cos Exp Abs Neg Floor Ceil Round Sign Sinh Cosh Atan Asinh".split():
        yield make(op_type, (3, 4))
    for op_type in ("Elu", "Celu", "HardSigmoid", "ThresholdedRelu", "LeakyRelu"):
        yield make(op_type, (3, 4), alpha=1.7)
    for op_type, count in itertools.product(("Sum", "Mean", "Max", "Min"), (1, 2, 3)):
        yield make(op_type, *[(3, 1), (1, 4), (3, 4)][:count])
    for a, b in itertools.product((0, 1), (0, 1)):
        yield make(
            "Gemm", (4, 3) if a else (3, 4), (5, 4) if b else (4, 5), (5,), transA=a, transB=b, alpha=0.5, beta=2.0
        )
    for rank, shape in ((1, (1, 1, 4)), (2, (1, 1, 3, 3)), (3, (1, 1, 2, 2, 2))):
        count = int(np.prod(shape))
        places = np.sort(np.random.default_rng(0).permutation(count * 2**rank)[:count]).reshape(shape)
        yield make("MaxUnpool", shape, Known(places), kernel_shape=(2,) * rank, strides=(2,) * rank)


def main() -> int:
    """Prints what differs."""
    warnings.filterwarnings("ignore")
    found = sweep((*all_cases(), *variants()))
    for name, error in found.wrong.items():
        print(f"WRONG {name}: {error}")
    theirs = Counter(name.partition("(")[0] for name in found.evaluator)
    print("ONNX's evaluator differs or fails:", ", ".join(f"{name} {count}" for name, count in sorted(theirs.items())))
    print("by the runtime:", ", ".join(f"{name} {count}" for name, count in sorted(found.own_precision.items())))
    print(f"{sum(found.looked_at.values())} cases of {len(found.looked_at)} operators, {len(found.wrong)} wrong")
    return 1 if found.wrong else 0


if __name__ == "__main__":
    sys.exit(main())
