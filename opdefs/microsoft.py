"""ONNX Runtime's own activations and normalisations: what its optimizer makes of a sum and what follows it.

Their domain is ``com.microsoft``, but for SimplifiedLayerNormalization, which stands in ONNX's own.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from planner.errors import DescriptionError, UnsupportedError
from planner.graph.core.model import Implied
from planner.opdefs.broadcast import aligned, normal_axis
from planner.tdl.builder import Ix, NodeView, Opaque, TensorArg, Val, call, op, over

DOMAIN: Final = "com.microsoft"


def like_first(node: NodeView) -> Sequence[Implied | None]:
    """The one output has the shape of the first input."""
    return ((node.input_shape(0), None),)


@op("Gelu", "QuickGelu", domain=DOMAIN)
def gelu(node: NodeView, X: TensorArg) -> object:
    """Gelu, and x times the sigmoid of alpha x."""
    return lambda *i: call(node.op.op_type, X[i])


@op("BiasGelu", "FastGelu", domain=DOMAIN)
def bias_gelu(node: NodeView, X: TensorArg, bias: TensorArg | None = None) -> object:
    """Gelu(X + bias), exact or by tanh: the bias has the last dim only."""
    if bias is None:
        return lambda *i: call("Gelu", X[i])
    return lambda *i: call("Gelu", X[i] + bias[i[-1]])


def _skip_results(node: NodeView) -> Sequence[Implied | None]:
    shape = node.input_shape(0)
    statistic = (*shape[:-1], 1)
    return ((shape, None), (statistic, None), (statistic, None), (shape, None))


def _skipped(
    node: NodeView, X: TensorArg, skip: TensorArg, bias: TensorArg | None, learned: Sequence[TensorArg]
) -> object:
    """The sum of input, skip and bias, which is the last output, normalised over its last dim.

    Raises:
        UnsupportedError: mean or deviation are wanted, which ONNX Runtime does not compute on every device.
    """
    if any(shape is not None for shape in node.output_shapes[1:3]):
        raise UnsupportedError(
            f"op {node.op.name} ({node.op.op_type}) gives mean or deviation, which are outputs of training",
            hint="export the model for inference",
        )

    def terms(i: tuple[Ix, ...], last: Ix | slice) -> list[Val]:
        addends = [X[(*i[:-1], last)], skip[(*aligned(node, skip, i[:-1], trailing=1), last)]]
        return addends if bias is None else [*addends, bias[last]]

    def normalised(*i: Ix) -> Val:
        every = slice(None)
        return Opaque(node.op.op_type)(*terms(i, every), *(tensor[every] for tensor in learned))[i[-1]]

    names = [f"i{dim}" for dim in range(X.rank)]
    none = over(names, lambda *i: 0.0)
    return over(names, normalised), none, none, over(names, lambda *i: call("+", *terms(i, i[-1])))


@op("SkipLayerNormalization", domain=DOMAIN, results=_skip_results)
def skip_layer_normalization(
    node: NodeView,
    X: TensorArg,
    skip: TensorArg,
    scale: TensorArg,
    shift: TensorArg | None = None,
    bias: TensorArg | None = None,
) -> object:
    """LayerNormalization of a sum, which can be had, too."""
    return _skipped(node, X, skip, bias, [tensor for tensor in (scale, shift) if tensor is not None])


@op("SkipSimplifiedLayerNormalization", domain=DOMAIN, results=_skip_results)
def skip_simplified_layer_normalization(
    node: NodeView, X: TensorArg, skip: TensorArg, scale: TensorArg, bias: TensorArg | None = None
) -> object:
    """The same by the root of the mean square."""
    return _skipped(node, X, skip, bias, [scale])


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
