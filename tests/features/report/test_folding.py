"""Equal blocks of a strip, folded."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from planner.features.report.page.folding import Block, block_name, folded


@given(st.lists(st.integers(0, 3), max_size=40))
def test_blocks_part_the_row_and_every_repetition_is_equal(row: list[int]) -> None:
    blocks = folded(row, [f"op{number}" for number in range(len(row))])
    assert [at for block in blocks for at in range(block.first, block.end)] == list(range(len(row)))
    for block in blocks:
        first = row[block.first : block.first + block.length]
        assert all(row[start : start + block.length] == first for start in block.starts())


@given(st.integers(1, 5), st.integers(2, 30))
def test_what_repeats_is_one_block(length: int, times: int) -> None:
    row = list(range(length)) * times
    (block,) = folded(row, ["a"] * len(row))
    assert block == Block(0, length, times)


def test_a_row_that_can_be_read_from_several_columns_on_is_read_as_names_say() -> None:
    # As a residual network: the first block has a shortcut, the last op of each block is like that of the first one.
    kinds = ["stem", "shortcut", "first", "mid", "out", *["in", "mid", "out"] * 4, "fc"]
    names = ["stem", *(f"block1.{part}" for part in ("shortcut", "in", "mid", "out"))]
    names += [f"block{number}.{part}" for number in range(2, 6) for part in ("in", "mid", "out")] + ["fc"]
    assert folded(kinds, names) == (Block(0, 1, 1), Block(1, 4, 1), Block(5, 3, 4), Block(17, 1, 1))


def test_a_block_is_called_what_its_names_have_in_common_with_the_last_number() -> None:
    assert block_name(["group3.block2.in.weight", "group3.block2.mid.weight"]) == "group3.block2"
    assert block_name(["encoder.layer.11.q", "encoder.layer.11.k"]) == "encoder.layer.11"
    assert block_name(["embedding.weight"]) == "embedding.weight"
    assert block_name(["a", "b"]) == "a", "nothing in common: the first"
