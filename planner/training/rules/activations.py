"""Gradient rules of ONNX's activations.

Formulas are the derivatives of the functions in ONNX's operator specifications; at a kink the side is the one that
PyTorch takes, and is stated.
"""

from __future__ import annotations

import math

from planner.graph.core.attributes import number, text
from planner.graph.core.builder import Builder
from planner.training.gradients.autodiff import Backward, Contributions, gradient
from planner.training.rules.elementwise import gated


def _where_positive(context: Backward, slope: str) -> str:
    """``dy`` where x > 0, else ``dy slope``."""
    emit = context.builder
    positive = emit.compare("Greater", context.x, emit.scalar(0.0, context.x))
    return emit.where(positive, context.dy, emit.mul(context.dy, slope))


def _share(emit: Builder, x: str, slope: float, offset: float) -> str:
    """``slope x + offset``, which lies from 0 to 1, in one pass."""
    attributes = {"alpha": slope, "beta": offset}
    return emit.one("HardSigmoid", [x], emit.shape(x), emit.dtype(x), hint="share", attributes=attributes)


@gradient("Relu")
def relu(context: Backward) -> Contributions:
    """For y = max(x, 0): dx = dy where y > 0, else 0 (0 at 0)."""
    emit = context.builder
    zero = emit.scalar(0.0, context.y)
    return [emit.where(emit.compare("Greater", context.y, zero), context.dy, zero)]


@gradient("LeakyRelu")
def leaky_relu(context: Backward) -> Contributions:
    """For y = x or alpha x: dx = dy where x > 0, else alpha dy (alpha at 0)."""
    emit = context.builder
    positive = emit.compare("Greater", context.x, emit.scalar(0.0, context.x))
    return [emit.where(positive, context.dy, emit.scale(context.dy, number(context.op, "alpha", 0.01)))]


@gradient("Sigmoid")
def sigmoid(context: Backward) -> Contributions:
    """For y = 1 / (1 + e⁻ˣ): dx = dy y (1 - y)."""
    emit = context.builder
    slope = emit.mul(context.y, emit.sub(emit.scalar(1.0, context.y), context.y))
    return [emit.mul(context.dy, slope)]


@gradient("Tanh")
def tanh(context: Backward) -> Contributions:
    """For y = tanh x: dx = dy (1 - y²)."""
    emit = context.builder
    slope = emit.sub(emit.scalar(1.0, context.y), emit.mul(context.y, context.y))
    return [emit.mul(context.dy, slope)]


@gradient("Softplus")
def softplus(context: Backward) -> Contributions:
    """For y = ln(1 + eˣ): dx = dy sigmoid(x)."""
    emit = context.builder
    return [emit.mul(context.dy, emit.unary("Sigmoid", context.x))]


@gradient("Gelu")
def gelu(context: Backward) -> Contributions:
    """For y = x Φ(x), or its tanh approximation, by the attribute ``approximate``.

    none: with z = x/√2, dx = dy (Φ(x) + z e^(-z² - ln √π)), Φ(x) = (1 + erf z)/2.
    tanh: with u = 2 √(2/π)(x + 0.044715 x³), y = x s and s = sigmoid u (tanh v is 2 sigmoid 2v - 1):
    dx = dy (s + y (1 - s) u').
    """
    emit, x = context.builder, context.x
    if text(context.op, "approximate", "none") == "none":
        z = emit.scale(x, math.sqrt(0.5))
        cumulative = _share(emit, emit.unary("Erf", z), 0.5, 0.5)
        bell = emit.unary("Exp", emit.sub(emit.scalar(-0.5 * math.log(math.pi), x), emit.mul(z, z)))
        return [emit.mul(context.dy, emit.add(cumulative, emit.mul(z, bell)))]
    c, cubic = 2.0 * math.sqrt(2.0 / math.pi), 0.044715
    square = emit.mul(x, x)
    s = emit.unary("Sigmoid", emit.mul(x, emit.add(emit.scale(square, c * cubic), emit.scalar(c, x))))
    slope = emit.add(emit.scale(square, 3.0 * c * cubic), emit.scalar(c, x))
    factor = emit.mul(context.y, _share(emit, s, -1.0, 1.0))
    return [emit.mul(context.dy, emit.add(s, emit.mul(factor, slope)))]


@gradient("Elu")
def elu(context: Backward) -> Contributions:
    """For y = x, or alpha (eˣ - 1) below 0: dx = dy, or dy (y + alpha) there (at 0, too)."""
    emit = context.builder
    return [_where_positive(context, emit.add(context.y, emit.scalar(number(context.op, "alpha", 1.0), context.y)))]


@gradient("Celu")
def celu(context: Backward) -> Contributions:
    """For y = max(0, x) + min(0, alpha (e^(x/alpha) - 1)): dx = dy, or dy (y/alpha + 1) below 0 (at 0, too)."""
    emit = context.builder
    slope = emit.add(emit.scale(context.y, 1.0 / number(context.op, "alpha", 1.0)), emit.scalar(1.0, context.y))
    return [_where_positive(context, slope)]


@gradient("Selu")
def selu(context: Backward) -> Contributions:
    """For y = gamma x, or gamma alpha (eˣ - 1) below 0: dx = gamma dy, or dy (y + gamma alpha) there (at 0, too)."""
    emit, op = context.builder, context.op
    alpha, gamma = number(op, "alpha", 1.67326319217681884765625), number(op, "gamma", 1.05070102214813232421875)
    positive = emit.compare("Greater", context.x, emit.scalar(0.0, context.x))
    below = emit.mul(context.dy, emit.add(context.y, emit.scalar(alpha * gamma, context.y)))
    return [emit.where(positive, emit.scale(context.dy, gamma), below)]


@gradient("HardSigmoid")
def hard_sigmoid(context: Backward) -> Contributions:
    """For y = max(0, min(1, alpha x + beta)): dx = alpha dy where 0 < y < 1, else 0."""
    emit, y = context.builder, context.y
    above = emit.compare("Greater", y, emit.scalar(0.0, y))
    inside = emit.compare("And", above, emit.compare("Less", y, emit.scalar(1.0, y)))
    return [emit.where(inside, emit.scale(context.dy, number(context.op, "alpha", 0.2)), emit.scalar(0.0, y))]


@gradient("HardSwish")
def hard_swish(context: Backward) -> Contributions:
    """For y = x max(0, min(1, x/6 + 1/2)): dx = dy (x/3 + 1/2) where -3 < x < 3, 0 below and dy above."""
    emit, x = context.builder, context.x
    zero = emit.scalar(0.0, x)
    sloped = emit.mul(context.dy, emit.add(emit.scale(x, 1.0 / 3.0), emit.scalar(0.5, x)))
    below = emit.where(emit.compare("Greater", x, emit.scalar(-3.0, x)), sloped, zero)
    return [emit.where(emit.compare("Less", x, emit.scalar(3.0, x)), below, context.dy)]


@gradient("Mish")
def mish(context: Backward) -> Contributions:
    """For y = x t, t = tanh(softplus(x)): dx = dy (t + x (1 - t²) sigmoid(x))."""
    emit, x = context.builder, context.x
    t = emit.unary("Tanh", emit.unary("Softplus", x))
    complement = emit.sub(emit.scalar(1.0, x), emit.mul(t, t))
    slope = emit.add(t, emit.mul(x, emit.mul(complement, emit.unary("Sigmoid", x))))
    return [emit.mul(context.dy, slope)]


@gradient("Swish")
def swish(context: Backward) -> Contributions:
    """For y = x s, s = sigmoid(alpha x): dx = dy (s + alpha y (1 - s))."""
    emit, alpha = context.builder, number(context.op, "alpha", 1.0)
    return [gated(context, emit.unary("Sigmoid", emit.scale(context.x, alpha)), alpha)]


@gradient("PRelu")
def prelu(context: Backward) -> Contributions:
    """For y = x, or slope x below 0: dx = dy, or dy slope there; dslope = Σ dy x there (dx = dy at 0)."""
    emit, op, dy = context.builder, context.op, context.dy
    x, slope = op.inputs
    zero = emit.scalar(0.0, x)
    below = emit.compare("Less", x, zero)
    dx = emit.where(below, emit.mul(dy, slope), dy) if context.wanted[0] else None
    dslope = None
    if context.wanted[1]:
        dslope = emit.unbroadcast(emit.where(below, emit.mul(dy, x), zero), emit.shape(slope))
    return [dx, dslope]


@gradient("Shrink")
def shrink(context: Backward) -> Contributions:
    """For y = x - bias above lambd, x + bias below -lambd, else 0: dx = dy where |x| > lambd, else 0."""
    emit, x = context.builder, context.x
    outside = emit.compare("Greater", emit.unary("Abs", x), emit.scalar(number(context.op, "lambd", 0.5), x))
    return [emit.where(outside, context.dy, emit.scalar(0.0, x))]


@gradient("ThresholdedRelu")
def thresholded_relu(context: Backward) -> Contributions:
    """For y = x above alpha, else 0: dx = dy where x > alpha, else 0."""
    emit, x = context.builder, context.x
    above = emit.compare("Greater", x, emit.scalar(number(context.op, "alpha", 1.0), x))
    return [emit.where(above, context.dy, emit.scalar(0.0, x))]


@gradient("Softsign")
def softsign(context: Backward) -> Contributions:
    """For y = x / (1 + |x|): dx = dy / (1 + |x|)²."""
    emit, x = context.builder, context.x
    below = emit.add(emit.unary("Abs", x), emit.scalar(1.0, x))
    return [emit.div(context.dy, emit.mul(below, below))]
