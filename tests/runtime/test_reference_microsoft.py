"""ONNX Runtime's own operators in NumPy: what its kernels compute, to rounding."""

from __future__ import annotations

import numpy as np
import pytest

from planner import opdefs
from planner.features.ops.cases.case import Case, bind_case
from planner.features.ops.cases.examples import all_cases
from planner.runtime.judge.reference_microsoft import microsoft_kernel

DESCRIPTIONS = opdefs.standard()
CASES = [case for case in all_cases() if case.domain == "com.microsoft" or case.op_type.startswith("Simplified")]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_a_case_is_what_the_runtime_computes(case: Case) -> None:
    bound, inputs, whole = bind_case(case, DESCRIPTIONS)
    kernel = microsoft_kernel(bound.op)
    assert kernel is not None
    wide = {name: array.astype(np.float64) if array.dtype == np.float32 else array for name, array in inputs.items()}
    known = zip(bound.op.inputs, bound.node.constants, strict=True)
    made = kernel(bound.op, [constant if constant is not None else wide.get(name) for name, constant in known])
    for position, expected in whole.items():
        assert made[position].dtype == (np.float64 if expected.dtype == np.float32 else expected.dtype)
        scale = np.abs(expected).max()
        np.testing.assert_allclose(made[position], expected, rtol=0, atol=2e-6 * scale)
