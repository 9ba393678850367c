"""ONNX Runtime's mixture of experts: tokens are independent, and what a token has of its experts is a sum.

Experts are cut as what a sum runs over: a worker has some experts' weights, computes what each token has of those, and
partial results are added. Which experts a token goes to is found from all of its router's numbers, everywhere.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final, TypeAlias

import numpy as np

from planner.errors import DescriptionError, UnsupportedError
from planner.graph.core.emitter import Emitter
from planner.graph.core.model import Tensor
from planner.graph.decompositions.whole.experts import shares
from planner.opdefs.microsoft import DOMAIN, like_first
from planner.opdefs.parts import EVERYTHING, output_region
from planner.tdl.builder import Ix, NodeView, Opaque, Sum, TensorArg, Val, call, op, over
from planner.tdl.local import LocalNode, LocalOp, Part, same_op

_LEAST: Final = 1e-30
"""Stands for the weight of an expert that a token does not go to, whose logarithm is to be finite."""


def _chosen(node: NodeView) -> int:
    """How many experts a token goes to.

    Raises:
        DescriptionError: more than there are, or none.
    """
    count, experts = node.attribute("k", 4), node.input_shape(1)[-1]
    if not isinstance(count, int) or not 1 <= count <= experts:
        raise DescriptionError(f"a token goes to {count} of {experts} experts")
    return count


def _experts_local(node: NodeView, part: Part) -> LocalOp:
    """The op itself for some tokens; for some experts, tokens' weights for these are found before.

    Of the experts of a part the kernel makes the weights sum to 1: so what it makes is multiplied by what they sum to.
    """
    output = output_region(part)
    tokens = int(np.prod(output.shape[:-1]))
    lo, hi = part.ranges["e"]
    if (lo, hi) == (0, part.extents["e"]):
        return same_op(node, part)
    dtype = node.input_dtype(1)
    # Weights are chosen among all experts. Logarithms of the part's weights are the router of its local op, whose
    # softmax gives these weights back, divided by their sum.
    emitter = Emitter("", {"in1": Tensor("in1", (tokens, part.extents["e"]), dtype)}, {}, node.opset)
    own = emitter.slice(shares(emitter, node.op, "in1"), (0, lo), (tokens, hi))
    factor = emitter.cast(emitter.reduce_sum(own, (1,), keepdims=True, hint="share"), dtype, "factor")
    factor = emitter.reshape(factor, (*output.shape[:-1], 1), "factor.rows")
    positive = emitter.binary("Max", own, emitter.scalar(_LEAST, own, "least"), "positive")
    router = emitter.cast(emitter.unary("Log", positive, "logarithms"), dtype, "router")
    changed = {"k": min(_chosen(node), hi - lo), "normalize_routing_weights": 1}
    (experts,) = same_op(node, part, attributes=changed).nodes
    nodes = [LocalNode(op.op_type, op.inputs, op.outputs, dict(op.attributes)) for op in emitter.ops]
    mixed = replace(experts, inputs=(experts.inputs[0], router, *experts.inputs[2:]), outputs=("mixed",))
    return LocalOp((*nodes, mixed, LocalNode("Mul", ("mixed", factor), ("out0",))), emitter.constants)


def _refuse(node: NodeView, further: Sequence[TensorArg | None]) -> None:
    """Refuses forms that ONNX Runtime has for GPUs alone.

    Raises:
        UnsupportedError: it is one of them.
        DescriptionError: a token goes to more experts than there are.
    """
    _chosen(node)
    forms = {
        "the sparse mixer's routing": node.attribute("use_sparse_mixer", 0),
        "a third product (fc3)": any(tensor is not None for tensor in further),
        "gates that are not between what they gate": (
            node.attribute("activation_type", "relu") == "swiglu" and node.attribute("swiglu_fusion", 0) != 1
        ),
        "gates of another function than swiglu": (
            node.op.op_type == "QMoE"
            and bool(node.attribute("swiglu_fusion", 0))
            and node.attribute("activation_type", "relu") != "swiglu"
        ),
        "weights of other numbers than whole ones": node.attribute("quant_type", "int") != "int",
    }
    for form, is_there in forms.items():
        if is_there:
            raise UnsupportedError(
                f"op {node.op.name} ({node.op.op_type}) has {form}, which ONNX Runtime has for GPUs alone",
                hint="export the model for the CPU, or the experts in ONNX's own operators",
            )


OfExpert: TypeAlias = "Callable[[Ix, Sequence[Ix]], list[Val]]"
"""What an expert's numbers are, by expert and, where they are summed over, the elements between its products."""
Weights: TypeAlias = tuple[TensorArg, TensorArg]
"""Of an expert's first product, by what it makes, and of its second one."""


def _of_tokens(
    node: NodeView,
    X: TensorArg,
    router: TensorArg,
    of_expert: OfExpert,
    weights: Weights,
    *,
    is_cut_within: bool = False,
) -> object:
    first, second = weights

    def mixed(token: Val, choice: Val, index: Sequence[Ix], element: Callable[[Ix], Val], c: Ix) -> Val:
        def takes(e: Ix, between: Ix) -> Val:
            """Both products for an element between them; of all experts, since it is the data that choose some."""
            hidden = Sum(over(("d",), lambda d: element(d) * first[e, between, 0]))
            return call("act", hidden) * second[e, c, 0]

        def term(e: Ix, *within: Ix) -> Val:
            products = takes(e, within[0]) if within else Sum(over(("j",), lambda j: takes(e, j)))
            return Opaque("expert", (products,))(token, choice, *of_expert(e, within))[tuple(index)]

        return Sum(over(("e", "i") if is_cut_within else ("e",), term))

    if X.rank == 2:
        return over(("t", "c"), lambda t, c: mixed(X[t, :], router[t, :], (c,), lambda d: X[t, d], c))
    if node.is_single(0, 0):
        return over(("b", "t", "c"), lambda b, t, c: mixed(X[b, t, :], router[t, :], (c,), lambda d: X[b, t, d], c))
    positions = node.size(0, 1)

    def of_sample(b: Ix, t: Ix, c: Ix) -> Val:
        rows = Sum(over(("r",), lambda r: router[positions * b + r, :]), extents=(positions,))
        return mixed(X[b, EVERYTHING, :], rows, (t, c), lambda d: X[b, t, d], c)

    return over(("b", "t", "c"), of_sample)


@op("MoE", domain=DOMAIN, local=_experts_local, results=like_first)
def mixture_of_experts(
    node: NodeView,
    X: TensorArg,
    router: TensorArg,
    W1: TensorArg,
    b1: TensorArg | None,
    W2: TensorArg,
    b2: TensorArg | None = None,
    *further: TensorArg | None,
) -> object:
    """A sum over the experts that a token goes to: W2 act(W1 x + b1) + b2, times the token's weight for the expert.

    The elements between the two products are summed over, too, where no bias is added behind them and none of them are
    gates of others.
    """
    _refuse(node, further)

    def of_expert(e: Ix, within: Sequence[Ix]) -> list[Val]:
        rows: list[Ix | slice] = [*within, EVERYTHING] if within else [EVERYTHING, EVERYTHING]
        read = [arg[(e, *rows[: arg.rank - 1])] for arg in (W1, b1) if arg is not None]
        read.append(W2[(e, EVERYTHING, *rows[:1])])
        return read if b2 is None else [*read, b2[e, :]]

    is_cut_within = b2 is None and node.size(2, 1) == node.size(4, 2)
    return _of_tokens(node, X, router, of_expert, (W1, W2), is_cut_within=is_cut_within)


@op("QMoE", domain=DOMAIN, local=_experts_local, results=like_first)
def quantised_mixture_of_experts(
    node: NodeView, X: TensorArg, router: TensorArg, *of_experts: TensorArg | None
) -> object:
    """The same of weights of 4 or 8 bits with scales and zero points; tokens' weights for their experts sum to 1."""
    _refuse(node, (*of_experts[6:9], *of_experts[11:]))

    def of_expert(e: Ix, within: Sequence[Ix]) -> list[Val]:
        return [arg[(e, *(EVERYTHING for _ in range(arg.rank - 1)))] for arg in of_experts if arg is not None]

    weights = (of_experts[0], of_experts[3])
    if weights[0] is None or weights[1] is None:
        raise DescriptionError("an expert has two products")
    return _of_tokens(node, X, router, of_expert, (weights[0], weights[1]))
