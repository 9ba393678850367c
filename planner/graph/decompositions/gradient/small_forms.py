"""Operators that networks seldom train through, written out: Det, CumProd, STFT."""

from __future__ import annotations

from typing import Final

import numpy as np

from planner.graph.core.attributes import integer, refuse
from planner.graph.core.builder import Builder
from planner.graph.core.model import Op
from planner.graph.decompositions.registry import Purpose, stands_for

_LARGEST_DETERMINANT: Final = 6


@stands_for("Det", purpose=Purpose.GRADIENT)
def determinant(emit: Builder, op: Op) -> tuple[str, ...]:
    """The determinant by expansion along rows: without a division, so that singular matrices have a gradient, too.

    The minors of the first r rows, one for each choice of r columns, are made from those of r - 1 rows.

    Raises:
        UnsupportedError: the matrices are larger than 6x6: a gradient needs their inverse, which ONNX has no operator
            for.
    """
    x = op.inputs[0]
    *lead, size, _ = emit.shape(x)
    if size > _LARGEST_DETERMINANT:
        raise refuse(op, f"its matrices are {size}x{size}; a gradient is taken up to 6x6, as it needs all minors")
    rank = len(lead) + 2

    def element(row: int, column: int) -> str:
        starts, ends = [*(0 for _ in lead), row, column], [*lead, row + 1, column + 1]
        return emit.squeeze(emit.slice(x, starts, ends), [rank - 2, rank - 1])

    minors = {frozenset({column}): element(0, column) for column in range(size)}
    for row in range(1, size):
        larger: dict[frozenset[int], str] = {}
        # Sorted, so that the ops come in one order, whatever that of a set.
        for chosen in sorted({columns | {column} for columns in minors for column in range(size)}, key=sorted):
            if len(chosen) != row + 1:
                continue
            total = ""
            for place, column in enumerate(sorted(chosen)):
                term = emit.mul(element(row, column), minors[chosen - {column}])
                if not total:
                    total = term if (row + place) % 2 == 0 else emit.unary("Neg", term)
                else:
                    total = (emit.add if (row + place) % 2 == 0 else emit.sub)(total, term)
            larger[chosen] = total
        minors = larger
    return (minors[frozenset(range(size))],)


@stands_for("CumProd", purpose=Purpose.GRADIENT)
def cumulative_product(emit: Builder, op: Op) -> tuple[str, ...]:
    """Running products in log2 n steps: each element times the one 1, 2, 4 ... before it (Hillis and Steele 1986).

    The body in parts is made of running products again, which have no gradient rule.

    Raises:
        UnsupportedError: its axis is not known.
    """
    x = op.inputs[0]
    rank = emit.rank(x)
    axis = int(emit.known(op, 1, "axis").item()) % rank
    size = emit.shape(x)[axis]
    backwards = [axis] if integer(op, "reverse", 0) else []

    def moved(values: str, by: int) -> str:
        shift = [by if dim == axis else 0 for dim in range(rank)]
        return emit.pad(values, shift, [-width for width in shift], 1.0)

    products = emit.reverse(x, backwards)
    if integer(op, "exclusive", 0):
        products = moved(products, 1)
    step = 1
    while step < size:
        products = emit.mul(products, moved(products, step))
        step *= 2
    return (emit.reverse(products, backwards),)


@stands_for("STFT", purpose=Purpose.GRADIENT)
def short_time_fourier(emit: Builder, op: Op) -> tuple[str, ...]:
    """Frames of the signal times the window, each transformed by DFT.

    Raises:
        UnsupportedError: the step or the length of frames is not known.
    """
    signal, window = op.inputs[0], op.inputs[2] if op.has_input(2) else ""
    count, size, parts = emit.shape(signal)
    whole = emit.shape(window)[0] if window else size
    frame = int(emit.known(op, 3, "length of frames").item()) if op.has_input(3) else whole
    stride = int(emit.known(op, 1, "step of frames").item())
    starts = np.arange(0, size - frame + 1, stride)
    places = emit.constant((starts[:, None] + np.arange(frame)).astype(np.int64), f"frames.{len(starts)}x{frame}")
    shape = (count, len(starts), frame, parts)
    frames = emit.one("Gather", [signal, places], shape, emit.dtype(signal), attributes={"axis": 1})
    if window:
        frames = emit.mul(frames, emit.reshape(window, (frame, 1)))
    onesided = integer(op, "onesided", 1)
    spectrum_shape = (count, len(starts), frame // 2 + 1 if onesided else frame, 2)
    operands = [frames, "", emit.constant(np.array(2, np.int64), "int.2")]
    return (emit.one("DFT", operands, spectrum_shape, emit.dtype(signal), attributes={"onesided": onesided}),)
