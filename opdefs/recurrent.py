"""LSTM, GRU, RNN: samples and directions are independent; time and the hidden units are not."""

from __future__ import annotations

from planner.graph.core.attributes import refuse
from planner.graph.core.model import Attribute
from planner.opdefs.parts import EVERYTHING
from planner.tdl.builder import Ix, NodeView, Opaque, Sum, TensorArg, Val, op, over
from planner.tdl.local import LocalOp, Part, same_op


def recurrent_local(node: NodeView, part: Part) -> LocalOp:
    """A part that has one of two directions says which, with the activations of that direction.

    Raises:
        UnsupportedError: the samples come first (layout 1), for which ONNX Runtime has no kernel.
    """
    if node.attribute("layout", 0):
        hint = "export the model with time first (batch_first=False)"
        raise refuse(node.op, "its layout is 1, for which ONNX Runtime has no kernel", hint=hint)
    lo, hi = part.ranges["direction"]
    if node.attribute("direction", "forward") != "bidirectional" or hi - lo == 2:
        return same_op(node, part)
    changed: dict[str, Attribute] = {"direction": "reverse" if lo else "forward"}
    for name in ("activations", "activation_alpha", "activation_beta"):
        values = node.attribute(name)
        if values:
            half = len(values) // 2
            changed[name] = values[half:] if lo else values[:half]
    return same_op(node, part, attributes=changed)


@op("LSTM", "GRU", "RNN", local=recurrent_local)
def recurrent(
    node: NodeView,
    X: TensorArg,
    W: TensorArg,
    R: TensorArg,
    B: TensorArg | None = None,
    lengths: TensorArg | None = None,
    h: TensorArg | None = None,
    c: TensorArg | None = None,
    P: TensorArg | None = None,
) -> object:
    """Every output is a function of one sample's sequence and one direction's weights."""
    samples_first = bool(node.attribute("layout", 0))

    def step(t: Ix | slice, b: Ix, i: Ix | slice | int) -> Val:
        return X[b, t, i] if samples_first else X[t, b, i]

    def result(b: Ix, d: Ix, *inner: Ix) -> Val:
        read = [step(EVERYTHING, b, EVERYTHING), W[d, :, :], R[d, :, :]]
        read += [tensor[d, :] for tensor in (B, P) if tensor is not None]
        read += [] if lengths is None else [lengths[b]]
        first = (b, d) if samples_first else (d, b)
        read += [tensor[(*first, EVERYTHING)] for tensor in (h, c) if tensor is not None]
        return Opaque(node.op.op_type, gate_products(b, d))(*read)[inner]

    def gate_products(b: Ix, d: Ix) -> tuple[Val, Val]:
        """At each time each gate's products with what comes in, and with what was there."""
        return (
            Sum(over(("t", "g", "i"), lambda t, g, i: step(t, b, i) * W[d, g, i])),
            Sum(over(("t", "g", "u"), lambda t, g, u: step(t, b, 0) * R[d, g, u])),
        )

    if samples_first:
        last = over(("b", "direction", "unit"), lambda b, d, u: result(b, d, u))
        return over(("b", "t", "direction", "unit"), lambda b, t, d, u: result(b, d, t, u)), last, last
    last = over(("direction", "b", "unit"), lambda d, b, u: result(b, d, u))
    return over(("t", "direction", "b", "unit"), lambda t, d, b, u: result(b, d, t, u)), last, last
