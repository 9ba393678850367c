"""SimplifiedLayerNormalization, which ONNX Runtime has in ONNX's own domain; and helpers for its own domain."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from planner.errors import DescriptionError
from planner.graph.core.model import Implied
from planner.opdefs.broadcast import normal_axis
from planner.tdl.builder import Ix, NodeView, Opaque, TensorArg, Val, op, over

DOMAIN: Final = "com.microsoft"


def like_first(node: NodeView) -> Sequence[Implied | None]:
    """The one output has the shape of the first input."""
    return ((node.input_shape(0), None),)


def _simplified_results(node: NodeView) -> Sequence[Implied | None]:
    shape = node.input_shape(0)
    axis = normal_axis(node.attribute("axis", -1), len(shape))
    return ((shape, None), ((*shape[:axis], *(1 for _ in shape[axis:])), None))


@op("SimplifiedLayerNormalization", results=_simplified_results)
def simplified_layer_normalization(node: NodeView, X: TensorArg, scale: TensorArg) -> object:
    """Divides by the root of the mean square over the dims from axis on; also gives one over that root."""
    axis = normal_axis(node.attribute("axis", -1), X.rank)
    if scale.rank != X.rank - axis:
        raise DescriptionError(f"a scale of rank {scale.rank} for {X.rank - axis} dims that are normalised")

    def rows(i: tuple[Ix, ...]) -> Val:
        return X[(*i[:axis], *(slice(None) for _ in range(axis, X.rank)))]

    def normalised(*i: Ix) -> Val:
        return Opaque("SimplifiedLayerNormalization")(rows(i), scale[...])[i[axis:]]

    leading = [f"i{dim}" for dim in range(axis)]
    single = [*leading, *(f"one{dim}" for dim in range(axis, X.rank))]
    return normalised, over(single, lambda *i: Opaque("InverseDeviation")(rows(i))[i[axis:]])
