"""Decompositions of com.microsoft's operators, which onnxruntime-training's gradient builder emits.

Operand orders are those of the operators' schemas in onnxruntime.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from planner.errors import UnsupportedError
from planner.graph.core.attributes import label
from planner.graph.core.model import Op
from planner.training.doors.microsoft import forward, gradients, losses, normalisations, recurrent
from planner.training.doors.walk import Lowering, Walk

DOMAIN: Final = "com.microsoft"


def _refused(reason: str) -> Lowering:
    def lowering(walk: Walk, op: Op) -> tuple[str, ...]:
        raise UnsupportedError(f"{label(op)}: {reason}")

    return lowering


_REFUSED: Final[Mapping[str, Lowering]] = {
    "BitmaskDropoutGrad": _refused("a mask of bits has no standard form"),
    "NcclAllReduce": _refused("the model is distributed already"),
}
_DEFAULT_DOMAIN: Final = ("AveragePoolGrad", "LayerNormalization", "MaxPoolGrad", "SimplifiedLayerNormalization")
"""Operators that the runtime has in ONNX's own domain, where ONNX has none of the name, or has it later."""
_NAMED: Final[Mapping[str, Lowering]] = {
    **forward.LOWERINGS,
    **gradients.LOWERINGS,
    **losses.LOWERINGS,
    **normalisations.LOWERINGS,
    **recurrent.LOWERINGS,
    **_REFUSED,
}
TABLE: Final[Mapping[tuple[str, str], Lowering]] = MappingProxyType(
    {
        **{(DOMAIN, name): lowering for name, lowering in _NAMED.items()},
        **{("", name): _NAMED[name] for name in _DEFAULT_DOMAIN},
        ("", "SoftmaxCrossEntropyLoss"): _NAMED["SoftmaxCrossEntropyLossInternal"],
    }
)
"""By domain and operator."""
