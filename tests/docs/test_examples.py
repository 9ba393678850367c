"""The numbers in the examples of the pages are those that the planner computes."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from page_example import BATCH, WIDTH, WORKERS, Example, example, executed
from planner import opdefs
from planner.algebra.tiling import Shard, Tiling
from planner.artifacts.program import Fetch, Segment
from planner.graph.core.model import DType, Graph, Op, Tensor
from planner.search.decide import decide
from planner.search.request import SearchRequest

DOCS = Path(__file__).parents[2] / "docs"
ITEM = DType.FLOAT32.item_bytes
_NUMBER = re.compile(r"(?<![\w.])\d{1,3}(?:,\d{3})+(?![\w])")


@pytest.fixture(scope="module")
def shown() -> Example:
    return example()


def section(page: str, title: str) -> str:
    """The text of one section of a page."""
    found = re.search(rf"^## {re.escape(title)}\n(.*?)(?=^## |\Z)", (DOCS / page).read_text(), re.MULTILINE | re.DOTALL)
    assert found is not None, f"{page} has no section {title!r}"
    return found[1]


def same(page: str, title: str, computed: set[int]) -> None:
    """Every number from a thousand on in the section is a computed one, and every computed one stands there."""
    said = {int(number.replace(",", "")) for number in _NUMBER.findall(section(page, title))}
    assert said == computed, f"{page}: only in the text {said - computed}, only computed {computed - said}"


def test_a_stale_number_is_found() -> None:
    with pytest.raises(AssertionError, match="only in the text"):
        same("architecture.md", "Example", {1_048_576})


def test_architecture(shown: Example) -> None:
    plan, tensors = shown.plan, shown.graph.tensors
    text = section("architecture.md", "Example")
    for name in ("w1", "x1"):
        assert f"holds `{name}` as `{plan.tilings[name]}`" in text
    assert tensors["w1"].shape == (WIDTH, WIDTH)
    assert tensors["x1"].shape == (BATCH, WIDTH)
    tile = plan.tilings["w1"].boxes(tensors["w1"].shape).elements
    half = plan.tilings["x1"].boxes(tensors["x1"].shape).elements
    quarter = tensors["x1"].elements // WORKERS
    assert set(tile.tolist()) == {WIDTH * WIDTH // WORKERS}
    assert plan.tensor_bytes["x1"] == WORKERS * (int(half[0]) - quarter) * ITEM
    tiles = {int(tile[0]) * ITEM, int(half[0]) * ITEM, quarter * ITEM, plan.tensor_bytes["x1"]}
    same("architecture.md", "Example", {*tiles, *strategies(shown, text), *programs(shown, text)})


def strategies(shown: Example, text: str) -> set[int]:
    """The bytes in the table of the strategies of a product."""
    bound, amounts = shown.op("x2_op"), set()
    assert [variable.name for variable in bound.variables] == ["m", "n", "k"]
    for number, variable in enumerate(bound.variables):
        ranges = bound.ranges(Tiling((Shard(number),), (2,)))
        reads = bound.reads(ranges)
        left, right = (int(reads[slot].boxes.elements[0]) * ITEM for slot in (0, 1))
        made = int(np.prod((ranges.hi - ranges.lo)[0, :2])) * ITEM
        partial = ", a partial sum" if variable.name == "k" else ""
        assert f"| `{variable.name}/2` | {left:,} | {right:,} | {made:,}{partial} |" in text
        amounts |= {left, right, made}
    return amounts


def programs(shown: Example, text: str) -> set[int]:
    """The bytes of the program, and of its run."""
    workers = shown.program.workers
    first = workers[0]
    assert first.arena is not None
    segments = {sum(isinstance(step, Segment) for step in worker.steps) for worker in workers}
    fetches = [[step for step in worker.steps if isinstance(step, Fetch)] for worker in workers]
    assert f"each of {len(workers)} workers {segments.pop()} segments and {len(fetches[0])} fetches" in text
    assert not segments, "all workers have as many"
    assert [fetch.target for fetch in fetches[0]] == ["x1", "x2@reduced", "x2", "x1.grad"]
    assert f"All {sum(map(len, fetches))} fetches" in text
    offsets = first.arena.offsets
    assert offsets["w1.next"] == offsets["w1"]
    side_by_side = sum(buffer.size_bytes for buffer in first.buffers.values())
    brought = {fetch.predicted_bytes for worker in fetches for fetch in worker}
    return {*brought, shown.program.predicted_bytes, side_by_side, first.arena.size_bytes}


def test_search(shown: Example) -> None:
    data, found = shown.plans["data"], shown.plan
    weight = WIDTH * WIDTH * ITEM
    gradient = 2 * (WORKERS - 1) * weight
    assert data.tensor_bytes["w1.grad"] == data.tensor_bytes["w2.grad"] == gradient
    scaled, subtracted = 2 * weight, 3 * weight
    rate = round(data.rates.touched_bytes)
    repeated = (WORKERS - 1) * 2 * (scaled + subtracted) // rate
    # Reading the learning rate, 4 bytes on each worker, is rounded op by op.
    assert data.excess_bytes == data.repeated_bytes == repeated + 4
    assert data.moved_bytes == 2 * gradient
    text = section("search.md", "Example")
    for name, row in (
        ("data", "data parallelism"),
        ("tofu-recursion", "Tofu's recursion"),
        ("model", "model parallelism"),
        ("tofu", "tofu's plan, gap 0%"),
    ):
        assert f"| {row} | {shown.plans[name].cost:,} |" in text
    work = {scaled, scaled // rate, subtracted, subtracted // rate, repeated}
    same("search.md", "Example", {weight, gradient, 2 * gradient, *work, *(plan.cost for plan in shown.plans.values())})
    assert found.certified_gap == 0
    moving = {name for name, amount in found.tensor_bytes.items() if amount}
    assert moving == {"x1", "x2", "x1.grad"}, "only activations move"
    assert set(found.tilings["x0"].boxes((BATCH, WIDTH)).elements.tolist()) == {BATCH * WIDTH}, "x0 is replicated"


def test_a_matrix_product_whose_matrices_lie_within_the_groups_that_need_them() -> None:
    size, workers = 4096, 8
    graph = Graph(
        name="product",
        tensors={name: Tensor(name, (size, size), DType.FLOAT32) for name in "abc"},
        ops=(Op("product", "MatMul", ("a", "b"), ("c",), ()),),
        inputs=("a", "b"),
        outputs=("c",),
        constants={},
    )
    ops = opdefs.standard().bind_all(graph)
    plan = decide(graph, ops, SearchRequest(workers, partitioned_inputs=True))
    assert plan.certified_gap == 0
    assert sorted(plan.strategies["product"].tiling.dims) == [0, 1, 2], "cut once along m, n and k"
    ranges = ops[0].ranges(plan.strategies["product"].tiling)
    needed = [*(read.boxes.elements for read in ops[0].reads(ranges).values())]
    needed.append(np.prod((ranges.hi - ranges.lo)[:, :2], axis=1))
    owned = size * size // workers
    within = [int((boxes - owned).sum()) * ITEM for boxes in needed]
    assert len(within) == 3
    assert len(set(within)) == 1, "each matrix moves as much"
    assert set(plan.tensor_bytes.values()) == {within[0]}
    plain = decide(graph, ops, SearchRequest(workers, strategy="soybean", partitioned_inputs=True))
    assert not any(tiling.is_nested for tiling in plain.tilings.values())
    same(
        "search.md",
        "Bound",
        {within[0], sum(within), max(plain.tensor_bytes.values()), plain.cost},
    )


def test_run(shown: Example) -> None:
    result = executed()
    assert result.predicted_bytes == shown.program.predicted_bytes, "the command plans what the pages tell of"
    assert result.verified
    assert len(result.fetches) == 16
    assert result.moved_bytes == result.predicted_bytes
    assert [fetch.moved_bytes for fetch in result.fetches] == [fetch.predicted_bytes for fetch in result.fetches]
    assert len(result.comparisons[0].tensors) == 3
