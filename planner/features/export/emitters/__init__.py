"""JAX for ONNX operators: an emitter for each, in a registry."""

from __future__ import annotations

import planner.features.export.emitters.elementwise
import planner.features.export.emitters.indexing
import planner.features.export.emitters.layout
import planner.features.export.emitters.normalised
import planner.features.export.emitters.products
import planner.features.export.emitters.reductions
import planner.features.export.emitters.windows  # noqa: F401  each registers its own
from planner.features.export.emitters.registry import Form, InexpressibleError, Operand, emitted, is_exported, literal

__all__ = ["Form", "InexpressibleError", "Operand", "emitted", "is_exported", "literal"]
