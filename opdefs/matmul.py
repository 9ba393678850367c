"""Matrix products: MatMul and Gemm."""

from __future__ import annotations

from planner.opdefs.broadcast import aligned, broadcast
from planner.tdl.builder import Ix, NodeView, Sum, TensorArg, Val, op
from planner.tdl.local import LocalOp, Part, same_op


@op("MatMul")
def matmul(node: NodeView, A: TensorArg, B: TensorArg) -> object:
    """numpy.matmul: leading dims broadcast; a vector has no m, or no n."""

    def product(b: tuple[Ix, ...], m: tuple[Ix, ...], n: tuple[Ix, ...]) -> Val:
        batch_a = aligned(node, A, b, trailing=2) if m else ()
        batch_b = aligned(node, B, b, trailing=2) if n else ()
        return Sum(lambda k: A[(*batch_a, *m, k)] * B[(*batch_b, k, *n)])

    if A.rank == 1 and B.rank == 1:
        return lambda: product((), (), ())
    if A.rank == 1:
        return lambda *b, n: product(b, (), (n,))
    if B.rank == 1:
        return lambda *b, m: product(b, (m,), ())
    return lambda *b, m, n: product(b, (m,), (n,))


def gemm_local(node: NodeView, part: Part) -> LocalOp:
    """C is added by the first worker of a reduction only."""
    return same_op(node, part, drop=() if part.is_first else (2,))


@op("Gemm", local=gemm_local, always_local=lambda node: True)
def gemm(node: NodeView, A: TensorArg, B: TensorArg, C: TensorArg | None = None) -> object:
    """Alpha * A' B' + beta * C, where C broadcasts."""
    alpha, beta = node.attribute("alpha", 1.0), node.attribute("beta", 1.0)
    flip_a, flip_b = node.attribute("transA", 0), node.attribute("transB", 0)

    def product(m: Ix, n: Ix) -> Val:
        total = Sum(lambda k: (A[k, m] if flip_a else A[m, k]) * (B[n, k] if flip_b else B[k, n]))
        return total if alpha == 1 else alpha * total

    def added(C: TensorArg, m: Ix, n: Ix) -> Val:
        value = broadcast(node, C, (m, n))
        return value if beta == 1 else beta * value

    if C is None:
        return lambda m, n: product(m, n)
    return lambda m, n: product(m, n) + added(C, m, n)
