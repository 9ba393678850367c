"""Ops of ONNX Runtime's own with inputs or attributes that they cannot have: refused by name, never a traceback.

ONNX checks no such op, so that descriptions see what a file says.
"""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import helper, numpy_helper

from fast_suite import examples
from fused_cases import FUSED
from planner import opdefs
from planner.errors import TofuError
from planner.features.ops.cases.case import Case, Given
from planner.features.ops.cases.examples import all_cases
from planner.graph.reading.from_onnx import graph_from_proto

DESCRIPTIONS = opdefs.standard()
CASES = [*(case for case in all_cases() if case.domain == "com.microsoft"), *FUSED]


def model_of(case: Case, dropped: set[str], shapes: dict[int, tuple[int, ...]], outputs: int) -> onnx.ModelProto:
    """A case as a model, some attributes left out, and some inputs of other shapes."""
    names, inputs, constants = [], [], []
    for slot, operand in enumerate(case.operands):
        names.append("" if operand is None else f"x{slot}")
        if operand is None:
            continue
        if isinstance(operand, Given):
            shape, dtype = operand.shape, np.dtype(operand.dtype)
        else:
            shape, dtype = operand.array.shape, operand.array.dtype
            if operand.constant:
                constants.append(numpy_helper.from_array(operand.array, f"x{slot}"))
                continue
        kind = helper.np_dtype_to_tensor_dtype(dtype)
        inputs.append(helper.make_tensor_value_info(f"x{slot}", kind, shapes.get(slot, shape)))
    stated = {name: value for name, value in case.attributes if name not in dropped}
    made = [f"y{position}" for position in range(outputs)]
    node = helper.make_node(case.op_type, names, made, "the op", domain=case.domain, **stated)
    graph = helper.make_graph([node], "one", inputs, [onnx.ValueInfoProto(name=name) for name in made], constants)
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8)


@pytest.mark.parametrize("case", CASES, ids=str)
@given(st.data())
@examples(32)
def test_an_op_is_described_or_refused(case: Case, data: st.DataObject) -> None:
    dropped = data.draw(st.sets(st.sampled_from([name for name, _ in case.attributes] or ["none"])))
    shapes = data.draw(
        st.dictionaries(
            st.integers(0, len(case.operands) - 1),
            st.lists(st.integers(1, 4), max_size=5).map(tuple),
            max_size=2,
        )
    )
    model = model_of(case, dropped, shapes, data.draw(st.integers(1, 4)))
    try:
        DESCRIPTIONS.bind_all(graph_from_proto(model, operators=DESCRIPTIONS))
    except TofuError:
        return
