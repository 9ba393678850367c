"""Small graphs drawn at random, and the same graphs in other spellings."""

from __future__ import annotations

import random
from dataclasses import replace
from math import prod
from string import ascii_letters

import numpy as np
from hypothesis import strategies as st

from planner.graph.core.model import Attribute, DType, Graph, Op, Shape, Tensor

_SIZES = [2, 3, 4, 6]


class Writing:
    """A graph that grows op by op.

    Args:
        generator: draws.
        scope: begins the names of what nobody named.
    """

    def __init__(self, generator: random.Random, scope: str) -> None:
        self.random = generator
        self.scope = scope
        self.tensors: dict[str, Tensor] = {}
        self.constants: dict[str, np.ndarray] = {}
        self.ops: list[Op] = []

    def shape(self, name: str) -> Shape:
        return self.tensors[name].shape

    def tensor(self, name: str, shape: Shape) -> str:
        self.tensors[name] = Tensor(name, tuple(shape), DType.FLOAT32)
        return name

    def ints(self, values: Shape) -> str:
        name = f"{self.scope}.ints.{len(self.constants)}"
        self.constants[name] = np.array(values, np.int64)
        self.tensors[name] = Tensor(name, (len(values),), DType.INT64)
        return name

    def add(self, op_type: str, inputs: tuple[str, ...], shape: Shape, made: str = "", **attributes: Attribute) -> str:
        name = made or f"{self.scope}.{len(self.ops)}"
        self.tensor(name, shape)
        self.ops.append(
            Op(f"{self.scope}.op.{len(self.ops)}", op_type, inputs, (name,), tuple(sorted(attributes.items())))
        )
        return name

    def transpose(self, x: str, perm: Shape, made: str = "") -> str:
        return self.add("Transpose", (x,), tuple(self.shape(x)[dim] for dim in perm), made, perm=tuple(perm))

    def reshape(self, x: str, shape: Shape, made: str = "") -> str:
        return self.add("Reshape", (x, self.ints(shape)), shape, made)

    def shuffled(self, rank: int) -> Shape:
        return tuple(self.random.sample(range(rank), rank))

    def graph(self, inputs: tuple[str, ...], outputs: tuple[str, ...]) -> Graph:
        folded = frozenset(self.constants)
        return Graph("drawn", self.tensors, tuple(self.ops), inputs, outputs, self.constants, folded)


@st.composite
def networks(draw: st.DrawFn) -> Graph:
    """Products of matrices and stacks, element-wise ops that broadcast, and Transposes that only products read.

    Where something else reads a Transpose as well, it stays, and there are two forms: a product may read what is turned
    or what turns it.
    """
    writing = Writing(draw(st.randoms(use_true_random=False)), "drawn")
    roll = writing.random
    inputs = [writing.tensor("x", tuple(roll.choice(_SIZES) for _ in range(roll.choice([2, 2, 3]))))]
    free = ["x"]
    for number in range(draw(st.integers(1, 5))):
        x, made = roll.choice(free), f"made.{number}"
        *stack, rows, columns = writing.shape(x)
        match roll.choice(["MatMul", "MatMul", "Relu", "Add", "Turned", "Reshape"]):
            case "MatMul":
                wide = roll.choice(_SIZES)
                w = writing.tensor(f"w.{number}", (*(stack if roll.random() < 0.3 else ()), columns, wide))
                inputs.append(w)
                writing.add("MatMul", (x, w), (*stack, rows, wide), made)
            case "Turned":
                wide = roll.choice(_SIZES)
                w = writing.tensor(f"w.{number}", (*stack, wide, columns))
                inputs.append(w)
                perm = (*range(len(stack)), len(stack) + 1, len(stack))
                writing.add("MatMul", (x, writing.transpose(w, perm)), (*stack, rows, wide), made)
            case "Add":
                b = writing.tensor(f"b.{number}", roll.choice([(columns,), (1, columns), (rows, 1), (rows, columns)]))
                inputs.append(b)
                writing.add("Add", (x, b), (*stack, rows, columns), made)
            case "Reshape":
                writing.reshape(x, (*stack, columns, rows) if rows != columns else (prod(stack) * rows, columns), made)
            case _:
                writing.add("Relu", (x,), (*stack, rows, columns), made)
        free.append(made)
    read = {name for op in writing.ops for name in op.inputs}
    outputs = tuple(name for name in free if name not in read)
    return writing.graph(tuple(inputs), outputs)


def respelled(graph: Graph, seed: int) -> Graph:
    """The same network, with the same inputs and outputs, in other ops."""
    writing = Writing(random.Random(seed), "again")
    writing.tensors.update({name: tensor for name, tensor in graph.tensors.items() if name not in graph.constants})
    roll = writing.random
    turned = {op.inputs[0] for op in graph.ops if op.op_type == "Transpose"}
    for op in graph.ops:
        shape = graph.tensors[op.outputs[0]].shape
        floats = [name for name in op.inputs if name not in graph.constants]
        read = {name: _around(writing, name) if roll.random() < 0.4 else name for name in floats}
        if op.op_type == "Add":
            read = {name: _repeated(writing, held, shape) for name, held in read.items()}
        made = op.outputs[0]
        inner = f"{made}.inner" if roll.random() < 0.3 else made
        inputs = tuple(read.get(name, name) for name in op.inputs)
        if op.op_type == "MatMul":
            _product(writing, inputs, shape, inner, may_turn=made not in turned)
        elif op.op_type == "Reshape":
            writing.reshape(inputs[0], shape, inner)
        else:
            writing.add(op.op_type, inputs, shape, inner, **dict(op.attributes))
        if inner != made:
            writing.add("Identity", (_around(writing, inner),), shape, made)
    order = [name for name in writing.tensors if name not in {made for op in writing.ops for made in op.outputs}]
    made_names = [name for op in writing.ops for name in op.outputs]
    found = writing.graph(graph.inputs, graph.outputs)
    return replace(found, tensors={name: writing.tensors[name] for name in (*order, *made_names)})


def _around(writing: Writing, x: str) -> str:
    """The tensor again, by ops that lay it out anew and back, or that put it together of what they took of it."""
    roll, shape = writing.random, writing.shape(x)
    match roll.choice(["Identity", "Transpose", "Reshape", "Split", "Concat", "Product"]):
        case "Split":
            return _swapped(
                writing,
                _swapped(writing, x, dim := roll.randrange(len(shape)), shape[dim] // 2 or 1),
                dim,
                -(-shape[dim] // 2),
            )
        case "Concat":
            return _beside(writing, x, roll.randrange(len(shape)))
        case "Product" if len(shape) > 1:
            return _multiplied(writing, x)
        case "Identity":
            return writing.add("Identity", (x,), shape)
        case "Transpose":
            perm = writing.shuffled(len(shape))
            back = tuple(perm.index(dim) for dim in range(len(shape)))
            return writing.transpose(writing.transpose(x, perm), back)
        case _:
            between = roll.choice([(prod(shape),), (1, *shape), (*shape, 1)])
            return writing.reshape(writing.reshape(x, between), shape)


def _swapped(writing: Writing, x: str, dim: int, first: int) -> str:
    """What is behind so many places of a dim, and then what is before."""
    size = writing.shape(x)[dim]
    parts = [_taken(writing, x, dim, first, size), _taken(writing, x, dim, 0, first)]
    return writing.add("Concat", tuple(filter(None, parts)), writing.shape(x), axis=dim)


def _taken(writing: Writing, x: str, dim: int, start: int, end: int) -> str:
    """A part of a tensor; "" of none."""
    shape = list(writing.shape(x))
    shape[dim] = end - start
    places = (writing.ints((one,)) for one in (start, end, dim))
    return writing.add("Slice", (x, *places), tuple(shape)) if start < end else ""


def _beside(writing: Writing, x: str, dim: int) -> str:
    """The tensor, taken of what it was put beside others in."""
    shape, size = writing.shape(x), writing.shape(x)[dim]
    twice, three = (tuple(n * size if at == dim else one for at, one in enumerate(shape)) for n in (2, 3))
    pair = writing.add("Concat", (x, x), twice, axis=dim)
    whole = writing.add("Concat", (pair, x), three, axis=dim)
    return _taken(writing, whole, dim, size, 2 * size)


def _multiplied(writing: Writing, x: str) -> str:
    """The tensor times the identity, on either side."""
    roll, shape = writing.random, writing.shape(x)
    side = roll.choice([0, 1])
    name = f"{writing.scope}.eye.{len(writing.constants)}"
    writing.constants[name] = np.eye(shape[-2 + side], dtype=np.float32)
    writing.tensor(name, writing.constants[name].shape)
    return writing.add("MatMul", (x, name) if side else (name, x), shape)


def _repeated(writing: Writing, x: str, shape: Shape) -> str:
    if writing.random.random() < 0.5 or writing.shape(x) == shape:
        return x
    return writing.add("Expand", (x, writing.ints(shape)), shape)


def _product(writing: Writing, inputs: tuple[str, ...], shape: Shape, made: str, *, may_turn: bool) -> None:
    """A MatMul, or a Gemm or an Einsum, of operands that are turned back; or what turns what it makes."""
    roll, ranks = writing.random, [len(writing.shape(name)) for name in inputs]
    kind = roll.choice(["MatMul", "Einsum", *(["Gemm"] if ranks == [2, 2] else [])])
    if kind == "MatMul":
        if may_turn and ranks == [2, 2] and roll.random() < 0.4:
            flipped = tuple(writing.transpose(name, (1, 0)) for name in reversed(inputs))
            writing.transpose(writing.add("MatMul", flipped, shape[::-1]), (1, 0), made)
        else:
            writing.add("MatMul", inputs, shape, made)
        return
    if kind == "Gemm":
        turns = [roll.random() < 0.5 for _ in inputs]
        operands = tuple(writing.transpose(x, (1, 0)) if turn else x for x, turn in zip(inputs, turns, strict=True))
        writing.add("Gemm", operands, shape, made, transA=int(turns[0]), transB=int(turns[1]))
        return
    letters = roll.sample(ascii_letters, len(shape) + 1)
    *stack, m, n, k = letters
    labels = [(*stack[len(stack) + 2 - ranks[0] :], m, k), (*stack[len(stack) + 2 - ranks[1] :], k, n)]
    perms = [writing.shuffled(rank) if roll.random() < 0.5 else tuple(range(rank)) for rank in ranks]
    operands = tuple(writing.transpose(x, perm) for x, perm in zip(inputs, perms, strict=True))
    terms = ["".join(own[dim] for dim in perm) for own, perm in zip(labels, perms, strict=True)]
    if roll.random() < 0.5:
        operands, terms = operands[::-1], terms[::-1]
    result = (*stack, m, n)
    perm = writing.shuffled(len(result)) if may_turn else tuple(range(len(result)))
    turned = writing.add(
        "Einsum",
        operands,
        tuple(shape[dim] for dim in perm),
        equation=f"{','.join(terms)}->{''.join(result[dim] for dim in perm)}",
    )
    writing.transpose(turned, tuple(perm.index(dim) for dim in range(len(perm))), made)
