"""Matrix products: MatMul and Gemm."""

from __future__ import annotations

from planner.tdl.builder import NodeView, TensorArg, Val, op
from planner.tdl.local import LocalOp, Part, same_op


@op("MatMul")
def matmul(node: NodeView, A: TensorArg, B: TensorArg) -> object:
    """ONNX MatMul: numpy.matmul, leading dims broadcast."""

    def left(*b, m, k) -> Val:  # type: ignore[no-untyped-def]
        return A[k] if A.rank == 1 else A[*_broadcast(node, 0, 2, b), m, k]

    def right(*b, n, k) -> Val:  # type: ignore[no-untyped-def]
        return B[k] if B.rank == 1 else B[*_broadcast(node, 1, 2, b), k, n]
