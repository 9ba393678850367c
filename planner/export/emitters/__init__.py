"""JAX for ONNX operators: an emitter for each, in a registry."""

from __future__ import annotations

import planner.export.emitters.elementwise
import planner.export.emitters.indexing
import planner.export.emitters.layout
import planner.export.emitters.normalised
import planner.export.emitters.products
import planner.export.emitters.reductions
import planner.export.emitters.windows  # noqa: F401  each registers its own
from planner.export.emitters.registry import Form, InexpressibleError, Operand, emitted, is_exported, literal

__all__ = ["Form", "InexpressibleError", "Operand", "emitted", "is_exported", "literal"]
