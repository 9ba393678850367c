"""Gradient rules of matrix products."""

from __future__ import annotations

import math

from planner.graph.core.attributes import integer, number
from planner.graph.core.builder import Builder
from planner.graph.core.model import Attribute
from planner.training.gradients.autodiff import Backward, Contributions, gradient


def _turned(emit: Builder, x: str) -> str:
    """The last two dims exchanged."""
    rank = emit.rank(x)
    return emit.transpose(x, [*range(rank - 2), rank - 1, rank - 2])


@gradient("MatMul")
def matmul(context: Backward) -> Contributions:
    """For Y = A B, leading dims broadcast (numpy.matmul): dA = dY Bᵀ, dB = Aᵀ dY, summed over repeated leading dims.

    A vector counts as a matrix of one row (A) or column (B). Where B is one matrix and A a stack, the stack is one tall
    matrix in Aᵀ dY: no stack of products is made only to be summed.
    """
    emit = context.builder
    a, b = context.op.inputs
    a_shape, b_shape = emit.shape(a), emit.shape(b)
    dy = context.dy
    if len(b_shape) == 1:
        b, dy = emit.reshape(b, (*b_shape, 1)), emit.reshape(dy, (*emit.shape(dy), 1))
    if len(a_shape) == 1:
        *lead, columns = emit.shape(dy)
        a, dy = emit.reshape(a, (1, *a_shape)), emit.reshape(dy, (*lead, 1, columns))
    da = db = None
    if context.wanted[0]:
        full = emit.matmul(dy, _turned(emit, b))
        da = emit.reshape(emit.unbroadcast(full, emit.shape(a)), a_shape)
    if context.wanted[1]:
        if emit.rank(b) == 2 and emit.rank(a) > 2:
            rows = math.prod(emit.shape(a)[:-1])
            tall = emit.reshape(a, (rows, emit.shape(a)[-1]))
            full = emit.matmul(_turned(emit, tall), emit.reshape(dy, (rows, emit.shape(dy)[-1])))
        else:
            full = emit.matmul(_turned(emit, a), dy)
        db = emit.reshape(emit.unbroadcast(full, emit.shape(b)), b_shape)
    return [da, db]


def _gemm(emit: Builder, a: str, b: str, *, trans_a: int, trans_b: int, alpha: float) -> str:
    rows = emit.shape(a)[1 if trans_a else 0]
    columns = emit.shape(b)[0 if trans_b else 1]
    stated: dict[str, Attribute] = {key: 1 for key, value in (("transA", trans_a), ("transB", trans_b)) if value}
    if alpha != 1.0:
        stated["alpha"] = alpha
    return emit.one("Gemm", [a, b], (rows, columns), emit.dtype(a), attributes=stated)


@gradient("Gemm")
def gemm(context: Backward) -> Contributions:
    """For Y = alpha A' B' + beta C, where ' is an optional transposition.

    dA' = alpha dY B'ᵀ, dB' = alpha A'ᵀ dY, dC = beta dY summed to C's shape; each written as one Gemm whose transA and
    transB take the transpositions.
    """
    emit, op, dy = context.builder, context.op, context.dy
    a, b = op.inputs[:2]
    trans_a, trans_b = integer(op, "transA", 0), integer(op, "transB", 0)
    alpha, beta = number(op, "alpha", 1.0), number(op, "beta", 1.0)
    da = db = dc = None
    if context.wanted[0]:
        if trans_a:
            da = _gemm(emit, b, dy, trans_a=trans_b, trans_b=1, alpha=alpha)
        else:
            da = _gemm(emit, dy, b, trans_a=0, trans_b=1 - trans_b, alpha=alpha)
    if context.wanted[1]:
        if trans_b:
            db = _gemm(emit, dy, a, trans_a=1, trans_b=trans_a, alpha=alpha)
        else:
            db = _gemm(emit, a, dy, trans_a=1 - trans_a, trans_b=0, alpha=alpha)
    if context.has_input(2) and context.wanted[2]:
        dc = emit.scale(emit.unbroadcast(dy, emit.shape(op.inputs[2])), beta)
    return [da, db, dc]
