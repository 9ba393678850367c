"""Gradient rules of element-wise operators, but for activations.

``dy`` is the gradient of the output ``y``. Where an operand was broadcast, its gradient is summed over the repeated
dims (``Builder.unbroadcast``). Formulas are the derivatives of the functions that ONNX's operator specifications
define; at a kink the side is the one that PyTorch takes, and is stated.
"""

from __future__ import annotations

import math

import numpy as np

from planner.graph.core.builder import Builder
from planner.graph.core.model import DType
from planner.training.gradients.autodiff import Backward, Contributions, gradient


def _sum_to_input(context: Backward, position: int, full: str) -> str:
    return context.builder.unbroadcast(full, context.builder.shape(context.op.inputs[position]))


@gradient("Add")
def add(context: Backward) -> Contributions:
    """For y = a + b: da = dy, db = dy."""
    return [_sum_to_input(context, i, context.dy) if wanted else None for i, wanted in enumerate(context.wanted)]


@gradient("Sum")
def sum_of_all(context: Backward) -> Contributions:
    """For y = x1 + x2 + ...: each dx = dy."""
    return add.function(context)


@gradient("Sub")
def sub(context: Backward) -> Contributions:
    """For y = a - b: da = dy, db = -dy (summed first, where b was broadcast)."""
    da = _sum_to_input(context, 0, context.dy) if context.wanted[0] else None
    db = context.builder.unary("Neg", _sum_to_input(context, 1, context.dy)) if context.wanted[1] else None
    return [da, db]


def gated(context: Backward, s: str, alpha: float) -> str:
    """The gradient of y = x s, s = sigmoid(alpha x), by the x in both: dy (s + alpha y (1 - s))."""
    emit, scaled = context.builder, context.builder.scale(context.y, alpha)
    return emit.mul(context.dy, emit.add(s, emit.sub(scaled, emit.mul(scaled, s))))


def _factor_in_sigmoid(emit: Builder, s: str, x: str) -> float | None:
    """The known number by which x is multiplied where s is its sigmoid, or x's own; None where s is none."""
    made_by = emit.made_by(s)
    if made_by is None or (made_by.op_type, made_by.domain) != ("Sigmoid", ""):
        return None
    argument = made_by.inputs[0]
    if argument == x:
        return 1.0
    product = emit.made_by(argument)
    is_product = product is not None and (product.op_type, product.domain) == ("Mul", "") and x in product.inputs
    if product is None or not is_product or emit.shape(argument) != emit.shape(x):
        return None
    factor = product.inputs[product.inputs[0] == x]
    value = emit.value(factor) if factor in emit.folded else None  # a parameter has a gradient of its own
    return float(value.reshape(())) if value is not None and value.size == 1 else None


@gradient("Mul")
def mul(context: Backward) -> Contributions:
    """For y = a b: da = dy b, db = dy a. For a a it is 2 dy a; for a sigmoid(alpha a) see ``gated``."""
    emit, dy = context.builder, context.dy
    a, b = context.op.inputs
    if a == b:
        return [emit.mul(emit.scale(emit.before_expand(dy), 2.0), a)]
    for x, s in ((a, b), (b, a)):
        factor = _factor_in_sigmoid(emit, s, x)
        if factor is not None:
            return [gated(context, s, factor) if name == x else None for name in (a, b)]
    da = _sum_to_input(context, 0, emit.mul(dy, b)) if context.wanted[0] else None
    db = _sum_to_input(context, 1, emit.mul(dy, a)) if context.wanted[1] else None
    return [da, db]


@gradient("Div")
def div(context: Backward) -> Contributions:
    """For y = a / b: da = dy / b, db = -da y."""
    emit, b = context.builder, context.op.inputs[1]
    quotient = emit.div(context.dy, b)
    da = _sum_to_input(context, 0, quotient) if context.wanted[0] else None
    db = None
    if context.wanted[1]:
        db = emit.unary("Neg", _sum_to_input(context, 1, emit.mul(quotient, context.y)))
    return [da, db]


@gradient("Neg")
def neg(context: Backward) -> Contributions:
    """For y = -x: dx = -dy."""
    return [context.builder.unary("Neg", context.dy)]


@gradient("Abs")
def absolute(context: Backward) -> Contributions:
    """For y = |x|: dx = dy sign(x), 0 at 0."""
    emit = context.builder
    return [emit.mul(context.dy, emit.unary("Sign", context.x))]


@gradient("Sqrt")
def sqrt(context: Backward) -> Contributions:
    """For y = √x: dx = dy / (2 y)."""
    emit = context.builder
    return [emit.div(emit.scale(context.dy, 0.5), context.y)]


@gradient("Exp")
def exp(context: Backward) -> Contributions:
    """For y = eˣ: dx = dy y."""
    return [context.builder.mul(context.dy, context.y)]


@gradient("Log")
def log(context: Backward) -> Contributions:
    """For y = ln x: dx = dy / x."""
    return [context.builder.div(context.dy, context.x)]


@gradient("Reciprocal")
def reciprocal(context: Backward) -> Contributions:
    """For y = 1/x: dx = -dy y²."""
    emit = context.builder
    return [emit.unary("Neg", emit.mul(context.dy, emit.mul(context.y, context.y)))]


@gradient("Pow", inputs=(0, 1))
def power(context: Backward) -> Contributions:
    """For y = xᵖ: dx = dy p xᵖ⁻¹, 0 where p is 0, whatever x is; dp = Σ dy y ln x, 0 where x is not positive."""
    emit, op = context.builder, context.op
    exponent = emit.value(op.inputs[1])
    if exponent is None or context.wanted[1]:
        return _general_power(context)
    p = exponent.astype(np.float64)
    if p.size == 1:
        p = p.reshape(())
    if not p.any():
        return [None]
    if p.ndim == 0 and p == 1:
        slope = context.dy
    elif p.ndim == 0 and p == 2:
        slope = emit.mul(context.dy, emit.scale(context.x, 2.0))
    else:
        unit = emit.scalar(1.0, context.x)
        numpy_dtype = np.asarray(emit.value(unit)).dtype
        factor = emit.constant(p.astype(numpy_dtype), f"constant.{op.name}.exponent")
        lower = emit.constant(np.where(p == 0, 0, p - 1).astype(numpy_dtype), f"constant.{op.name}.exponent_less_1")
        slope = emit.mul(context.dy, emit.mul(factor, emit.binary("Pow", context.x, lower)))
    return [_sum_to_input(context, 0, slope)]


def _general_power(context: Backward) -> Contributions:
    emit, x = context.builder, context.x
    p = emit.cast(context.op.inputs[1], emit.dtype(x))
    zero, unit = emit.scalar(0.0, x), emit.scalar(1.0, x)
    dx = dp = None
    if context.wanted[0]:
        is_zero = emit.compare("Equal", p, zero)
        lower = emit.where(is_zero, zero, emit.sub(p, unit))
        dx = _sum_to_input(context, 0, emit.mul(context.dy, emit.mul(p, emit.binary("Pow", x, lower))))
    if context.wanted[1]:
        positive = emit.compare("Greater", x, zero)
        logarithm = emit.unary("Log", emit.where(positive, x, unit))
        full = emit.mul(context.dy, emit.where(positive, emit.mul(context.y, logarithm), zero))
        dp = emit.cast(_sum_to_input(context, 1, full), emit.dtype(context.op.inputs[1]))
    return [dx, dp]


@gradient("Sin")
def sin(context: Backward) -> Contributions:
    """For y = sin x: dx = dy cos x."""
    emit = context.builder
    return [emit.mul(context.dy, emit.unary("Cos", context.x))]


@gradient("Cos")
def cos(context: Backward) -> Contributions:
    """For y = cos x: dx = -dy sin x."""
    emit = context.builder
    return [emit.unary("Neg", emit.mul(context.dy, emit.unary("Sin", context.x)))]


@gradient("Tan")
def tan(context: Backward) -> Contributions:
    """For y = tan x: dx = dy (1 + y²)."""
    emit, y = context.builder, context.y
    return [emit.mul(context.dy, emit.add(emit.mul(y, y), emit.scalar(1.0, y)))]


@gradient("Sinh")
def sinh(context: Backward) -> Contributions:
    """For y = sinh x: dx = dy cosh x."""
    return [context.builder.mul(context.dy, context.builder.unary("Cosh", context.x))]


@gradient("Cosh")
def cosh(context: Backward) -> Contributions:
    """For y = cosh x: dx = dy sinh x."""
    return [context.builder.mul(context.dy, context.builder.unary("Sinh", context.x))]


@gradient("Asin", "Acos")
def arc_sine(context: Backward) -> Contributions:
    """For y = arcsin x: dx = dy / √(1 - x²); for arccos the negative of that."""
    emit, x = context.builder, context.x
    root = emit.unary("Sqrt", emit.sub(emit.scalar(1.0, x), emit.mul(x, x)))
    slope = emit.div(context.dy, root)
    return [slope if context.op.op_type == "Asin" else emit.unary("Neg", slope)]


@gradient("Atan")
def arc_tangent(context: Backward) -> Contributions:
    """For y = arctan x: dx = dy / (1 + x²)."""
    emit, x = context.builder, context.x
    return [emit.div(context.dy, emit.add(emit.mul(x, x), emit.scalar(1.0, x)))]


@gradient("Asinh", "Acosh")
def area_sine(context: Backward) -> Contributions:
    """For y = arsinh x: dx = dy / √(x² + 1); for arcosh dy / √(x² - 1)."""
    emit, x = context.builder, context.x
    added = emit.scalar(1.0 if context.op.op_type == "Asinh" else -1.0, x)
    return [emit.div(context.dy, emit.unary("Sqrt", emit.add(emit.mul(x, x), added)))]


@gradient("Atanh")
def area_tangent(context: Backward) -> Contributions:
    """For y = artanh x: dx = dy / (1 - x²)."""
    emit, x = context.builder, context.x
    return [emit.div(context.dy, emit.sub(emit.scalar(1.0, x), emit.mul(x, x)))]


@gradient("Erf")
def erf(context: Backward) -> Contributions:
    """For y = erf x: dx = dy (2/√π) e^(-x²)."""
    emit = context.builder
    bell = emit.unary("Exp", emit.unary("Neg", emit.mul(context.x, context.x)))
    return [emit.mul(context.dy, emit.scale(bell, 2.0 / math.sqrt(math.pi)))]


@gradient("Clip")
def clip(context: Backward) -> Contributions:
    """For y = min(max(x, lo), hi): dx = dy where y = x, else 0 (dy at the bounds).

    dlo = Σ dy where x < lo (and lo < hi), dhi = Σ dy where x > hi.
    """
    emit, op, x = context.builder, context.op, context.x
    zero = emit.scalar(0.0, x)
    inside = emit.compare("Equal", x, context.y)
    parts: list[str | None] = [emit.where(inside, context.dy, zero) if context.wanted[0] else None, None, None]
    for position in (1, 2):
        if not (context.has_input(position) and context.wanted[position]):
            continue
        bound = op.inputs[position]
        held = emit.compare(
            "And", emit.compare("Equal", context.y, bound), emit.one("Not", [inside], emit.shape(inside), DType.BOOL)
        )
        parts[position] = emit.unbroadcast(emit.where(held, context.dy, zero), emit.shape(bound))
    return parts


@gradient("Where", inputs=(1, 2))
def where(context: Backward) -> Contributions:
    """For y = a where the condition holds, else b: da = dy there and 0 elsewhere, db the other way round."""
    emit, condition = context.builder, context.op.inputs[0]
    zero = emit.scalar(0.0, context.dy)
    da = _sum_to_input(context, 1, emit.where(condition, context.dy, zero)) if context.wanted[1] else None
    db = _sum_to_input(context, 2, emit.where(condition, zero, context.dy)) if context.wanted[2] else None
    return [None, da, db]


@gradient("Max", "Min")
def extremum(context: Backward) -> Contributions:
    """For y = max(a, b, ...) or min(a, b, ...): dy to the operand that is y; to the first where several are."""
    emit, op = context.builder, context.op
    if len(op.inputs) == 1:
        return [context.dy]
    zero = emit.scalar(0.0, context.dy)
    remainder = context.dy
    parts: list[str | None] = []
    for position, (name, wanted) in enumerate(zip(op.inputs, context.wanted, strict=True)):
        hit = emit.compare("Equal", name, context.y)
        parts.append(_sum_to_input(context, position, emit.where(hit, remainder, zero)) if wanted else None)
        remainder = emit.where(hit, zero, remainder, "left")
    return parts


@gradient("Mean")
def mean_of_all(context: Backward) -> Contributions:
    """For y = (x1 + x2 + ...) / n: each dx = dy / n."""
    share = context.builder.scale(context.dy, 1.0 / len(context.op.inputs))
    return [_sum_to_input(context, i, share) if wanted else None for i, wanted in enumerate(context.wanted)]


@gradient("Mod")
def modulus(context: Backward) -> Contributions:
    """For y = a - b q with a whole q: da = dy, db = -Σ dy q."""
    emit = context.builder
    a, b = context.op.inputs
    da = _sum_to_input(context, 0, context.dy) if context.wanted[0] else None
    db = None
    if context.wanted[1]:
        q = emit.unary("Round", emit.div(emit.sub(a, context.y), b))
        db = emit.unary("Neg", _sum_to_input(context, 1, emit.mul(context.dy, q)))
    return [da, db]


@gradient("Cast", "CastLike", inputs=(0,))
def cast(context: Backward) -> Contributions:
    """For y = x in another float dtype: dx = dy in x's."""
    return [context.builder.cast(context.dy, context.builder.dtype(context.x))]


@gradient("Identity")
def identity(context: Backward) -> Contributions:
    """For y = x: dx = dy."""
    return [context.dy]


@gradient("Dropout", inputs=(0,))
def dropout(context: Backward) -> Contributions:
    """Inference mode, y = x: dx = dy. Training mode, y = x mask / (1 - ratio): dx = dy mask / (1 - ratio)."""
    emit, op, dy = context.builder, context.op, context.dy
    if "mask" not in context.saved:
        return [dy]
    ratio = emit.value(op.inputs[1]) if context.has_input(1) else np.array(0.5)
    if ratio is None:
        drop_rate = emit.reshape(emit.cast(op.inputs[1], emit.dtype(dy)), ())
        quotient = emit.div(dy, emit.sub(emit.scalar(1.0, dy), drop_rate))
    else:
        share = float(ratio.reshape(()))
        quotient = emit.scale(dy, 1.0 / (1.0 - share)) if share < 1 else dy
    return [emit.where(context.saved["mask"], quotient, emit.scalar(0.0, dy))]
