"""The loss of a training graph is that of the forward model, at whatever opset that is written.

The forward model is executed as it is, at its own opset, by ONNX Runtime (or, where that has no kernel, by ONNX's
reference evaluator); the training graph is written in the opset of training graphs.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from onnxruntime.capi.onnxruntime_pybind11_state import NotImplemented as NoKernel

from planner.errors import TofuError
from planner.features.ops.cases.case import Case, Given, Known, execute_case, ints, make
from planner.features.ops.cases.examples import all_cases
from planner.graph.core.model import Graph
from planner.graph.files.to_onnx import to_model
from planner.graph.reading.from_onnx import graph_from_proto
from planner.training.build import build_training_graph
from planner.training.gradients.older_opsets import _FORMS, OPSET
from planner.training.parameters.infer import Decision, Parameters, Verdict
from stock_runtime import NO_ERRORS, run

OPSETS = range(13, 27)


def as_written_at(case: Case, opset: int) -> Case:
    """A case at another opset; axes of reductions, and DFT's, were attributes."""
    kept = list(case.operands)
    while kept and kept[-1] is None:
        kept.pop()  # ONNX Runtime 1.31 dies of SIGSEGV on LayerNormalization with an empty name at the end
    case = replace(case, operands=tuple(kept))
    axes = case.operands[1] if len(case.operands) > 1 else None
    if case.op_type in _FORMS and case.op_type.startswith("Reduce") and opset < 18 and isinstance(axes, Known):
        stated = {**dict(case.attributes), "axes": tuple(int(axis) for axis in axes.array.ravel())}
        return replace(case, operands=case.operands[:1], attributes=tuple(sorted(stated.items())), opset=opset)
    if case.op_type == "DFT" and opset < 20:
        axis = case.operands[2] if len(case.operands) > 2 else None
        stated = {**dict(case.attributes), "axis": int(axis.array) if isinstance(axis, Known) else 1}
        return replace(case, operands=case.operands[:2], attributes=tuple(sorted(stated.items())), opset=opset)
    return replace(case, opset=opset)


@cache
def pairs() -> tuple[tuple[Case, int], ...]:
    """Every case with something to be trained, at every opset; those of one operator and opset side by side."""
    cases = [
        case
        for case in all_cases()
        if not case.domain and any(isinstance(one, Given) and one.dtype == "float32" for one in case.operands)
    ]
    return tuple((case, opset) for case in cases for opset in OPSETS)


def trained(graph: Graph, arrays: dict[str, np.ndarray]) -> Graph:
    """The graph with a parameter in the place of each input of floats."""
    weights = {name: array for name, array in arrays.items() if array.dtype == np.float32}
    inputs = tuple(name for name in graph.inputs if name not in weights)
    return replace(graph, inputs=inputs, constants={**graph.constants, **weights})


def compared(case: Case, opset: int) -> tuple[float, float] | None:
    """The loss by the training graph and by hand; None where there is no such op at this opset, or no gradient."""
    try:
        graph, arrays, made = execute_case(as_written_at(case, opset))
        if made[graph.outputs[0]].dtype != np.float32:
            return None
        forward = trained(graph_from_proto(to_model(graph)), arrays)
        names = [name for name in forward.constants if name in arrays]
        decisions = Parameters(
            tuple(Decision(name, forward.tensors[name].shape, Verdict.TRAINED, "") for name in names)
        )
        step = build_training_graph(
            forward,
            loss="mse",
            optimizer="sgd",
            learning_rate=0.1,
            batchnorm="frozen",
            output=graph.outputs[0],
            parameters=decisions,
        )
    except TofuError:
        return None
    feeds = {**arrays, **step.initial}
    feeds["target"] = np.zeros_like(made[graph.outputs[0]])
    feeds = {name: np.asarray(feeds[name]) for name in step.inputs}
    try:
        found = run(step, feeds, log_level=NO_ERRORS)["loss"]
    except NoKernel:
        return None  # the runtime has no kernel for what the forward model was executed by ONNX's own evaluator for
    return float(found), float(np.mean(np.square(made[graph.outputs[0]].astype(np.float64))))


def findings(drawn: Iterable[tuple[Case, int]]) -> tuple[int, list[str]]:
    count, wrong = 0, []
    for case, opset in drawn:
        losses = compared(case, opset)
        if losses is not None:
            count += 1
            if not np.isclose(*losses, rtol=1e-4, atol=1e-6):
                wrong.append(f"{case} at opset {opset}: {losses[0]:g}, and should be {losses[1]:g}")
    return count, wrong


def draw(every: Sequence[tuple[Case, int]], count: int) -> None:
    chosen = np.random.default_rng(35).choice(len(every), count, replace=False)
    compared_pairs, wrong = findings(every[number] for number in chosen)
    assert wrong == []
    assert compared_pairs > count // 4


def test_a_draw_of_operators_and_opsets() -> None:
    draw(pairs(), 30)


@pytest.mark.slow
def test_a_large_draw_of_older_opsets() -> None:
    draw([pair for pair in pairs() if pair[1] < OPSET], 1200)


CHANGED = [
    make("DFT", (2, 5, 4, 2), opset=20),
    make("GroupNormalization", (2, 6, 5), (3,), (3,), num_groups=3),
    make("ReduceMax", (2, 3, 4), ints(0, 2), keepdims=0),
    make("ReduceMean", (2, 3, 4), ints(1)),
    make("Split", (6, 4), outputs=2, axis=0),
]


@pytest.mark.parametrize("case", CHANGED, ids=lambda case: case.op_type)
def test_operators_that_changed(case: Case) -> None:
    losses = compared(case, _FORMS[case.op_type][0] - 1)
    assert losses is not None
    assert losses[0] == pytest.approx(losses[1], rel=1e-5)


def test_roi_align_without_its_shift() -> None:
    case = next(case for case, _ in pairs() if case.op_type == "RoiAlign" and not dict(case.attributes).get("mode"))
    for opset in (13, 15, 16):
        losses = compared(case, opset)
        assert losses is not None
        assert losses[0] == pytest.approx(losses[1], rel=1e-5)


def test_rows_picked_by_indices_of_32_bits() -> None:
    """Gather takes them; what adds up its gradient, ScatterND, takes 64 bits alone."""
    rows = Known(np.array([[0, -2, 1], [3, 0, 0]], np.int32), constant=False)
    losses = compared(make("Gather", (4, 5), rows), 21)
    assert losses is not None
    assert losses[0] == pytest.approx(losses[1], rel=1e-5)
