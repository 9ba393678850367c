"""Every table of a plan as text, at 80 and 120 columns; its numbers are those of ``--json``; names do no harm."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import replace
from io import StringIO
from pathlib import Path

import pytest

from planner import api
from planner.features.compare.result import Comparison
from planner.features.compare.table import print_comparison
from planner.features.zoo.models import build
from planner.graph.core.model import Graph, StatePair
from planner.graph.files.to_onnx import write_model
from planner.records import plain_record
from planner.results import Explanation, PlanResult
from planner.units import ByteUnit, format_bytes

EVIL = ["[red]x[/red]", "\x1b[31mW", "<script>alert(1)</script>"]


class Terminal(StringIO):
    """A terminal, as far as a report asks."""

    def isatty(self) -> bool:
        return True


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the plan, of two layers on four workers of a machine, and its model lie."""
    return tmp_path_factory.mktemp("tables")


@pytest.fixture(scope="module")
def planned(folder: Path) -> PlanResult:
    """The plan, without the times that differ from run to run."""
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        write_model(build("mlp-2x24", batch=36), Path("m.onnx"))
        found = api.plan(
            Path("m.onnx"),
            topology="p2.8xlarge",
            gpus=4,
            effort="quick",
            objective="bytes",
            memory="64KiB",
            out=Path("plan"),
        )
    return replace(found, search_seconds=1.0, total_seconds=2.0, another_effort=None)


@pytest.fixture(scope="module")
def compared(folder: Path, planned: PlanResult) -> Comparison:
    """Every strategy on the same machine."""
    return api.compare(folder / "m.onnx", topology="p2.8xlarge", gpus=4)


@pytest.fixture
def show(
    folder: Path, planned: PlanResult, compared: Comparison, monkeypatch: pytest.MonkeyPatch
) -> Callable[[str, int], str]:
    """Renders one of the tables, at so many columns."""
    monkeypatch.chdir(folder)
    explained: dict[str, Callable[[], Explanation]] = {
        "brief": lambda: api.explain(Path("plan")),
        "all": lambda: api.explain(Path("plan"), every=True),
        "tensor": lambda: api.explain(Path("plan"), subject="w1", runners_up=3),
        "op": lambda: api.explain(Path("plan"), subject="x1_op", runners_up=3),
        "pattern": lambda: api.explain(Path("plan"), subject="w*", sort="moved"),
    }

    def render(what: str, columns: int) -> str:
        monkeypatch.setenv("COLUMNS", str(columns))
        out = Terminal()
        if what == "plan":
            api.show(planned, out)
        elif what == "compare":
            print_comparison(compared, out)
        else:
            api.show(explained[what](), out)
        return re.sub("\x1b\\[[0-9;]*m", "", out.getvalue())  # heads are bold

    return render


@pytest.mark.parametrize("columns", [80, 120])
@pytest.mark.parametrize("what", ["plan", "compare", "brief", "all", "tensor", "op", "pattern"])
def test_tables_are_as_they_were_and_fit(
    what: str, columns: int, show: Callable[[str, int], str], golden: Callable[[str, str], None]
) -> None:
    text = show(what, columns)
    assert max(map(len, text.splitlines())) <= columns
    golden(f"{what}.{columns}.txt", text)


def test_a_pipe_gets_tables_that_fit_a_page(
    planned: PlanResult, compared: Comparison, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """But for names, which are whole; who wants all columns says how many there are."""
    monkeypatch.delenv("COLUMNS", raising=False)
    out = StringIO()
    print_comparison(compared, out)
    api.show(api.explain(folder / "plan", bounds=True), out)
    assert max(map(len, out.getvalue().splitlines())) <= 80
    assert "as SoyBean counts" not in out.getvalue()
    monkeypatch.setenv("COLUMNS", "240")
    print_comparison(compared, out)
    assert "as SoyBean counts" in out.getvalue()


def test_numbers_are_those_of_json(planned: PlanResult, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    out = StringIO()
    api.show(planned, out)
    summary = plain_record(planned)["summary"]
    text = " ".join(out.getvalue().split())
    memory = [format_bytes(summary[way]["memory_bytes"], ByteUnit.BINARY) for way in ("one_device", "data_parallel")]
    assert f"memory per worker {' '.join(memory)} {format_bytes(max(planned.plan.peak_bytes), ByteUnit.BINARY)}" in text
    moved = [format_bytes(summary[way]["moved_bytes"]) for way in ("one_device", "data_parallel", "this_plan")]
    assert f"moved per step {' '.join(moved)}" in text
    for cause in summary["causes"][:2]:
        assert f"{format_bytes(cause['cost_bytes'])} " in text
        assert cause["reason"] in text
    found = api.explain(Path("plan"))
    told = json.loads(json.dumps(plain_record(found)))
    assert sum(cause["cost_bytes"] for cause in told["causes"]) == planned.plan.cost
    assert sum(row["moved_bytes"] for row in told["tensors"]) == planned.plan.moved_bytes
    answer = plain_record(api.explain(Path("plan"), subject="w1", runners_up=3))["why"]
    out = StringIO()
    api.show(api.explain(Path("plan"), subject="w1", runners_up=3), out)
    assert (
        answer["moved_bytes"] == planned.plan.tensor_bytes["w1"] == sum(d["moved_bytes"] for d in answer["deliveries"])
    )
    for other in answer["runners_up"]:
        assert other["more_bytes"] == other["cost_bytes"] - planned.plan.cost
        assert format_bytes(abs(other["more_bytes"])) in out.getvalue()


@pytest.mark.parametrize("name", EVIL)
def test_names_do_no_harm(name: str, tmp_path: Path) -> None:
    write_model(_called(build("mlp-2x24", batch=36), "w1", name), tmp_path / "m.onnx")
    result = api.plan(tmp_path / "m.onnx", gpus=2, effort="quick", out=tmp_path / "plan")
    for found in (
        api.explain(tmp_path / "plan"),
        api.explain(tmp_path / "plan", every=True),
        api.explain(tmp_path / "plan", subject=name, runners_up=2),
    ):
        out = StringIO()
        api.show(result, out)
        api.show(found, out)
        assert "\x1b" not in out.getvalue()
    assert name.replace("\x1b", "\\x1b") in out.getvalue()


def _called(graph: Graph, old: str, new: str) -> Graph:
    """The graph with another name of one tensor."""

    def of(names: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(new if name == old else name for name in names)

    return replace(
        graph,
        tensors={of((name,))[0]: replace(one, name=of((name,))[0]) for name, one in graph.tensors.items()},
        ops=tuple(replace(op, inputs=of(op.inputs), outputs=of(op.outputs)) for op in graph.ops),
        inputs=of(graph.inputs),
        state=tuple(StatePair(of((pair.current,))[0], pair.following) for pair in graph.state),
        notes={},
    )
