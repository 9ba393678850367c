"""A movement in JAX: collectives, or boxes that are sent one by one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import prod
from types import MappingProxyType
from typing import Final

from planner.algebra.tiling import Reducer
from planner.features.export.emitters import InexpressibleError
from planner.features.export.held import Held
from planner.features.export.movement import Collective, Exchange, Sent, exchanged, moved_elements
from planner.graph.core.model import DType, Shape, Tensor
from planner.partition.ways import Round

_JOINS: Final = MappingProxyType(
    {
        Reducer.MAX: ("-jnp.inf", "jnp.maximum"),
        Reducer.MIN: ("jnp.inf", "jnp.minimum"),
        Reducer.PROD: ("1", "jnp.multiply"),
    }
)
"""What a sum of nothing is, and the function of two; sums begin with 0 and are added."""


@dataclass
class Text:
    """The text of an export, under construction."""

    lines: list[str] = field(default_factory=list)
    helpers: set[str] = field(default_factory=set)
    predicted_bytes: int = 0
    moved_bytes: int = 0


def written_movement(
    text: Text,
    ways: tuple[int, ...],
    source: Held,
    target: Held,
    rounds: Sequence[Round],
    collectives: Sequence[Collective] | None,
    before: str,
    variable: str,
    tensor: Tensor,
) -> str:
    """Writes a movement: collectives where they move no more than is counted, else box by box.

    Args:
        text: that is being written.
        ways: of the plan's cuts.
        source: what workers hold.
        target: what they are to hold.
        rounds: what they take for that from whom.
        collectives: collectives that do the same, if there are any.
        before: the variable that holds it.
        variable: one to which it may be given.
        tensor: which.

    Returns:
        The variable that holds it then.
    """
    dtype = tensor.dtype
    predicted = sum(fetches.moved_elements for fetches in rounds) * dtype.item_bytes
    text.predicted_bytes += predicted
    if collectives is not None:
        moved = moved_elements(collectives, source.frame, ways)[0] * dtype.item_bytes
        if moved == predicted:
            text.moved_bytes += moved
            for collective in collectives:
                text.lines.append(f"{variable} = {_collective(text, collective, before)}")
                before = variable
            return before
    for fetches in rounds:
        held = target if fetches is rounds[-1] else Held.of(fetches.regions)
        assembled = f"{variable}_{'here' if fetches.reducer is None else 'sum'}"
        _exchange(text, exchanged(source, held, fetches), source, before, assembled, tensor)
        source, before = held, assembled
    return before


def _collective(text: Text, collective: Collective, value: str) -> str:
    names = [f'"c{cut}"' for cut in collective.cuts]
    axes = names[0] if len(names) == 1 else f"({', '.join(names)})"
    if collective.kind == "slice":
        text.helpers.update(("part",))
        return f"part({value}, {axes}, {collective.dim})"
    if collective.kind == "psum_scatter":
        return f"lax.psum_scatter({value}, {axes}, scatter_dimension={collective.dim}, tiled=True)"
    if collective.kind == "all_to_all":
        return (
            f"lax.all_to_all({value}, {axes}, split_axis={collective.dim}, concat_axis={collective.before}, tiled=True)"
        )
    if collective.kind == "all_gather":
        return f"lax.all_gather({value}, {axes}, axis={collective.dim}, tiled=True)"
    return f"lax.{collective.kind}({value}, {axes})"


def _exchange(text: Text, exchange: Exchange, source: Held, before: str, variable: str, tensor: Tensor) -> None:
    """Writes a tensor's assembly box by box."""
    shape, dtype = tensor.shape, tensor.dtype
    frame, boxes = exchange.target.frame, list(exchange.boxes)
    value = before if shape else f"{before}.reshape(1)"
    is_sum = exchange.reducer in (None, Reducer.SUM)
    if not is_sum and not dtype.is_float:
        raise InexpressibleError(f"joins {dtype.value} by {exchange.reducer}")
    fill = "0" if is_sum else _JOINS[exchange.reducer][0]  # type: ignore[index]
    origin = (0,) * len(frame)
    first = boxes[0] if boxes else None
    if first is not None and first.shape == frame and all(first.takes) and set(first.places) == {origin} and is_sum:
        initial = _box(text, boxes.pop(0), value, source)
    else:
        initial = f"jnp.full({frame}, {fill}, {array_dtype(dtype)})"
    text.lines.append(f"{variable} = {initial}")
    for sent in boxes:
        box, place = _box(text, sent, value, source), _row(text, sent.places)
        if is_sum:
            text.helpers.add("put")
            text.lines.append(f"{variable} = put({variable}, {box}, {place})")
        else:
            text.helpers.update(("mine", "join"))
            function = _JOINS[exchange.reducer][1]  # type: ignore[index]
            text.lines.append(f"{variable} = join({variable}, {box}, {place}, {sent.takes}, {function})")
        text.moved_bytes += len(sent.pairs) * prod(sent.shape) * dtype.item_bytes
    if not shape:
        text.lines.append(f"{variable} = {variable}.reshape(())")


def _box(text: Text, sent: Sent, value: str, source: Held) -> str:
    """A box that is sent, or placed where a worker has it."""
    if set(sent.starts) == {sent.starts[0]}:
        start = sent.starts[0]
        bounds = [
            ":" if (lo, lo + size) == (0, extent) else f"{lo}:{lo + size}"
            for lo, size, extent in zip(start, sent.shape, source.frame, strict=True)
        ]
        box = value if set(bounds) == {":"} else f"{value}[{', '.join(bounds)}]"
    else:
        box = f"lax.dynamic_slice({value}, {_row(text, sent.starts)}, {sent.shape})"
    if sent.pairs:
        return f"lax.ppermute({box}, AXES, {list(sent.pairs)})"
    if all(sent.takes):
        return box
    text.helpers.update(("mine", "only"))
    return f"only({sent.takes}, {box})"


def array_dtype(dtype: DType) -> str:
    """A dtype of JAX."""
    return "jnp.bool_" if dtype is DType.BOOL else f"jnp.{dtype.value}"


def _row(text: Text, table: Sequence[Shape]) -> str:
    """A row of a table for each device; the row alone where all are equal."""
    if len(set(table)) == 1:
        return str(table[0])
    text.helpers.add("mine")
    return f"mine({list(table)})"
