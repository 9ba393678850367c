"""Layers that carry a state from one stretch of a sequence to the next: samples are independent."""

from __future__ import annotations

from planner.tdl.builder import Ix, NodeView, Opaque, Sum, TensorArg, Val, op


@op("CausalConvWithState")
def causal_conv_with_state(
    node: NodeView, X: TensorArg, W: TensorArg, bias: TensorArg | None = None, past: TensorArg | None = None
) -> object:
    """A convolution of each channel with what came before it; also gives the state for the next stretch."""

    def read(b: Ix, c: Ix) -> list[Val]:
        operands = [X[b, c, :], W[c, :, :]]
        operands += [] if bias is None else [bias[c]]
        return operands if past is None else [*operands, past[b, c, :]]

    return (
        lambda b, c, t: Opaque("CausalConv", (Sum(lambda k: X[b, c, t] * W[c, 0, k]),))(*read(b, c))[t],
        lambda b, c, s: Opaque("State")(*read(b, c))[s],
    )


@op("LinearAttention")
def linear_attention(node: NodeView, *inputs: TensorArg | None) -> object:
    """Attention as a recurrence over the sequence, with a state for each head."""

    def read(b: Ix) -> list[Val]:
        return [tensor[(b, *(slice(None) for _ in range(tensor.rank - 1)))] for tensor in inputs if tensor is not None]

    return (
        lambda b, *i: Opaque("LinearAttention")(*read(b))[i],
        lambda b, *s: Opaque("State")(*read(b))[s],
    )
