"""Models that hold operators of onnxruntime-training, beside what differentiating the standard operators gives."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from onnx import ModelProto, NodeProto, TensorProto, helper, numpy_helper

import stock_runtime
from planner.graph.core.model import Graph

MS, PREVIEW = "com.microsoft", "ai.onnx.preview.training"


def ms(op_type: str, inputs: Sequence[str], outputs: Sequence[str], **attributes: Any) -> NodeProto:
    """A node of com.microsoft."""
    return helper.make_node(op_type, inputs, outputs, domain=MS, **attributes)


def model_of(
    nodes: Sequence[NodeProto],
    shapes: Mapping[str, Sequence[int]],
    constants: Mapping[str, Any],
    outputs: Sequence[str],
) -> ModelProto:
    """A model of these nodes: float32 inputs by shape, constants by value, outputs of any type."""
    inputs = [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in shapes.items()]
    values = [helper.make_empty_tensor_value_info(name) for name in outputs]
    initializers = [numpy_helper.from_array(np.asarray(value), name) for name, value in constants.items()]
    opsets = [helper.make_opsetid(domain, version) for domain, version in (("", 21), (MS, 1), (PREVIEW, 1))]
    graph = helper.make_graph(nodes, "g", inputs, values, initializers)
    return helper.make_model(graph, opset_imports=opsets, ir_version=10)


def run(graph: Graph, feeds: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """What the stock runtime computes of the inputs that the graph has: both sides are fed alike, one reads less."""
    return stock_runtime.run(graph, {name: feeds[name] for name in graph.inputs})
