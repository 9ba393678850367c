"""Random operators as functions of (seed, operator, step, global index), in standard integer arithmetic.

ONNX's random kernels draw from a stream, so what an element gets depends on how many were drawn before it: cut, the op
gives other numbers. Here every element hashes its own index instead, in ops that a plan can cut like any element-wise
ones; the numbers are bit for bit the same on any number of workers.

``random_numbers`` has the generator. The step is a state of the graph, ``tofu.step``, which counts from 0 and wraps
after 2^32 steps.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

import numpy as np

from planner.errors import UnsupportedError
from planner.graph.core.attributes import draws
from planner.graph.core.emitter import Emitter, free_prefix
from planner.graph.core.model import DType, Graph, Op, StatePair, Tensor
from planner.graph.decompositions.registry import Purpose, decompositions
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
    random = [op for op in graph.ops if draws(op, graph.constants.get) is not False]
    refused = [f"op {op.name!r} ({op.op_type}): {reason}" for op in random if (reason := _obstacle(graph, op))]
    if refused:
        raise UnsupportedError("random operators whose numbers would depend on how they are cut", facts=tuple(refused))
    if not random:
        return graph
    reserved = sorted({*graph.tensors, *(op.name for op in graph.ops)})
    names = {op.name for op in random}
    step, following = _free(STEP, graph.tensors), _free(f"{STEP}.next", graph.tensors)
    counter = Tensor(step, (), DType.UINT32)
    shared = Emitter(free_prefix(f"{step}/", reserved), {**graph.tensors, step: counter}, graph.constants, graph.opset)
    clock = make_clock(shared, step)
    emitters, lowerings = [shared], decompositions(Purpose.RANDOM)
    ops = [op.renamed({clock.following: following}) for op in shared.ops]
    shared.tensors[following] = replace(shared.tensors.pop(clock.following), name=following)
    for op in graph.ops:
        if op.name not in names:
            ops.append(op)
            continue
        sources = {**graph.tensors, **shared.tensors}
        emitter = Emitter(free_prefix(f"{op.name}/", reserved), sources, graph.constants, graph.opset)
        results = lowerings[op.op_type](Draw(emitter, op, clock), op)
        assert results is not None, "what cannot be lowered was refused"
        outputs = {name: output for name, output in zip(results, op.outputs, strict=False) if output}
        ops.extend(inner.renamed(outputs) for inner in emitter.ops)
        # What a lowering makes last gets the name of the op's output, of which the graph has a tensor already.
        for name in outputs:
            del emitter.tensors[name]
        emitters.append(emitter)
    lowered_tensors = {name: tensor for emitter in emitters for name, tensor in emitter.tensors.items()}
    constants = {name: value for emitter in emitters for name, value in emitter.constants.items()}
    read = {name for op in ops for name in op.inputs}
    source_constants = {name: value for name, value in graph.constants.items() if name in read or name in graph.outputs}
    dropped = graph.constants.keys() - source_constants.keys()
    tensors = {name: tensor for name, tensor in graph.tensors.items() if name not in dropped}
    return replace(
        graph,
        tensors={**tensors, step: counter, **lowered_tensors},
        ops=tuple(ops),
        inputs=(*graph.inputs, step),
        outputs=(*graph.outputs, following),
        constants={**source_constants, **constants},
        folded=(graph.folded - dropped) | constants.keys(),
        initial={**graph.initial, step: np.array(0, np.uint32)},
        state=(*graph.state, StatePair(step, following)),
    )


def _free(wanted: str, reserved: Mapping[str, Tensor]) -> str:
    while wanted in reserved:
        wanted += "_"
    return wanted


def _obstacle(graph: Graph, op: Op) -> str:
    """Why the op cannot be lowered; "" if it can."""
    if draws(op, graph.constants.get) is None:
        return "whether it trains is computed; make training_mode a constant"
    tensor = graph.tensors[next(filter(None, op.outputs))]
    if max(inner_and_outer(tensor.shape)[1:]) > MAX_INDEX:
        return f"{tensor.elements} elements are more than its counters can tell apart"
    return ""
