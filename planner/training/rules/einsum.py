"""Gradient rule of Einsum."""

from __future__ import annotations

import string
from collections.abc import Mapping

import numpy as np

from planner.graph.core.attributes import refuse, text
from planner.graph.core.builder import Builder
from planner.graph.core.model import Shape
from planner.training.gradients.autodiff import Backward, Contributions, gradient


def explicit(equation: str, ranks: list[int]) -> tuple[list[str], str]:
    """An equation's terms with letters for every dim, and its output; the ellipsis becomes capital letters.

    The letters of an ellipsis are counted from the last dim, as broadcasting does. Letters of the equation that are
    capitals keep their meaning: others are taken for the ellipsis.
    """
    inputs, arrow, output = equation.replace(" ", "").partition("->")
    terms = inputs.split(",")
    free = [letter for letter in reversed(string.ascii_letters) if letter not in equation]
    widths = [
        rank - len(term.replace("...", "")) if "..." in term else 0 for term, rank in zip(terms, ranks, strict=True)
    ]
    widest = max(widths, default=0)
    spare = free[:widest]
    terms = [term.replace("...", "".join(spare[widest - width :])) for term, width in zip(terms, widths, strict=True)]
    if arrow:
        return terms, output.replace("...", "".join(spare))
    once = sorted(letter for letter in set(inputs) if letter.isalpha() and inputs.count(letter) == 1)
    return terms, "".join(spare) + "".join(once)


def _without_repeated(emit: Builder, term: str, name: str, sizes: Mapping[str, int]) -> tuple[str, str]:
    """An operand without the dims of size 1 that an ellipsis repeats: only an ellipsis may repeat, letters may not."""
    repeated = [
        dim
        for dim, (letter, size) in enumerate(zip(term, emit.shape(name), strict=True))
        if size == 1 and sizes[letter] != 1
    ]
    letters = "".join(letter for dim, letter in enumerate(term) if dim not in repeated)
    return letters, emit.squeeze(name, repeated)


def _on_diagonal(emit: Builder, part: str, dims: tuple[int, int]) -> str:
    """An array where its indices along two dims are equal; 0 elsewhere."""
    rank, indices = emit.rank(part), np.arange(emit.shape(part)[dims[0]])
    places = [
        emit.constant(indices.reshape([-1 if axis == dim else 1 for axis in range(rank)]), "places") for dim in dims
    ]
    return emit.where(emit.compare("Equal", *places), part, emit.scalar(0.0, part))


@gradient("Einsum")
def einsum(context: Backward) -> Contributions:
    """For y = A B ... contracted: dA = dy B ... contracted to A's letters; dims that only A has are repeated.

    Of a letter that A has twice, dA is 0 but on the diagonal.
    """
    emit, op, dy = context.builder, context.op, context.dy
    terms, out = explicit(text(op, "equation", ""), [emit.rank(name) for name in op.inputs])
    if len(set(out)) < len(out):
        raise refuse(op, "no gradient rule for a letter that its result has twice")
    sizes: dict[str, int] = {}
    for term, name in zip(terms, op.inputs, strict=True):
        for letter, size in zip(term, emit.shape(name), strict=True):
            sizes[letter] = max(sizes.get(letter, 1), size)
    contributions: list[str | None] = []
    for position, (term, name) in enumerate(zip(terms, op.inputs, strict=True)):
        if not context.wanted[position]:
            contributions.append(None)
            continue
        peers = [
            (peer, operand)
            for index, (peer, operand) in enumerate(zip(terms, op.inputs, strict=True))
            if index != position
        ]
        narrow = [_without_repeated(emit, peer, operand, sizes) for peer, operand in peers]
        letters = set(out).union(*(peer for peer, _ in narrow))
        output = "".join(letter for letter in dict.fromkeys(term) if letter in letters)
        again = [(term.index(letter), dim) for dim, letter in enumerate(term) if letter in term[:dim]]
        equation = ",".join([out, *(peer for peer, _ in narrow)]) + f"->{output}"
        shape: Shape = tuple(sizes[letter] for letter in output)
        operands = [dy, *(operand for _, operand in narrow)]
        part = emit.one("Einsum", operands, shape, emit.dtype(dy), attributes={"equation": equation})
        full = tuple(sizes[letter] for letter in term)
        # The gradient is the same along dims that no other operand has; second dims of a diagonal are masked below.
        missing = [dim for dim, letter in enumerate(term) if letter not in letters or letter in term[:dim]]
        part = emit.expand(emit.unsqueeze(part, missing), full)
        for dims in again:
            part = _on_diagonal(emit, part, dims)
        contributions.append(emit.unbroadcast(part, emit.shape(name)))
    return contributions
