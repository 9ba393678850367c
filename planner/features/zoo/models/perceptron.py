"""SoyBean's multi-layer perceptrons."""

from __future__ import annotations

import numpy as np

from planner.graph.core.model import DType, Graph, Op, StatePair, Tensor


def mlp(layers: int, width: int, batch: int, learning_rate: float = 0.1) -> Graph:
    """A training step of a multi-layer perceptron without bias or activation (SoyBean, section 2.2).

    The loss is half the squared norm of the last layer's output, so its gradient is that output; forward, backward
    and SGD are 3 * layers - 1 matrix products and 2 * layers element-wise ops.

    Args:
        layers: number of square weights.
        width: their size.
        batch: rows of the input.
        learning_rate: of SGD; a constant.
    """
    tensors: dict[str, Tensor] = {}
    ops: list[Op] = []

    def tensor(name: str, *shape: int) -> str:
        tensors[name] = Tensor(name, shape, DType.FLOAT32)
        return name

    def product(name: str, a: str, b: str, *, a_t: bool = False, b_t: bool = False) -> str:
        rows = tensors[a].shape[1 if a_t else 0]
        columns = tensors[b].shape[0 if b_t else 1]
        flags = (("transA", int(a_t)), ("transB", int(b_t)))
        ops.append(Op(f"{name}_op", "Gemm", (a, b), (tensor(name, rows, columns),), flags))
        return name

    tensor("x0", batch, width)
    tensor("rate")
    for layer in range(1, layers + 1):
        product(f"x{layer}", f"x{layer - 1}", tensor(f"w{layer}", width, width))
    gradient = f"x{layers}"
    for layer in range(layers, 0, -1):
        product(f"w{layer}.grad", f"x{layer - 1}", gradient, a_t=True)
        # The first layer reads data, which needs no gradient.
        if layer > 1:
            gradient = product(f"x{layer - 1}.grad", gradient, f"w{layer}", b_t=True)
    for layer in range(1, layers + 1):
        scaled, following = tensor(f"w{layer}.step", width, width), tensor(f"w{layer}.next", width, width)
        ops.append(Op(f"{scaled}_op", "Mul", (f"w{layer}.grad", "rate"), (scaled,)))
        ops.append(Op(f"{following}_op", "Sub", (f"w{layer}", scaled), (following,)))
    weights = tuple(f"w{layer}" for layer in range(1, layers + 1))
    return Graph(
        name=f"mlp-{layers}x{width}",
        tensors=tensors,
        ops=tuple(ops),
        inputs=("x0", *weights),
        outputs=(f"x{layers}", *(f"{weight}.next" for weight in weights)),
        constants={"rate": np.float32(learning_rate) * np.ones((), np.float32)},
        state=tuple(StatePair(weight, f"{weight}.next") for weight in weights),
    )
