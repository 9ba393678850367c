"""Optimizers of ai.onnx.preview.training, by the formulas of their specifications.

R is the learning rate, T the count of updates, X parameters, G gradients, V and H what is remembered.
"""

from __future__ import annotations

from planner.graph.core.attributes import number, refuse, text
from planner.graph.core.builder import Builder
from planner.graph.core.model import DType, Op
from planner.graph.decompositions.registry import Purpose, stands_for


def _groups(op: Op, kinds: int) -> list[tuple[str, ...]]:
    """The variadic inputs after R and T, all X, all G and so on, as one tuple for each X; all but G have results."""
    tensors = op.inputs[2:]
    count = len(tensors) // kinds
    if (count * kinds, count * (kinds - 1)) != (len(tensors), len(op.outputs)):
        raise refuse(op, f"it has {len(tensors)} tensors and {len(op.outputs)} outputs, which are no groups of {kinds}")
    return [tuple(tensors[kind * count + index] for kind in range(kinds)) for index in range(count)]


def _by_kind(results: list[tuple[str, ...]]) -> tuple[str, ...]:
    """All first results, then all second ones."""
    return tuple(name for kind in zip(*results, strict=True) for name in kind)


def _regularized(emit: Builder, op: Op, x: str, g: str) -> str:
    decay = number(op, "norm_coefficient", 0.0)
    return emit.add(emit.scale(x, decay), g, "regularized") if decay else g


def _scalar_of(emit: Builder, name: str, dtype: DType) -> str:
    """R or T as a scalar: some files give them one dim."""
    return emit.cast(emit.reshape(name, ()), dtype)


@stands_for("ai.onnx.preview.training.Adam", purpose=Purpose.UPDATE)
def adam(emit: Builder, op: Op) -> tuple[str, ...]:
    """V_new = alpha V + (1 - alpha) G; H_new = beta H + (1 - beta) G²; X_new = X - R' V_new / (√H_new + epsilon).

    R' = R √(1 - betaᵀ) / (1 - alphaᵀ) where T > 0, else R. X_final = (1 - norm_coefficient_post) X_new.
    """
    alpha, beta = number(op, "alpha", 0.9), number(op, "beta", 0.999)
    count = _scalar_of(emit, op.inputs[1], DType.FLOAT64)
    unit = emit.scalar(1.0, count)
    started = emit.compare("Greater", count, emit.scalar(0.0, count))
    power = emit.where(started, count, unit)
    first, second = (emit.sub(unit, emit.binary("Pow", emit.scalar(base, count), power)) for base in (alpha, beta))
    bias = emit.where(started, emit.div(emit.unary("Sqrt", second), first), unit, "bias")
    results: list[tuple[str, ...]] = []
    for x, g, v, h in _groups(op, 4):
        dtype = emit.dtype(x)
        rate = emit.mul(_scalar_of(emit, op.inputs[0], dtype), emit.cast(bias, dtype), "rate")
        grad = _regularized(emit, op, x, g)
        v_new = emit.add(emit.scale(v, alpha), emit.scale(grad, 1.0 - alpha), "mean")
        h_new = emit.add(emit.scale(h, beta), emit.scale(emit.mul(grad, grad), 1.0 - beta), "squares")
        root = emit.unary("Sqrt", h_new)
        deviation = emit.add(root, emit.scalar(number(op, "epsilon", 1e-6), root))
        x_new = emit.sub(x, emit.mul(rate, emit.div(v_new, deviation)), "next")
        results.append((emit.scale(x_new, 1.0 - number(op, "norm_coefficient_post", 0.0)), v_new, h_new))
    return _by_kind(results)


@stands_for("ai.onnx.preview.training.Momentum", purpose=Purpose.UPDATE)
def momentum(emit: Builder, op: Op) -> tuple[str, ...]:
    """V_new = alpha V + beta' G, beta' = beta where T > 0, else 1; X_new = X - R V_new, or X - R (G + alpha V_new)."""
    alpha, beta = number(op, "alpha", 0.9), number(op, "beta", 1.0)
    ahead = text(op, "mode", "standard") == "nesterov"
    results: list[tuple[str, ...]] = []
    for x, g, v in _groups(op, 3):
        rate = _scalar_of(emit, op.inputs[0], emit.dtype(x))
        grad = _regularized(emit, op, x, g)
        added = grad
        if beta != 1.0:
            count = emit.reshape(op.inputs[1], ())
            started = emit.compare("Greater", count, emit.scalar(0, count))
            added = emit.mul(grad, emit.where(started, emit.scalar(beta, x), emit.scalar(1.0, x), "beta"))
        v_new = emit.add(emit.scale(v, alpha), added, "momentum")
        direction = emit.add(grad, emit.scale(v_new, alpha)) if ahead else v_new
        results.append((emit.sub(x, emit.mul(rate, direction), "next"), v_new))
    return _by_kind(results)


@stands_for("ai.onnx.preview.training.Adagrad", purpose=Purpose.UPDATE)
def adagrad(emit: Builder, op: Op) -> tuple[str, ...]:
    """H_new = H + G²; X_new = X - R / (1 + T decay_factor) G / (√H_new + epsilon)."""
    slower = number(op, "decay_factor", 0.0)
    results: list[tuple[str, ...]] = []
    for x, g, h in _groups(op, 3):
        rate = _scalar_of(emit, op.inputs[0], emit.dtype(x))
        if slower:
            count = _scalar_of(emit, op.inputs[1], emit.dtype(x))
            rate = emit.div(rate, emit.add(emit.scale(count, slower), emit.scalar(1.0, count)), "rate")
        grad = _regularized(emit, op, x, g)
        h_new = emit.add(h, emit.mul(grad, grad), "squares")
        root = emit.unary("Sqrt", h_new)
        adaptive = emit.add(root, emit.scalar(number(op, "epsilon", 1e-6), root))
        results.append((emit.sub(x, emit.div(emit.mul(rate, grad), adaptive), "next"), h_new))
    return _by_kind(results)
