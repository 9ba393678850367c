"""An op's work, as its description has it, against what NumPy computes: counted, for every operator described."""

from __future__ import annotations

import warnings
from math import prod

import pytest
from onnx.reference import ReferenceEvaluator

from counted_arrays import Counter
from planner import opdefs
from planner.features.ops.cases.case import Case, by_type, execute_case
from planner.features.ops.cases.examples import all_cases
from planner.graph.decompositions.expand import expand
from planner.graph.files.to_onnx import to_model
from planner.runtime.judge.reference import BY_BODY, kernel_of

DESCRIPTIONS = opdefs.standard()
CASES = by_type(all_cases())
UNCOUNTED = {
    "AffineGrid": "made of a size alone, which is no array of floats",
    "BitCast": "ONNX's evaluator has another form",
    "BlackmanWindow": "made of a size",
    "DFT": "a fast transform: no ufunc",
    "GridSample": "ONNX's evaluator has other modes",
    "GroupNormalization": "a function of ONNX: its evaluator reads plain arrays",
    "HammingWindow": "made of a size",
    "HannWindow": "made of a size",
    "MaxRoiPool": "ONNX's evaluator has it not",
    "MelWeightMatrix": "made of sizes",
    "QLinearConv": "ONNX's evaluator makes plain arrays of it: it is a Conv",
    "STFT": "a fast transform: no ufunc",
    "Scatter": "the older name of ScatterElements",
    "TfIdfVectorizer": "made of a pool of words, in Python",
    "Upsample": "the older name of Resize",
}
"""Operators of which nothing can be counted, or less than what is done."""
_OPSET = 14
MOST = 4
"""By how much a description may be above what is counted and touched: borders, maxima and sums that NumPy takes of a
view without a function, samples that are shorter than the longest."""
CALLS = 4
"""Functions of NumPy that stand for one of a description: a Sigmoid."""
PASSES = 6
"""How often NumPy may go over what is read and made: to pad, mask or find places."""


def counted(case: Case) -> tuple[int, int, int]:
    """What the description says, what NumPy does, and the elements that are read and made."""
    graph, arrays, _ = execute_case(case)
    op = graph.ops[0]
    counter = Counter()
    known = {name: counter.array(array) for name, array in {**graph.constants, **arrays}.items() if array is not None}
    by_body = bool(op.domain) or op.op_type in BY_BODY
    kernel = None if by_body else kernel_of(graph, op)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if kernel is not None:
            kernel(op, [known[name] if name else None for name in op.inputs])
        else:
            ReferenceEvaluator(to_model(expand(graph, is_plan=False).graph if by_body else graph)).run(
                None, {name: known[name] for name in graph.inputs}
            )
    touched = sum(tensor.elements for tensor in graph.tensors.values())
    return DESCRIPTIONS.bind(op, graph).flop, counter.operations, touched


def hold(case: Case) -> None:
    described, done, touched = counted(case)
    assert described <= MOST * (done + touched), (str(case), described, done, touched)
    assert done <= CALLS * described + PASSES * touched, (str(case), described, done, touched)


SOME = ["Attention", "Conv", "ConvTranspose", "Gather", "Gemm", "LSTM", "com.microsoft.GroupQueryAttention"]


@pytest.mark.parametrize("op_type", SOME)
def test_an_op_takes_what_is_counted(op_type: str) -> None:
    first, second = CASES[op_type][:2]
    hold(first)
    hold(second)


@pytest.mark.slow
def test_every_described_operator_takes_what_is_counted() -> None:
    """But for forms of older opsets, which ONNX's evaluator may lack."""
    looked_at = set()
    for op_type, cases in CASES.items():
        for case in cases:
            if op_type not in UNCOUNTED and case.opset >= _OPSET:
                hold(case)
                looked_at.add(op_type)
    assert looked_at == set(CASES) - set(UNCOUNTED)
    assert len(looked_at) > 150


@pytest.mark.slow
def test_what_is_not_counted_takes_no_more_than_it_touches() -> None:
    """But for a convolution of whole numbers, which takes two operations for each element of a window."""
    held = 0
    for op_type in UNCOUNTED:
        for case in CASES[op_type]:
            graph, _, _ = execute_case(case)
            touched = sum(tensor.elements for tensor in graph.tensors.values())
            if op_type == "QLinearConv":
                weights, made = graph.tensors[graph.ops[0].inputs[3]], graph.tensors[graph.outputs[0]]
                touched = made.elements * prod(weights.shape[1:])
            assert DESCRIPTIONS.bind(graph.ops[0], graph).flop <= MOST * touched, str(case)
            held += 1
    assert held > len(UNCOUNTED)
