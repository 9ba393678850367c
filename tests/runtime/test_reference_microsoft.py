"""ONNX Runtime's own operators in NumPy: what its kernels compute, to rounding."""

from __future__ import annotations

import numpy as np
import pytest

from planner.features.ops.cases.case import Case, execute_case
from planner.features.ops.cases.examples import all_cases
from planner.runtime.judge.reference import kernel_of

CASES = [case for case in all_cases() if case.domain == "com.microsoft" or case.op_type.startswith("Simplified")]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_a_case_is_what_the_runtime_computes(case: Case) -> None:
    graph, inputs, whole = execute_case(case)
    (op,) = graph.ops
    kernel = kernel_of(graph, op)
    assert kernel is not None
    arrays = {**graph.constants, **inputs}
    wide = {name: array.astype(np.float64) if array.dtype == np.float32 else array for name, array in arrays.items()}
    made = kernel(op, [wide.get(name) for name in op.inputs])
    for name, array in zip(op.outputs, made, strict=False):
        if name:
            assert array.dtype == (np.float64 if whole[name].dtype == np.float32 else whole[name].dtype)
            scale = np.abs(whole[name]).max()
            np.testing.assert_allclose(array, whole[name], rtol=0, atol=2e-6 * scale)
