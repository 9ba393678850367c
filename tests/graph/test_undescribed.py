"""The error about operators without a description, and the file that it proposes."""

from __future__ import annotations

from pathlib import Path

import pytest

from planner import opdefs
from planner.graph.core.model import Op
from planner.graph.folding.undescribed import skeleton, undescribed_error


def ops(count: int, op_type: str = "MyConv", domain: str = "my.domain") -> list[Op]:
    return [Op(f"conv{number}", op_type, ("x", "w"), ("y",), (), domain) for number in range(count)]


def test_operators_ops_and_counts() -> None:
    error = undescribed_error([*ops(10), Op("loop", "Loop", ("x",), ("y",))], {("", "Loop"): "control flow"}, ["more"])
    assert error.what == "2 operators of the model have no description"
    assert error.facts == (
        "Loop: 1 op: 'loop' (control flow)",
        "my.domain.MyConv: 10 ops: 'conv0', 'conv1', 'conv2', 'conv3', 'conv4', 'conv5', 'conv6', 'conv7' and 2 more",
        "more",
    )
    assert '@op("MyConv", domain="my.domain")' in error.hint
    assert "--opdefs my_ops.py" in error.hint
    assert "--unknown-ops replicate" in error.hint
    assert "Loop" not in error.hint


def test_one_operator_is_named_at_once() -> None:
    assert undescribed_error(ops(1)).what == "operator my.domain.MyConv of the model has no description"


@pytest.mark.parametrize(
    "group",
    [
        ops(2),
        [Op("a", "Odd", ("x", "", "w"), ("y", "z"), (), "d"), Op("b", "Odd", ("x",), ("y",), (), "d")],
        [Op("a", "None", (), ("y",), (), "d")],
        [Op("a", 'We"ird\n\\name', ("x",), ("y",), (), 'do"main')],
        [Op("a", "3D", ("x",) * 30, ("y",), (), "d"), Op("b", "op", ("x",), ("y",), (), "d")],
    ],
    ids=["plain", "optional inputs", "no inputs", "odd names", "many inputs"],
)
def test_the_skeleton_describes_every_operator(tmp_path: Path, group: list[Op]) -> None:
    groups: dict[tuple[str, str], list[Op]] = {}
    for op in group:
        groups.setdefault((op.domain, op.op_type), []).append(op)
    file = tmp_path / "my_ops.py"
    file.write_text(skeleton(groups))
    mine = opdefs.load_file(file)
    assert {(found.domain, name) for found in mine.descriptions for name in found.op_types} == set(groups)
