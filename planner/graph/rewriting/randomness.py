"""Random operators as functions of (seed, operator, step, global index), in standard integer arithmetic.

ONNX's random kernels draw from a stream, so what an element gets depends on how many were drawn before it: cut, the op
gives other numbers. Here every element hashes its own index instead, in ops that a plan can cut like any element-wise
ones; the numbers are bit for bit the same on any number of workers.

``random_numbers`` has the generator. The step is a state of the graph, ``tofu.step``, which counts from 0 and wraps
after 2^32 steps.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Final, TypeAlias

import numpy as np

from planner.errors import UnsupportedError
from planner.graph.emitter import Emitter, free_prefix
from planner.graph.model import DType, Graph, Op, StatePair, Tensor
from planner.graph.rewriting.random_numbers import MAX_INDEX, Draw, inner_and_outer, make_clock

STEP: Final = "tofu.step"
"""The state that counts steps."""


def lower_randomness(graph: Graph) -> Graph:
    """Writes a graph's random operators, Dropout in training mode among them, as functions of the element's index.

    Dropout's ratio may be computed; whether it trains must be known. At inference it stays as it is.

    Args:
        graph: is left as it is; that itself is returned if nothing in it is random.

    Returns:
        The graph with a state ``tofu.step`` more, on which all that is random depends.

    Raises:
        UnsupportedError: random operators that cannot be written so, all of them, each with the reason.
    """
    random = [op for op in graph.ops if not op.domain and _is_random(graph, op)]
    refused = [f"op {op.name!r} ({op.op_type}): {reason}" for op in random if (reason := _obstacle(graph, op))]
    if refused:
        raise UnsupportedError("random operators whose numbers would depend on how they are cut", facts=tuple(refused))
    if not random:
        return graph
    taken = sorted({*graph.tensors, *(op.name for op in graph.ops)})
    names = {op.name for op in random}
    step, following = _free(STEP, graph.tensors), _free(f"{STEP}.next", graph.tensors)
    counter = Tensor(step, (), DType.UINT32)
    shared = Emitter(free_prefix(f"{step}/", taken), {**graph.tensors, step: counter}, graph.constants, graph.opset)
    clock = make_clock(shared, step)
    emitters = [shared]
    ops = [op.renamed({clock.following: following}) for op in shared.ops]
    shared.tensors[following] = replace(shared.tensors.pop(clock.following), name=following)
    for op in graph.ops:
        if op.name not in names:
            ops.append(op)
            continue
        known = {**graph.tensors, **shared.tensors}
        emitter = Emitter(free_prefix(f"{op.name}/", taken), known, graph.constants, graph.opset)
        made = LOWERINGS[op.op_type](Draw(emitter, op, clock))
        outputs = {name: output for name, output in zip(made, op.outputs, strict=False) if output}
        ops.extend(inner.renamed(outputs) for inner in emitter.ops)
        # What a lowering makes last gets the name of the op's output, of which the graph has a tensor already.
        for name in outputs:
            del emitter.tensors[name]
        emitters.append(emitter)
    new = {name: tensor for emitter in emitters for name, tensor in emitter.tensors.items()}
    constants = {name: value for emitter in emitters for name, value in emitter.constants.items()}
    read = {name for op in ops for name in op.inputs}
    kept = {name: value for name, value in graph.constants.items() if name in read or name in graph.outputs}
    dropped = graph.constants.keys() - kept.keys()
    tensors = {name: tensor for name, tensor in graph.tensors.items() if name not in dropped}
    return replace(
        graph,
        tensors={**tensors, step: counter, **new},
        ops=tuple(ops),
        inputs=(*graph.inputs, step),
        outputs=(*graph.outputs, following),
        constants={**kept, **constants},
        folded=(graph.folded - dropped) | constants.keys(),
        initial={**graph.initial, step: np.array(0, np.uint32)},
        state=(*graph.state, StatePair(step, following)),
    )


def _free(wanted: str, taken: Mapping[str, Tensor]) -> str:
    while wanted in taken:
        wanted += "_"
    return wanted


def _is_random(graph: Graph, op: Op) -> bool:
    if op.op_type != "Dropout":
        return op.op_type in LOWERINGS
    if len(op.inputs) < 3 or not op.inputs[2]:
        return False
    training = graph.constants.get(op.inputs[2])
    return training is None or bool(training.item())


def _obstacle(graph: Graph, op: Op) -> str:
    """Why the op cannot be lowered; "" if it can."""
    if op.op_type == "Dropout" and graph.constants.get(op.inputs[2]) is None:
        return "whether it trains is computed; make training_mode a constant"
    tensor = graph.tensors[next(filter(None, op.outputs))]
    if max(inner_and_outer(tensor.shape)[1:]) > MAX_INDEX:
        return f"{tensor.elements} elements are more than its counters can tell apart"
    return ""


def _random_normal(draw: Draw) -> tuple[str, ...]:
    """A standard normal number times scale, plus mean; RandomNormalLike takes shape and dtype of its input."""
    shape = draw.emitter.shape(draw.op.outputs[0])
    return (draw.affine(draw.normal(shape), draw.attribute("scale", 1.0), draw.attribute("mean", 0.0)),)


def _random_uniform(draw: Draw) -> tuple[str, ...]:
    """Evenly between low and high; RandomUniformLike takes shape and dtype of its input."""
    low, high = draw.attribute("low", 0.0), draw.attribute("high", 1.0)
    return (draw.affine(draw.uniform(draw.emitter.shape(draw.op.outputs[0])), high - low, low),)


def _bernoulli(draw: Draw) -> tuple[str, ...]:
    """1 with the probability that the input says, else 0."""
    emitter, (x,), (output,) = draw.emitter, draw.op.inputs, draw.op.outputs
    chance = emitter.cast(x, DType.FLOAT32, "chance")
    drawn = emitter.each("Less", "drawn", draw.uniform(emitter.shape(x)), chance, dtype=DType.BOOL)
    return (emitter.cast(drawn, emitter.dtype(output), "result"),)


def _dropout(draw: Draw) -> tuple[str, ...]:
    """Output = x / (1 - ratio) where the mask is true, else 0; the ratio is 0.5 where none is given."""
    emitter, op = draw.emitter, draw.op
    x = op.inputs[0]
    shape, dtype = emitter.shape(x), emitter.dtype(x)
    given = op.inputs[1] if len(op.inputs) > 1 else ""
    known = emitter.value(given) if given else np.array(0.5, np.float32)
    if known is None:
        ratio = emitter.cast(given, DType.FLOAT32, "ratio")
        mask = emitter.each("GreaterOrEqual", "mask", draw.uniform(shape), ratio, dtype=DType.BOOL)
        one = emitter.scalar(1.0, DType.FLOAT32, "one")
        factor = emitter.cast(emitter.each("Div", "factor32", one, emitter.each("Sub", "kept", one, ratio)), dtype,
                              "factor")  # fmt: skip
    else:
        share = float(known.item())
        # Of 2^32 numbers those below the threshold are dropped; compared as integers, so that no rounding decides.
        threshold = min(math.ceil(share * 2**32), 2**32 - 1)
        least = emitter.scalar(threshold, DType.UINT32, "threshold")
        mask = emitter.each("GreaterOrEqual", "mask", draw.bits(shape), least, dtype=DType.BOOL)
        factor = emitter.scalar(1 / (1 - share) if share < 1 else 0.0, dtype, "factor")
    scaled = emitter.each("Mul", "scaled", x, factor)
    zero = emitter.scalar(0.0, dtype, "zero")
    return (emitter.each("Where", "result", mask, scaled, zero), mask)


def _multinomial(draw: Draw) -> tuple[str, ...]:
    """Classes by inversion: the first one at which the running sum of weights, e^x, exceeds a share of their total.

    The weights are whole numbers, so that their sums are the same in any order.
    """
    emitter, (x,), (output,) = draw.emitter, draw.op.inputs, draw.op.outputs
    (rows, classes), shape = emitter.shape(x), emitter.shape(output)
    weights = draw.weights(x, bits=min(40, 52 - classes.bit_length()))
    along = emitter.scalar(1, DType.INT64, "along")
    running = emitter.one("CumSum", (weights, along), (rows, classes), DType.INT64, hint="running")
    total = emitter.cast(emitter.reduce("ReduceSum", weights, (1,), "total"), DType.FLOAT64, "total64")
    bits = emitter.cast(draw.bits(shape), DType.FLOAT64, "bits64")
    share = emitter.each("Mul", "share", bits, emitter.scalar(2.0**-32, DType.FLOAT64, "unit"))
    reached = emitter.cast(emitter.each("Floor", "floor", emitter.each("Mul", "scaled", share, total)), DType.INT64,
                           "reached")  # fmt: skip
    passed = emitter.each(
        "LessOrEqual", "passed", emitter.reshape(running, (rows, 1, classes), "running3"),
        emitter.reshape(reached, (*shape, 1), "reached3"), dtype=DType.BOOL,
    )  # fmt: skip
    count = emitter.reduce("ReduceSum", emitter.cast(passed, DType.INT64, "passed64"), (2,), "count", keepdims=False)
    return (emitter.cast(count, emitter.dtype(output), "result"),)


Lowering: TypeAlias = Callable[[Draw], "tuple[str, ...]"]

LOWERINGS: Final[Mapping[str, Lowering]] = MappingProxyType(
    {
        "Bernoulli": _bernoulli,
        "Dropout": _dropout,
        "Multinomial": _multinomial,
        "RandomNormal": _random_normal,
        "RandomNormalLike": _random_normal,
        "RandomUniform": _random_uniform,
        "RandomUniformLike": _random_uniform,
    }
)
"""By op type of the default domain."""
