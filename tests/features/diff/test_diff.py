"""`tofu diff` on plans of one model, of two versions of it, and of what cannot be compared."""

from __future__ import annotations

import hashlib
import json
import re
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from planner import api
from planner.commands import main as cli
from planner.features.diff.difference import Difference
from planner.features.zoo.models import build
from planner.graph.core.model import DType, Graph, Op, Tensor
from planner.graph.core.patterns import pattern
from planner.graph.files.to_onnx import write_model

Renamed = Callable[[Graph, int], tuple[Graph, dict[str, str]]]
Planned = Callable[..., Path]


@pytest.fixture(scope="module")
def planned(tmp_path_factory: pytest.TempPathFactory) -> Planned:
    """Plans a graph, once for each name."""
    folder = tmp_path_factory.mktemp("plans")

    def plan(name: str, graph: Graph, gpus: int = 4, strategy: str = "tofu") -> Path:
        directory = folder / name
        if not directory.exists():
            write_model(graph, folder / f"{name}.onnx")
            api.plan(folder / f"{name}.onnx", gpus=gpus, out=directory, strategy=strategy)
        return directory

    return plan


def found(a: Path, b: Path) -> Difference:
    """The difference of two plans, which adds up to that of their totals."""
    result = api.diff(a, b)
    assert result.knows_excess
    first, second = result.plans
    assert sum(change.added_bytes for change in result.tensors) == second.moved_bytes - first.moved_bytes
    assert sum(change.added_bytes for change in result.ops) == second.excess_bytes - first.excess_bytes
    return result


def mlp(planned: Planned, **options: object) -> Path:
    name = "".join(f"-{value}" for value in options.values())
    return planned(f"mlp{name}", build("mlp-3x24", batch=64), **options)


def test_a_plan_does_not_differ_from_itself(planned: Planned) -> None:
    plan = mlp(planned)
    assert found(plan, plan).is_none
    assert found(plan / "plan.json", plan).is_none


def test_strategies_of_one_model(planned: Planned) -> None:
    result = found(mlp(planned), mlp(planned, strategy="data"))
    assert result.matched_by == "names"
    assert result.tensors
    assert result.ops
    assert all(change.only_in is None for change in (*result.tensors, *result.ops))
    folded = [change for change in result.ops if change.count > 1]
    assert folded
    for change in folded:
        names = [name for name, _ in change.names if name is not None]
        assert "*" in pattern(names)
        assert names == [twin for _, twin in change.names]


def test_renamed_tensors_do_not_differ(planned: Planned, renamed: Renamed) -> None:
    graph = build("mlp-3x24", batch=64)
    copy, names = renamed(graph, 5)
    result = found(mlp(planned), planned("renamed", copy))
    assert result.matched_by == "places"
    assert result.is_none
    wider = found(planned("renamed", copy), planned("wider", build("mlp-3x48", batch=64)))
    assert wider.tensors
    for change in wider.tensors:
        assert all(name == names[str(twin)] for name, twin in change.names)
        assert change.a is not None
        assert change.b is not None
        assert change.a.shape != change.b.shape


def test_other_numbers_of_workers(planned: Planned) -> None:
    result = found(mlp(planned, gpus=2), mlp(planned))
    assert (result.plans[0].workers, result.plans[1].workers) == (2, 4)
    assert sum(change.count for change in result.tensors) == result.compared_tensors


def test_a_layer_more(planned: Planned) -> None:
    result = found(mlp(planned), planned("deeper", build("mlp-4x24", batch=64)))
    assert result.matched_by == "surroundings"
    only = {str(twin) for change in result.ops if change.only_in == "b" for _, twin in change.names}
    longer = {op.name for op in build("mlp-4x24", batch=64).ops}
    assert only == longer - {op.name for op in build("mlp-3x24", batch=64).ops}
    back = found(planned("deeper", build("mlp-4x24", batch=64)), mlp(planned))
    assert {change.only_in for change in back.tensors} == {None, "a"}


def test_an_op_of_another_type_is_only_in_each(planned: Planned) -> None:
    graph = build("mlp-3x24", batch=64)
    scaled = next(op for op in graph.ops if op.op_type == "Mul")
    ops: tuple[Op, ...] = tuple(replace(op, op_type="Div") if op is scaled else op for op in graph.ops)
    result = found(mlp(planned), planned("divided", replace(graph, ops=ops)))
    only = [(change.only_in, (change.a or change.b), change.names) for change in result.ops if change.only_in]
    assert [(where, side.op_type, names) for where, side, names in only if side] == [
        ("a", "Mul", ((scaled.name, None),)),
        ("b", "Div", ((None, scaled.name),)),
    ]
    assert not any(change.only_in for change in result.tensors)


def softmax(rows: int) -> Graph:
    shapes = {"x": (rows, 64), "w": (64, 256), "h": (rows, 256), "s": (rows, 256), "v": (256, 64), "y": (rows, 64)}
    return Graph(
        name="softmax",
        tensors={name: Tensor(name, shape, DType.FLOAT32) for name, shape in shapes.items()},
        ops=(
            Op("first", "MatMul", ("x", "w"), ("h",), ()),
            Op("soft", "Softmax", ("h",), ("s",), (("axis", 1),)),
            Op("second", "MatMul", ("s", "v"), ("y",), ()),
        ),
        inputs=("x", "w", "v"),
        outputs=("y",),
        constants={},
    )


def test_a_composite_through_its_body(planned: Planned) -> None:
    """The parts of the same composite are held against each other; a composite that is whole has none."""
    cut, smaller = planned("cut", softmax(2)), planned("smaller", softmax(1))
    assert not any(change.only_in for change in found(cut, smaller).ops)
    result = found(planned("whole", softmax(64), strategy="data"), cut)
    sides = {name: (change.a, change.b) for change in result.ops for name, _ in change.names if name}
    assert [side.strategy if side else None for side in sides["soft"]] == ["i0/2 i0/2", "through its body"]
    parts = [str(twin) for change in result.ops if change.only_in == "b" for _, twin in change.names]
    assert parts
    assert all(part.startswith("soft/") for part in parts)


@pytest.mark.parametrize("json_wanted", [False, True])
def test_a_difference_is_no_failure(json_wanted: bool, planned: Planned, capsys: pytest.CaptureFixture[str]) -> None:
    a, b = mlp(planned), mlp(planned, strategy="data")
    assert cli.main(["diff", str(a), str(b), *(["--json"] if json_wanted else [])]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    if json_wanted:
        assert json.loads(out)["schema_version"] == 1
    else:
        assert "tensors that differ" in out


def test_unrelated_models_are_refused(planned: Planned, capsys: pytest.CaptureFixture[str]) -> None:
    unrelated = planned("softmax", softmax(2))
    assert cli.main(["diff", str(mlp(planned)), str(unrelated)]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert "are plans of unrelated models\n" in err
    assert re.search(r"mlp: mlp\S*, 14 ops\n", err)
    assert "softmax: softmax, 3 ops" in err
    assert "0 ops are in both" in err
    assert "hint: " in err


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("nothing", "nothing does not exist\nhint: write a plan with `tofu plan`"),
        ("empty", "empty holds no plan\nhint: write one with `tofu plan`"),
        ("model.onnx", "model.onnx is no plan's folder, nor the plan.json in one\nhint: name the folder"),
        ("plan.json", "plan.json is no plan's folder, nor the plan.json in one\nhint: name the folder"),
    ],
)
def test_what_is_no_plan_is_refused(
    name: str, says: str, planned: Planned, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "model.onnx").write_bytes(b"")
    (tmp_path / "plan.json").write_text("{}")
    for line in ([mlp(planned), tmp_path / name], [tmp_path / name, mlp(planned)]):
        assert cli.main(["diff", *map(str, line)]) == 2
        out, err = capsys.readouterr()
        assert out == ""
        assert says in err


def test_a_changed_plan_is_refused(planned: Planned, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    plan = mlp(planned)
    copy = tmp_path / "copy"
    copy.mkdir()
    for file in plan.iterdir():
        (copy / file.name).write_bytes(file.read_bytes())
    (copy / "plan.json").write_text((copy / "plan.json").read_text().replace("S(0)", "S(1)"))
    assert cli.main(["diff", str(plan), str(copy)]) == 2
    assert "do not belong together" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("member", "value", "says"),
    [
        ("workers", 3, "workers does not agree with the plan's other members"),
        ("moved_bytes", 10**400, "not a number of at most 64 bits"),
        ("strategies", {}, "strategies does not agree with the plan's other members"),
        ("colour", "red", "colour does not agree with the plan's other members"),
    ],
)
def test_members_of_a_plan_agree(
    member: str, value: object, says: str, planned: Planned, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Under a digest that was written anew: nothing but the members themselves shows that one was changed."""
    plan, copy = mlp(planned), tmp_path / "copy"
    shutil.copytree(plan, copy)
    manifest = json.loads((copy / "manifest.json").read_text())
    edited = json.dumps({**json.loads((plan / "plan.json").read_text()), member: value})
    (copy / "plan.json").write_text(edited)
    stated = hashlib.sha256((plan / "plan.json").read_bytes()).hexdigest()
    fresh = json.dumps(manifest).replace(stated, hashlib.sha256(edited.encode()).hexdigest())
    (copy / "manifest.json").write_text(fresh)
    assert cli.main(["diff", str(plan), str(copy)]) == 2
    assert says in capsys.readouterr().err


def test_one_form_at_a_time(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main("diff a b --json --markdown".split()) == 2
    assert "--json and --markdown exclude each other" in capsys.readouterr().err
