"""The network as a strip: weights above, the activations that they are applied to below, equal blocks folded.

Each column is a product of the forward pass (``columns.py``). Its squares are as large as their tensors, by orders of
magnitude; the ribbons between the squares and the op are as wide as what moves because of weights, and because of all
else.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from planner.artifacts.plan import Plan
from planner.features.report.page.axes import Axes
from planner.features.report.page.columns import Column, Drawn
from planner.features.report.page.folding import Block, block_name, folded
from planner.features.report.page.glyphs import PALETTE, SIDE, Glyphs, worker_key
from planner.features.report.page.markup import Markup, element, joined
from planner.graph.core.model import Graph, Tensor
from planner.units import format_bytes

WIDTH = 96.0
"""Of a column, in pixels."""
HEIGHT = 268.0
_UPPER_END, _OP_TOP, _OP_END, _LOWER_TOP = 84.0, 122.0, 138.0, 176.0
_LEAST_SIDE = 20.0
_WIDEST = 44.0
_HEAD = 26.0
"""Pixels above a block in a picture of its own, for its name."""
_GAP = 14.0


@dataclass(frozen=True, slots=True)
class Strip:
    """The tensors to draw."""

    graph: Graph
    plan: Plan
    columns: tuple[Column, ...]
    axes: Axes
    blocks: tuple[Block, ...]

    @classmethod
    def of(cls, graph: Graph, plan: Plan, columns: tuple[Column, ...], axes: Axes) -> Strip:
        """The strip of a plan's columns."""

        def kind(drawn: Drawn | None) -> object:
            return None if drawn is None else (graph.tensors[drawn.name].shape, plan.tilings[drawn.name])

        kinds = [
            (
                *(column.op_type, column.strategy, column.has_weights, column.upper_bytes, column.lower_bytes),
                *(kind(column.upper), kind(column.lower)),
            )
            for column in columns
        ]
        return cls(graph, plan, columns, axes, folded(kinds, [column.label for column in columns]))

    def members(self, block: Block) -> list[tuple[str, tuple[Column, ...]]]:
        """The repetitions of a block: what each is called, and its columns."""
        repetitions = []
        for start in block.starts():
            columns = self.columns[start : start + block.length]
            repetitions.append((block_name([column.label for column in columns]), columns))
        return repetitions

    def name(self, block: Block) -> str:
        """What a block is called: the first repetition and the last."""
        members = self.members(block)
        first, last = members[0][0], members[-1][0]
        return first if first == last else f"{first} … {last}"

    def tensors(self) -> list[str]:
        """Names of the tensors that are drawn."""
        drawn = (tensor for column in self.columns for tensor in (column.upper, column.lower))
        return list(dict.fromkeys(tensor.name for tensor in drawn if tensor is not None))


class Picture:
    """Draws a strip.

    Args:
        strip: that is drawn.
        number_of: the number by which a page knows a tensor; None: it is drawn for no page.
    """

    def __init__(self, strip: Strip, number_of: Mapping[str, int] | None = None) -> None:
        self._strip = strip
        self._number_of = number_of
        self.glyphs = Glyphs()
        sizes = [math.log(max(2, strip.graph.tensors[name].elements)) for name in strip.tensors()] or [1.0]
        self._smallest, self._largest = min(sizes), max(sizes)
        self._widest_bytes = max([1, *(max(column.upper_bytes, column.lower_bytes) for column in strip.columns)])

    def block(self, block: Block) -> Markup:
        """A block's columns, as they are in its first repetition."""
        return joined(
            *(
                element("g", self._column(column, block), transform=f"translate({number * WIDTH:g} 0)")
                for number, column in enumerate(self._strip.members(block)[0][1])
            )
        )

    def alone(self) -> Markup:
        """The strip as a picture of its own, all blocks folded."""
        left, groups = _GAP, []
        for block in self._strip.blocks:
            width = block.length * WIDTH
            groups.append(
                element(
                    "g", self._head(block, width), self.block(block), transform=f"translate({left:g} {_HEAD + 40:g})"
                )
            )
            left += width + _GAP
        title = f"Plan of {self._strip.plan.model} for {self._strip.plan.workers} workers"
        height = HEIGHT + _HEAD + 76
        return element(
            "svg",
            element("title", title),
            element("rect", width=max(left, 540.0), height=height, fill="#FFF"),
            self.glyphs.symbols(),
            element("text", title, x=_GAP, y=22, font_size=15, font_weight="bold"),
            *groups,
            self._key(_GAP, height - 16),
            xmlns="http://www.w3.org/2000/svg",
            viewBox=f"0 0 {max(left, 540.0):g} {height:g}",
            width=max(left, 540.0),
            height=height,
            font_family="sans-serif",
        )

    def scale(self) -> str:
        """What the width of a ribbon means, in words."""
        return f"{_WIDEST:g} pixels of a ribbon: {format_bytes(self._widest_bytes)} a step"

    def _head(self, block: Block, width: float) -> Markup:
        name, times = self._strip.name(block), block.times
        return joined(
            element("path", d=f"M2 0v-6h{width - 4:g}v6", stroke="#444", fill="none"),
            element("text", _short(name, int((width - (30 if times > 1 else 6)) / 5.6)), x=4, y=-11, font_size=10),
            element("text", f"×{times}", x=width - 4, y=-11, font_size=12, font_weight="bold", text_anchor="end")
            if times > 1
            else "",
        )

    def _key(self, left: float, base: float) -> Markup:
        shown = min(self._strip.plan.workers, len(PALETTE))
        return joined(
            element("text", "workers", x=left, y=base, font_size=11),
            element("g", worker_key(shown), transform=f"translate({left + 62:g} {base - 12:g})"),
            element("text", self.scale(), x=left + 80 + 18 * shown, y=base, font_size=11),
        )

    def _column(self, column: Column, block: Block) -> Markup:
        middle, again = WIDTH / 2, block.times > 1
        moved = "each " if again else ""
        upper_width, lower_width = (
            _WIDEST * amount / self._widest_bytes for amount in (column.upper_bytes, column.lower_bytes)
        )
        axes = self._strip.axes.strategy(column.op, self._strip.plan.strategies[column.op])
        operand = "weights" if column.has_weights else "second operand"
        return joined(
            element("title", f"{column.op}: {column.op_type}, {column.strategy}"),
            self._square(column.upper, _UPPER_END, True, dashed=not column.has_weights),
            _ribbon(middle, _UPPER_END + 14, _OP_TOP, upper_width, "#555"),
            _amount(middle, _OP_TOP - 9, upper_width, column.upper_bytes, f"{moved}what moves of {operand}"),
            element(
                "rect", x=3, y=_OP_TOP, width=WIDTH - 6, height=_OP_END - _OP_TOP, rx=3, fill="#FFF", stroke="#222"
            ),
            element("text", axes, x=middle, y=_OP_TOP + 11, font_size=_fitting(axes), text_anchor="middle"),
            _ribbon(middle, _OP_END, _LOWER_TOP, lower_width, "#AAA"),
            _amount(middle, _OP_END + 22, lower_width, column.lower_bytes, f"{moved}what moves of activations"),
            self._square(column.lower, _LOWER_TOP, False),
        )

    def _square(self, drawn: Drawn | None, edge: float, is_upper: bool, *, dashed: bool = False) -> Markup:
        """A tensor's square, above an edge or below it, with its shape and tiling."""
        if drawn is None:
            base = edge - 20 if is_upper else edge + 30
            return element("text", "constant", x=WIDTH / 2, y=base, font_size=8, text_anchor="middle")
        tensor, tiling = self._strip.graph.tensors[drawn.name], self._strip.plan.tilings[drawn.name]
        side = self._side(tensor)
        left, top = (WIDTH - side) / 2, edge - side if is_upper else edge
        shape = "×".join(map(str, tensor.shape)) or "scalar"
        texts = (18, edge + 10) if is_upper else (edge + SIDE + 22, edge + SIDE + 11)
        lettering = self._strip.axes.tiling(drawn.name, tiling)
        content = joined(
            element("title", f"{drawn.name} {shape}: {tiling}"),
            element(
                "use", href=f"#{self.glyphs.of(tiling, tensor.shape, drawn)}", x=left, y=top, width=side, height=side
            ),
            element(
                "rect",
                x=left - 2,
                y=top - 2,
                width=side + 4,
                height=side + 4,
                fill="none",
                stroke="#000",
                stroke_dasharray="3 2",
            )
            if dashed
            else "",
            element("text", shape, x=WIDTH / 2, y=texts[0], font_size=8, text_anchor="middle", fill="#444"),
            element("text", lettering, x=WIDTH / 2, y=texts[1], font_size=_fitting(lettering), text_anchor="middle"),
        )
        if self._number_of is None:
            return element("g", content)
        label = f"{drawn.name}, {shape}, {tiling}: show its tiles"
        number = self._number_of[drawn.name]
        return element("g", content, class_="tensor", data_tensor=number, tabindex=0, role="button", aria_label=label)

    def _side(self, tensor: Tensor) -> float:
        size = math.log(max(2, tensor.elements))
        share = (size - self._smallest) / (self._largest - self._smallest) if self._largest > self._smallest else 1.0
        return round(_LEAST_SIDE + share * (SIDE - _LEAST_SIDE), 1)


def _short(text: str, length: int) -> str:
    """A text cut in the middle; titles have it whole."""
    keep = max(3, length)
    return text if len(text) <= keep else f"{text[: keep // 2 - 1]}…{text[-(keep - keep // 2) :]}"


def _fitting(text: str) -> float:
    """The size of letters at which a text fits a column."""
    return round(min(8.5, 1.7 * WIDTH / max(1, len(text))), 1)


def _ribbon(middle: float, top: float, end: float, width: float, fill: str) -> Markup:
    if not width:
        return element("path", d=f"M{middle:g} {top:g}V{end:g}", stroke=fill, stroke_dasharray="1 3")
    wide = max(width, 0.7)
    return element("rect", x=middle - wide / 2, y=top, width=wide, height=end - top, fill=fill)


def _amount(middle: float, base: float, width: float, amount: int, title: str) -> Markup:
    """The bytes of a ribbon, beside it, or over it where there is no room."""
    if not amount:
        return Markup("")
    text = format_bytes(amount)
    left = min(middle + width / 2 + 2, WIDTH - 4.7 * len(text))
    return element(
        "text",
        element("title", f"{title}: {amount:,} bytes"),
        text,
        x=round(left, 1),
        y=base,
        font_size=7.5,
        stroke="#FFF",
        stroke_width=2.5,
        paint_order="stroke",
    )
