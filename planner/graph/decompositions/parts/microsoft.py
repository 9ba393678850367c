"""ONNX Runtime's own normalisations: a sum first, then the mean of its elements, or of their squares."""

from __future__ import annotations

from dataclasses import replace

from planner.graph.core.emitter import Emitter
from planner.graph.core.model import Op
from planner.graph.decompositions.parts.normalization import layer_normalization, rms_normalization
from planner.graph.decompositions.registry import Purpose, stands_for

_EPSILON = 1e-12
"""ONNX Runtime's default, where ONNX's is 1e-5."""


def _plain(op: Op, *inputs: str) -> Op:
    """The normalisation of a sum, as ONNX has it: one result."""
    epsilon = op.attribute("epsilon", _EPSILON)
    assert epsilon is not None, "there is a default"
    return replace(op, inputs=inputs, outputs=op.outputs[:1], attributes=(("epsilon", epsilon),))


def _sum(emitter: Emitter, op: Op, bias_slot: int) -> str:
    added = emitter.each("Add", "added", op.inputs[1], op.inputs[0])
    return emitter.each("Add", "biased", op.inputs[bias_slot], added) if op.has_input(bias_slot) else added


def _normalised(op: Op, results: tuple[str, ...] | None, total: str) -> tuple[str, ...] | None:
    """The outputs: the result and the sum; None where mean or deviation are wanted."""
    return None if results is None or any(op.outputs[1:3]) else (results[0], "", "", total)


@stands_for("com.microsoft.SkipLayerNormalization", purpose=Purpose.PARTS, is_better=True)
def skip_layer_normalization(emitter: Emitter, op: Op) -> tuple[str, ...] | None:
    """LayerNormalization of input, skip and bias together."""
    total = _sum(emitter, op, 4)
    shift = op.inputs[3] if op.has_input(3) else ""
    return _normalised(op, layer_normalization(emitter, _plain(op, total, op.inputs[2], shift)), total)


@stands_for("com.microsoft.SkipSimplifiedLayerNormalization", purpose=Purpose.PARTS, is_better=True)
def skip_simplified_layer_normalization(emitter: Emitter, op: Op) -> tuple[str, ...] | None:
    """RMSNormalization of input, skip and bias together."""
    total = _sum(emitter, op, 3)
    return _normalised(op, rms_normalization(emitter, _plain(op, total, op.inputs[2])), total)


@stands_for("SimplifiedLayerNormalization", purpose=Purpose.PARTS)
def simplified_layer_normalization(emitter: Emitter, op: Op) -> tuple[str, ...] | None:
    """RMSNormalization; also one over the root."""
    return rms_normalization(emitter, op)
