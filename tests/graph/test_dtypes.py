"""The numbers by which ONNX calls element types: those kept for code without the onnx package are the package's."""

from __future__ import annotations

import pytest

from planner.graph.core.model import ELEM_TYPES, DType
from planner.graph.files.protos import elem_type_of


@pytest.mark.parametrize("dtype", DType)
def test_element_types(dtype: DType) -> None:
    assert ELEM_TYPES[dtype] == elem_type_of(dtype)
