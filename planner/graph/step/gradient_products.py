"""Products of a graph that are gradients of its inputs: what tells a training step from a forward model.

A parameter is read forward in a product with an activation, ``y = a W``, and its gradient is a product of that
activation with what comes back, ``a^T dy``: of the parameter's sizes, and computed from ``y``. A forward model reads no
activation twice so.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from planner.graph.core.model import Graph, Op
from planner.graph.core.traits import CONVOLUTIONS, COPYING, PRODUCTS, RESHAPES
from planner.walk import walk


@dataclass(frozen=True, slots=True)
class GradientProducts:
    """The products of a graph that have the form of gradients."""

    gradients: frozenset[str] = frozenset()
    """Their results."""
    back: frozenset[str] = frozenset()
    """Gradients of forward products' results, which the products read; biases' gradients are sums of them."""
    parameters: frozenset[str] = frozenset()
    """The inputs of which they are gradients."""


def gradient_products(graph: Graph) -> GradientProducts:
    """The products that have the form of gradients of graph inputs; none unless one is certainly computed from the
    product that reads its input forward.
    """
    positions = {op.name: index for index, op in enumerate(graph.ops)}
    root = _roots(graph)
    forward: dict[str, list[tuple[Op, str]]] = {}
    products = [op for op in graph.ops_of(*CONVOLUTIONS, *PRODUCTS) if len(op.inputs) > 1]
    for op in products:
        lhs, rhs = (root[name] for name in op.inputs[:2])
        for parameter, activation in ((lhs, rhs), (rhs, lhs)):
            if parameter in graph.inputs and parameter != activation and graph.tensors[parameter].dtype.is_float:
                forward.setdefault(activation, []).append((op, parameter))
    back_of: dict[str, str] = {}
    parameters: set[str] = set()
    is_certain = False
    for op in products:
        lhs, rhs = (root[name] for name in op.inputs[:2])
        for activation, back in ((lhs, rhs), (rhs, lhs)):
            for product, parameter in forward.get(activation, ()):
                producer = graph.producer.get(back)
                if producer is None or not positions[product.name] < positions[producer.name] < positions[op.name]:
                    continue  # what comes back through a product is computed from its result
                if _sizes(graph, op.outputs[0], op) != _sizes(graph, parameter, op):
                    continue
                back_of[op.outputs[0]] = back
                parameters.add(parameter)
                is_certain = is_certain or _leads_to(graph, positions, product, back)
    if not is_certain:
        return GradientProducts()
    return GradientProducts(frozenset(back_of), frozenset(back_of.values()), frozenset(parameters))


def _sizes(graph: Graph, name: str, product: Op) -> list[int]:
    """Of a tensor, in whichever order; beside a convolution, which may have one more of one element, without such."""
    return sorted(size for size in graph.tensors[name].shape if size != 1 or product.op_type not in CONVOLUTIONS)


def _roots(graph: Graph) -> dict[str, str]:
    """By tensor, the one that it holds in another layout or dtype; itself, where it is none."""
    root = {name: name for name in graph.tensors}
    for op in graph.ops_of(*COPYING, *RESHAPES, "Transpose"):
        root[op.outputs[0]] = root[op.inputs[0]]
    return root


def _leads_to(graph: Graph, positions: dict[str, int], product: Op, name: str) -> bool:
    """Whether a tensor is computed from a product's result."""

    def operands(result: str) -> Iterable[str]:
        op = graph.producer.get(result)
        return () if op is None or positions[op.name] < positions[product.name] else filter(None, op.inputs)

    return any(graph.producer.get(result) is product for result in walk([name], operands))
