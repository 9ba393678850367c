"""LSTM, GRU, RNN: samples and directions are independent; time and the hidden units are not."""

from __future__ import annotations

from collections.abc import Callable

from planner.graph.model import Attribute
from planner.tdl.builder import Ix, NodeView, Opaque, Sum, TensorArg, Val, op, over
from planner.tdl.local import LocalOp, Part, same_op


def recurrent_local(node: NodeView, part: Part) -> LocalOp:
    """A part that has one of two directions says which, with the activations of that direction."""
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
    """Every output is a function of one sample's sequence and one direction's weights.

    With layout 0 time comes first, with layout 1 the samples do.
    """
    batch_first = bool(node.attribute("layout", 0))
    everything = slice(None)

    def result(b: Ix, d: Ix, *inner: Ix) -> Val:
        read = [X[b, :, :] if batch_first else X[:, b, :], W[d, :, :], R[d, :, :]]
        read += [tensor[d, :] for tensor in (B, P) if tensor is not None]
        read += [] if lengths is None else [lengths[b]]
        place = (b, d) if batch_first else (d, b)
        read += [tensor[(*place, everything)] for tensor in (h, c) if tensor is not None]
        return Opaque(node.op.op_type, taken(b, d))(*read)[inner]

    def taken(b: Ix, d: Ix) -> tuple[Val, Val]:
        """At each time each gate's products with what comes in, and with what was there."""

        def at_time(t: Ix, i: Ix | int) -> Val:
            return X[b, t, i] if batch_first else X[t, b, i]

        return (
            Sum(over(("t", "g", "i"), lambda t, g, i: at_time(t, i) * W[d, g, i])),
            Sum(over(("t", "g", "u"), lambda t, g, u: at_time(t, 0) * R[d, g, u])),
        )

    def ordered(names: tuple[str, ...]) -> Callable[..., Val | float]:
        def body(*i: Ix) -> Val:
            index = dict(zip(names, i, strict=True))
            inner = [var for name, var in index.items() if name not in ("b", "direction")]
            return result(index["b"], index["direction"], *inner)

        return over(names, body)

    steps = ("b", "t", "direction", "unit") if batch_first else ("t", "direction", "b", "unit")
    last = ("b", "direction", "unit") if batch_first else ("direction", "b", "unit")
    return ordered(steps), ordered(last), ordered(last)
