"""Graphs from ONNX's text form, which shows at sight what a test is about."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import onnx
import pytest

from planner.graph.core.model import Graph
from planner.graph.reading.from_onnx import graph_from_proto

_MODELS = Path(__file__).parent.parent / "models"


@pytest.fixture
def models() -> Path:
    """The folder of the models that other people's tools made."""
    return _MODELS


@pytest.fixture
def parse() -> Callable[..., onnx.ModelProto]:
    """``parse(text, opset=21, ir=10)``: a model from its graph in text form."""

    def parse_model(text: str, opset: int = 21, ir: int = 10) -> onnx.ModelProto:
        return onnx.parser.parse_model(f'<ir_version: {ir}, opset_import: ["" : {opset}, "local" : 1]> {text}')

    return parse_model


@pytest.fixture
def read(parse: Callable[..., onnx.ModelProto]) -> Callable[..., Graph]:
    """``read(text, opset=21, ir=10, **options)``: a graph from its text form."""

    def read_text(text: str, opset: int = 21, ir: int = 10, **options: object) -> Graph:
        return graph_from_proto(parse(text, opset, ir), **options)  # type: ignore[arg-type]

    return read_text
