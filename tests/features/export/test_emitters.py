"""An emitter writes an op, or refuses it: nothing of a node is left out of the text."""

from __future__ import annotations

import numpy as np
import pytest

from planner.features.export.emitters import Form, InexpressibleError, Operand, emitted
from planner.features.export.emitters.registry import _EMITTERS
from planner.graph.core.model import DType
from planner.tdl.local import LocalNode

_NUMBER = Operand("jnp.int64(1)", np.array(1))


@pytest.mark.parametrize("op_type", sorted(_EMITTERS))
def test_an_attribute_that_no_emitter_reads_is_refused(op_type: str) -> None:
    node = LocalNode(op_type, tuple(f"in{slot}" for slot in range(5)), ("out0",), {"unheard_of": 1})
    with pytest.raises(InexpressibleError, match=op_type):
        emitted(Form(node, (_NUMBER,) * 5, 21))


@pytest.mark.parametrize("op_type", ["Softmax", "MaxPool", "OneHot", "Gather", "Gemm", "CumSum", "Pad"])
def test_an_input_that_no_emitter_reads_is_refused(op_type: str) -> None:
    attributes = {"kernel_shape": (1,)} if op_type == "MaxPool" else {}
    node = LocalNode(op_type, tuple(f"in{slot}" for slot in range(6)), ("out0",), attributes)
    with pytest.raises(InexpressibleError, match=op_type):
        emitted(Form(node, (_NUMBER,) * 6, 21))


@pytest.mark.parametrize(("start", "step", "text"), [(0, 1, "x[:5]"), (0, -1, "x[0:5:-1]"), (2, 2, "x[2:5:2]")])
def test_a_slice_from_its_first_element(start: int, step: int, text: str) -> None:
    constants = [Operand("", np.array([value])) for value in (start, 5, 0, step)]
    node = LocalNode("Slice", ("in0", "s", "e", "a", "t"), ("out0",))
    assert emitted(Form(node, (Operand("x"), *constants), 21)) == (text,)


def test_narrow_numbers_are_refused() -> None:
    """XLA rounds them otherwise than ONNX does."""
    node = LocalNode("Cast", ("in0",), ("out0",), {"to": 17, "saturate": 0})
    with pytest.raises(InexpressibleError, match="Cast"):
        emitted(Form(node, (Operand("x"),), 21, (DType.FLOAT8E4M3FN,)))
