"""An optimizer's step that makes the momentum of equal matrices orthogonal, as Muon does."""

from __future__ import annotations

import numpy as np

from planner.graph.core.model import Attribute, DType, Graph, Op, Tensor

NUMBERS = {"mu": 0.95, "lr": 0.02, "a": 3.4445, "b": -4.775, "c": 2.0315}
ROUNDS = 5


class _Writing:
    def __init__(self, dtype: DType) -> None:
        self.dtype = dtype
        self.tensors = {name: Tensor(name, (), dtype) for name in NUMBERS}
        self.ops: list[Op] = []

    def op(self, op_type: str, inputs: tuple[str, ...], shape: tuple[int, ...], made: str, **stated: Attribute) -> str:
        self.tensors[made] = Tensor(made, shape, self.dtype)
        self.ops.append(Op(f"op.{made}", op_type, inputs, (made,), tuple(sorted(stated.items()))))
        return made

    def orthogonalised(self, x: str, lane: str, stack: tuple[int, ...], size: int) -> str:
        """Five Newton-Schulz steps (Jordan 2024, Muon), of a matrix or of a stack of them."""
        shape, perm = (*stack, size, size), (*range(len(stack)), len(stack) + 1, len(stack))
        for number in range(ROUNDS):
            own = f"{lane}.{number}"
            turned = self.op("Transpose", (x,), shape, f"{own}.t", perm=perm)
            square = self.op("MatMul", (x, turned), shape, f"{own}.square")
            fourth = self.op("MatMul", (square, square), shape, f"{own}.fourth")
            both = self.op(
                "Add",
                (
                    self.op("Mul", (square, "b"), shape, f"{own}.by_b"),
                    self.op("Mul", (fourth, "c"), shape, f"{own}.by_c"),
                ),
                shape,
                f"{own}.both",
            )
            times = self.op("MatMul", (both, x), shape, f"{own}.times")
            x = self.op("Add", (self.op("Mul", (x, "a"), shape, f"{own}.by_a"), times), shape, f"{own}.next")
        return x


def momentum(count: int, size: int, *, is_loop: bool, dtype: DType = DType.FLOAT32) -> Graph:
    """A step of an optimizer that makes the momentum of equal matrices orthogonal: in a loop, or as a stack."""
    write, shape = _Writing(dtype), (size, size)
    following = []
    for i in range(count):
        write.tensors.update({f"{name}{i}": Tensor(f"{name}{i}", shape, dtype) for name in "wmg"})
        kept = write.op("Mul", (f"m{i}", "mu"), shape, f"kept{i}")
        following.append(write.op("Add", (kept, f"g{i}"), shape, f"m{i}.next"))
    constants: dict[str, np.ndarray] = {name: np.array(value, dtype.array_dtype) for name, value in NUMBERS.items()}
    if is_loop:
        made = [write.orthogonalised(name, f"lane{i}", (), size) for i, name in enumerate(following)]
    else:
        constants |= {"axis": np.array([0]), "parts": np.array([1] * count)}
        write.tensors |= {name: Tensor(name, constants[name].shape, DType.INT64) for name in ("axis", "parts")}
        layers = tuple(write.op("Unsqueeze", (name, "axis"), (1, *shape), f"{name}.layer") for name in following)
        whole = write.op("Concat", layers, (count, *shape), "stack", axis=0)
        result = write.orthogonalised(whole, "all", (count,), size)
        parts = tuple(f"part{i}" for i in range(count))
        write.tensors.update({name: Tensor(name, (1, *shape), dtype) for name in parts})
        write.ops.append(Op("split", "Split", (result, "parts"), parts, (("axis", 0),)))
        made = [write.op("Squeeze", (part, "axis"), shape, f"{part}.matrix") for part in parts]
    for i, name in enumerate(made):
        change = write.op("Mul", (name, "lr"), shape, f"change{i}")
        write.op("Sub", (f"w{i}", change), shape, f"w{i}.next")
    inputs = tuple(f"{name}{i}" for i in range(count) for name in "wmg")
    outputs = tuple(f"{name}{i}.next" for i in range(count) for name in "wm")
    return Graph("momentum", write.tensors, tuple(write.ops), inputs, outputs, constants)
