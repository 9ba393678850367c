"""Draws the pictures of the pages in docs/: of the example's tilings, plans, program and run, and of README's plan.

    python tests/tools/page_pictures.py

writes them to docs/pictures/; ``tests/docs/test_pictures.py`` compares.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Final
from xml.sax.saxutils import escape

import planner
from page_example import SHOWN, WORKERS, example, executed
from planner.algebra.region import Boxes
from planner.algebra.tiling import Shard, Tiling
from planner.artifacts.program import Fetch, WorkerProgram
from planner.artifacts.waits import data_waits, last_local_reads, remote_readers, writers
from planner.units import format_bytes

PICTURES = Path(__file__).parents[2] / "docs" / "pictures"
COLOURS: Final = ("#4477aa", "#ee7733", "#228833", "#aa3377")
"""Of the workers; a number stands beside each colour."""
PAPER, INK, PALE = "#ffffff", "#222222", "#e8e8e8"


class Picture:
    """An SVG under construction; all lengths are in pixels."""

    def __init__(self, title: str, width: int, height: int) -> None:
        self.lines = [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}"'
            ' font-family="sans-serif" font-size="12">',
            f"<title>{escape(title)}</title>",
            f'<rect width="{width}" height="{height}" fill="{PAPER}"/>',
        ]

    def box(self, x: float, y: float, width: float, height: float, fill: str, line: str = INK) -> None:
        """A rectangle."""
        self.lines.append(
            f'<rect x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" fill="{fill}" stroke="{line}"/>'
        )

    def text(self, x: float, y: float, text: str, *, anchor: str = "start", size: int = 12, fill: str = INK) -> None:
        """One line of text; ``y`` is its base line."""
        self.lines.append(
            f'<text x="{x:g}" y="{y:g}" text-anchor="{anchor}" font-size="{size}" fill="{fill}">{escape(text)}</text>'
        )

    def line(self, x0: float, y0: float, x1: float, y1: float, colour: str = INK) -> None:
        """A straight line."""
        self.lines.append(f'<line x1="{x0:g}" y1="{y0:g}" x2="{x1:g}" y2="{y1:g}" stroke="{colour}"/>')

    def chips(self, x: float, y: float, workers: Sequence[int], side: float = 14) -> None:
        """Squares with the numbers of workers around a place."""
        gap = 2
        left = x - (len(workers) * (side + gap) - gap) / 2
        for place, worker in enumerate(workers):
            at = left + place * (side + gap)
            self.box(at, y - side / 2, side, side, COLOURS[worker], COLOURS[worker])
            self.text(at + side / 2, y + side / 4, str(worker), anchor="middle", size=round(side * 0.75), fill=PAPER)

    def tiles(self, x: float, y: float, shape: tuple[int, ...], boxes: Boxes, scale: float) -> None:
        """A matrix with the region of each worker."""
        self.box(x, y, shape[1] * scale, shape[0] * scale, PALE)
        owners: dict[tuple[tuple[int, ...], tuple[int, ...]], list[int]] = {}
        for worker in range(boxes.workers):
            region = tuple(boxes.lo[worker].tolist()), tuple(boxes.hi[worker].tolist())
            owners.setdefault(region, []).append(worker)
        for (lo, hi), workers in owners.items():
            left, top, width, height = (scale * one for one in (lo[1], lo[0], hi[1] - lo[1], hi[0] - lo[0]))
            self.box(x + left, y + top, width, height, PALE)
            self.chips(x + left + width / 2, y + top + height / 2, workers, min(14, height - 2))

    def __str__(self) -> str:
        return "\n".join([*self.lines, "</svg>", ""])


def representation() -> Picture:
    """Tilings of a square matrix, and of the tensors of the found plan: which worker owns which tile."""
    plan, graph = example().plan, example().graph
    picture = Picture("Which worker owns which tile", 760, 420)
    picture.text(20, 24, "A matrix of 1024 x 1024 in four tilings: the order of the cuts decides who owns what")
    for column, text in enumerate(("S(0)/2 S(1)/2", "S(1)/2 S(0)/2", "S(0)/2 R/2", "R/2 S(0)/2")):
        x = 20 + 185 * column
        picture.tiles(x, 40, (1024, 1024), Tiling.parse(text, (2, 2)).boxes((1024, 1024)), 0.12)
        picture.text(x, 182, text)
    picture.text(20, 226, "Tensors of the found plan")
    x = 20.0
    for name in ("w1", "x1", "w2", "x2"):
        shape = graph.tensors[name].shape
        picture.tiles(x, 242, shape, plan.tilings[name].boxes(shape), 0.12)
        picture.text(x, 384, f"{name} {list(shape)}")
        picture.text(x, 402, str(plan.tilings[name]))
        x += 185
    return picture


def description() -> Picture:
    """What two workers read and make of a matrix product, cut along each of its index variables."""
    bound, graph = example().op("x2_op"), example().graph
    left, right, made = (*bound.op.inputs, *bound.op.outputs)
    picture = Picture("What each worker needs of a matrix product", 640, 560)
    picture.text(20, 24, f"{made}[m, n] = Sum over k of {left}[m, k] * {right}[k, n], cut in two along each variable")
    scale = 0.12
    for row, variable in enumerate(bound.variables):
        y = 60 + 170 * row
        ranges = bound.ranges(Tiling((Shard(row),), (2,)))
        reads = bound.reads(ranges)
        picture.text(20, y + 60, f"{variable.name}/2", size=16)
        for x, slot in ((90, 0), (260, 1)):
            shape = graph.tensors[bound.op.inputs[slot]].shape
            picture.tiles(x, y, shape, reads[slot].boxes, scale)
        shape = graph.tensors[made].shape
        picture.tiles(450, y, shape, _made(ranges, shape, bound.variables), scale)
        picture.text(90, y - 6, f"reads of {left}")
        picture.text(260, y - 6, f"reads of {right}")
        is_sum = variable.name == "k"
        picture.text(450, y - 6, f"makes of {made}" + (", as partial sums" if is_sum else ""))
    return picture


def _made(ranges: Boxes, shape: tuple[int, ...], variables: Sequence[object]) -> Boxes:
    """The boxes of an output whose dims are the first index variables, one for one."""
    assert len(variables) > len(shape), "the last variable is summed over"
    return Boxes(ranges.lo[:, : len(shape)], ranges.hi[:, : len(shape)])


def cost() -> Picture:
    """What plans of several strategies cost: moved bytes by tensor, and excess."""
    plans = example().plans
    picture = Picture("What four plans cost", 760, 230)
    most = max(plan.cost for plan in plans.values())
    width = 520.0
    for row, name in enumerate(SHOWN):
        y, x = 40 + 46 * row, 130.0
        picture.text(20, y + 18, name)
        parts = [(tensor, amount) for tensor, amount in plans[name].tensor_bytes.items() if amount]
        for tensor, amount in parts:
            length = width * amount / most
            picture.box(x, y, length, 26, COLOURS[0], PAPER)
            if length > 60:
                picture.text(x + length / 2, y + 17, tensor, anchor="middle", fill=PAPER)
            x += length
        length = width * plans[name].excess_bytes / most
        if length >= 1:
            picture.box(x, y, length, 26, COLOURS[1], PAPER)
            picture.text(x + length / 2, y + 17, "excess", anchor="middle", fill=PAPER)
            x += length
        picture.text(x + 6, y + 18, format_bytes(plans[name].cost))
    picture.text(20, 24, "Moved bytes by tensor (blue), and what repeated work costs (orange)")
    return picture


def search() -> Picture:
    """The tilings that four strategies choose, and what their plans cost."""
    plans, graph = example().plans, example().graph
    names = ("x0", "w1", "x1", "w2", "x2")
    picture = Picture("Tilings that four strategies choose", 860, 580)
    scale = 0.11
    for column, name in enumerate(names):
        picture.text(130 + 130 * column, 24, f"{name} {list(graph.tensors[name].shape)}")
    for row, strategy in enumerate(SHOWN):
        y = 40 + 135 * row
        picture.text(20, y + 20, strategy)
        picture.text(20, y + 40, format_bytes(plans[strategy].cost), size=14)
        for column, name in enumerate(names):
            shape, tiling = graph.tensors[name].shape, plans[strategy].tilings[name]
            picture.tiles(130 + 130 * column, y, shape, tiling.boxes(shape), scale)
            picture.text(130 + 130 * column, y + shape[0] * scale + 13, str(tiling), size=10)
    return picture


def program() -> Picture:
    """The steps of each worker and who waits for whom; and where the buffers of worker 0 lie in its arena."""
    workers = example().program.workers
    waits = data_waits(workers)
    picture = Picture("The program of the found plan", 900, 560)
    count = max(len(one.steps) for one in workers)
    wide = 820 / count

    def middle(worker: int, step: int) -> tuple[float, float]:
        return 60 + wide * (step + 0.5), 62 + 62 * worker

    picture.text(20, 24, "Steps of each worker, in order: segments compute, fetches (F) bring what they name")
    for one in workers:
        picture.chips(36, middle(one.worker, 0)[1], [one.worker])
        for number, counts in enumerate(waits[one.worker]):
            for other, done in counts.items():
                picture.line(*middle(other, done - 1), *middle(one.worker, number), COLOURS[other])
    for one in workers:
        for number, step in enumerate(one.steps):
            x, y = middle(one.worker, number)
            is_fetch = isinstance(step, Fetch)
            picture.box(x - wide * 0.45, y - 13, wide * 0.9, 26, PAPER if is_fetch else PALE, COLOURS[one.worker])
            said = f"F {step.target}" if is_fetch else step.name
            picture.text(x, y + 4, said, anchor="middle", size=10)
    mine = workers[0]
    assert mine.arena is not None, "the partitioner places buffers"
    top, high = 320, 210
    picture.text(20, top - 8, f"The arena of worker 0, {format_bytes(mine.arena.size_bytes)}: what lies where, when")
    begins, ends = writers(mine), _last_needed(workers)
    for name, buffer in mine.buffers.items():
        first, last = begins[name], ends[name]
        x0 = 60 + wide * max(0, first - 1)
        y0 = top + high * mine.arena.offsets[name] / mine.arena.size_bytes
        tall = high * buffer.size_bytes / mine.arena.size_bytes
        picture.box(x0, y0, 60 + wide * last - x0, tall, PALE)
        if tall > 8:
            picture.text(x0 + 4, y0 + min(tall - 2, 12), name, size=9)
    return picture


def _last_needed(workers: Sequence[WorkerProgram]) -> dict[str, int]:
    """By buffer of worker 0 the number of the last step of any worker that needs it, from 1; outputs: of all steps."""
    mine, remote = workers[0], remote_readers(workers)[0]
    last = dict(last_local_reads(mine))
    for name in mine.buffers:
        last[name] = max(last.get(name, 0), writers(mine)[name], *remote.get(name, {0: 0}).values())
    return last | dict.fromkeys(mine.collected, len(mine.steps))


def run() -> Picture:
    """Of each fetch the bytes that the plan predicts (outline) and those that the transport counts (filled)."""
    result = executed()
    names = list(dict.fromkeys(one.fetch for one in result.fetches))
    picture = Picture("Predicted and counted bytes of each fetch", 760, 80 + 40 * len(names))
    most = max(max(one.predicted_bytes, one.moved_bytes) for one in result.fetches)
    picture.text(20, 24, "Bytes that each worker's fetches were predicted to take (outline) and took (filled)")
    for one in result.fetches:
        x, y = 160 + 145 * one.worker, 64 + 40 * names.index(one.fetch)
        picture.box(x, y, 130 * one.predicted_bytes / most, 22, PAPER)
        picture.box(x + 2, y + 2, max(0.0, 130 * one.moved_bytes / most - 4), 18, COLOURS[one.worker], PAPER)
        picture.text(x + 6, y + 15, f"{one.moved_bytes:,}", size=10, fill=PAPER)
    for row, name in enumerate(names):
        picture.text(20, 80 + 40 * row, name)
    for worker in range(WORKERS):
        picture.chips(160 + 145 * worker + 65, 48, [worker])
    return picture


def plan() -> str:
    """The README's plan, as `tofu report` draws it."""
    with tempfile.TemporaryDirectory() as folder:
        model, target, picture = (Path(folder) / name for name in ("model.onnx", "plan", "plan.svg"))
        planner.zoo("mlp-4x8192", output=model)
        planner.plan(model, gpus=8, out=target)
        planner.report(target, svg=picture)
        return picture.read_text()


DRAWN: Final[Mapping[str, Callable[[], Picture | str]]] = MappingProxyType(
    {
        "representation": representation,
        "description": description,
        "cost": cost,
        "search": search,
        "program": program,
        "run": run,
        "plan": plan,
    }
)
"""By name, a picture."""

if __name__ == "__main__":
    PICTURES.mkdir(exist_ok=True)
    for page, draw in DRAWN.items():
        (PICTURES / f"{page}.svg").write_text(str(draw()))
        print(PICTURES / f"{page}.svg")
