"""The table of all tilings: every tensor is in one row, and what is printed of it there is its tiling."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from io import StringIO
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner import api
from planner.api.explanation import explain
from planner.graph.core.model import Role
from planner.printing.console import ReportConsole
from planner.printing.tilings import tilings
from planner.results import Explanation, StateRow, TensorRow

MODELS = Path(__file__).parents[1] / "models"
ROW = TensorRow("", (4,), "float32", Role.ACTIVATION, "R/2", (4,), 0, "", ())
TILINGS = ("S(0)/2 R/2", "R/2 R/2", "S(1)/2 S(0)/2")


def told(text: str, rows: tuple[TensorRow, ...], state: tuple[StateRow, ...]) -> None:
    """Reads the printed table back, and holds every tensor against it."""
    current = {pair.following: pair.current for pair in state}
    by_name = {row.name: row for row in rows}
    left = {row.name for row in rows}
    for modules, kind, count, usual, others in parsed(text):
        members = [row for row in rows if fits(row.module, modules) and row.kind == kind]
        assert len(members) == count, (modules, kind)
        places = {row.module: numbers(row.module) for row in rows if fits(row.module, modules)}
        varying = [at for at, some in enumerate(zip(*places.values(), strict=True)) if len(set(some)) > 1]
        for row in members:
            shown = by_name[current.get(row.name, row.name)]
            place = [places[shown.module][at] for at in varying]
            found = {
                tiling
                for tiling, label, boxes in others
                if (not boxes or any(inside(place, box) for box in boxes)) and matches(shown, label)
            }
            assert found in ({shown.tiling}, set()), (shown, found)
            assert shown.tiling == row.tiling == next(iter(found), usual), (row, found)
            left.remove(row.name)
    assert not left


def parsed(text: str) -> Iterator[tuple[str, str, int, str, list[tuple[str, str, list[str]]]]]:
    """Rows: modules, kind, count, the usual tiling, and by other tiling each label with its places."""
    table = text[text.index("tilings of all ") :].split("\n\n")[0].replace("\n      ", " ")
    for section in re.split(r"\n(?=[^ (])", table)[1:]:
        head, *lines = section.splitlines()
        modules = re.sub(r"  \([0-9]+ modules\)$", "", head)
        for line in lines:
            row = re.fullmatch(r"  (\w+) +([0-9,]+)  (.*)", line)
            assert row is not None, line
            usual, *others = row[3].split("; ")
            entries = []
            for other in others:
                tiling, _, parts = other.partition(": ")
                for part in parts.split(" and "):
                    names, _, places = part.partition(" in ")
                    entries += [
                        (tiling, label, places.split())
                        for name in re.split(r", (?![^{]*\})", names)
                        for label in expanded(name)
                    ]
            yield "" if modules == "the whole model" else modules, row[1], int(row[2].replace(",", "")), usual, entries


def expanded(name: str) -> list[str]:
    """What a name with braces stands for."""
    group = re.search(r"\{([^{}]*)\}", name)
    if group is None:
        return [name]
    ends: list[str] = []
    for part in re.split(r",\s*", group[1]):
        span = re.fullmatch(r"([0-9]+)-([0-9]+)", part)
        ends += map(str, range(int(span[1]), int(span[2]) + 1)) if span else [part]
    return [one for end in ends for one in expanded(name[: group.start()] + end + name[group.end() :])]


def fits(module: str, modules: str) -> bool:
    return re.fullmatch(re.escape(modules).replace(r"\*", "[0-9]+"), module) is not None


def matches(row: TensorRow, label: str) -> bool:
    inner = re.sub(rf"(?<![^./]){re.escape(row.module)}(?=[./])", "~", row.name, count=1) if row.module else row.name
    form = re.sub(r"(?<=\.)\\\*$", ".*", re.escape(label)).replace(r"\*", "[0-9]+").replace("…", "[^.]*")
    return any(re.fullmatch(form, name) for name in (row.name, re.sub(r"^~[./]", "", inner)))


def numbers(name: str) -> tuple[int, ...]:
    return tuple(map(int, re.findall("[0-9]+", name)))


def inside(place: list[int], box: str) -> bool:
    ranges = [re.fullmatch(r"([0-9]+)(?:-([0-9]+))?", part) for part in box.split(".")]
    return len(place) == len(ranges) and all(
        one is not None and int(one[1]) <= number <= int(one[2] or one[1])
        for number, one in zip(place, ranges, strict=True)
    )


def printed(rows: tuple[TensorRow, ...], state: tuple[StateRow, ...] = ()) -> str:
    out = StringIO()
    tilings(ReportConsole(out), rows, state)
    return out.getvalue()


NAMES = st.sampled_from(
    ["attention.query.weight", "attention.query.bias", "attention.key.weight", "norm.weight", "norm1.weight", "norm2.y"]
)
FLAT = st.sampled_from(["conv2d_{}", "relu_{}", "node__native_batch_norm_legit_{}__0.sum", "node__native_batch_{}.y"])


@st.composite
def rows_of_modules(draw: st.DrawFn) -> tuple[TensorRow, ...]:
    """Tensors of layers, some of them named after these, and some by numbers of their own."""
    found = {}
    number = 0
    for layer in range(draw(st.integers(1, 5))):
        for part in draw(st.sampled_from([("",), (".mlp.0", ".mlp.1")])):
            module = f"m.layer.{layer}{part}"
            inner = [f"{module}.{name}" for name in draw(st.lists(NAMES, max_size=4))]
            for form in draw(st.lists(FLAT, max_size=4)):
                number += 1
                inner.append(form.format(number))
            for name in inner:
                kind = draw(st.sampled_from(["weights", "activations"]))
                tiling = draw(st.sampled_from(TILINGS))
                found[name] = replace(ROW, name=name, module=module, kind=kind, tiling=tiling)
    found["x"] = replace(ROW, name="x", kind="data")
    return tuple(found.values())


@given(rows_of_modules())
def test_what_is_printed_gives_every_tensor_its_tiling(rows: tuple[TensorRow, ...]) -> None:
    told(printed(rows), rows, ())


def test_equal_layers_are_one_and_others_are_named() -> None:
    rows = tuple(
        replace(ROW, name=f"h.{layer}.{name}", module=f"h.{layer}", kind="weights", tiling=TILINGS[name == "b"])
        for layer in range(3)
        for name in ("w", "b")
    )
    one = replace(rows[0], tiling=TILINGS[2])
    text = printed((one, *rows[1:]))
    assert "\nh.*  (3 modules)\n  weights         6  R/2 R/2; S(0)/2 R/2: w in 1-2; S(1)/2 S(0)/2: w in 0\n" in text
    told(text, (one, *rows[1:]), ())


def test_a_long_name_is_not_shortened_to_what_a_numbered_one_begins_with() -> None:
    form = "node__native_batch_norm_legit_{}__0.sum"
    names = [("m.0", 2), ("m.0", 3), ("m.1", 20), ("m.2", 21)]
    rows = tuple(
        replace(ROW, name=form.format(number), module=module, kind="weights", tiling=TILINGS[number == 2])
        for module, number in names
    )
    text = printed(rows)
    assert "R/2 R/2: node__native_batch_norm_legit_2__0.sum" in " ".join(text.split())
    told(text, rows, ())


def shown(result: Explanation) -> list[str]:
    out = StringIO()
    api.show(result, out)
    told(out.getvalue(), result.tensors, result.state)
    return out.getvalue().splitlines()


def test_a_small_plan_is_told_whole(tmp_path: Path) -> None:
    api.zoo("gpt-1x64-2h", batch=4, output=tmp_path / "m.onnx")
    api.plan(tmp_path / "m.onnx", gpus=2, effort="quick", models=False, out=tmp_path / "plan")
    lines = shown(explain(tmp_path / "plan"))
    assert any(line.startswith("block1") for line in lines)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "most"), [("resnet50", 120), ("bert", 70), ("llama3-8b", 60)])
def test_the_first_screen_answers_and_all_tensors_are_few_lines(
    name: str, most: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In lines as a pipe has them."""
    monkeypatch.delenv("COLUMNS", raising=False)
    train = tmp_path / "train.onnx"
    if name == "llama3-8b":
        api.zoo(name, output=train)
    else:
        settings = {"loss": "softmax_cross_entropy", "optimizer": "momentum", "lr": 0.05, "batch": 8}
        api.grad(MODELS / f"{name}.raw.onnx", output=train, **settings)
    gpus, effort = (4, "normal") if name == "bert" else (8, "quick")
    api.plan(train, gpus=gpus, effort=effort, models=False, out=tmp_path / "plan")
    result = explain(tmp_path / "plan")
    lines = shown(result)
    assert len(lines) <= most
    screen = lines.index(next(line for line in lines if line.startswith("tilings of all ")))
    assert screen <= 40
    assert any(line.startswith("largest costs of ") for line in lines[:screen])
    assert {row.kind for row in result.tensors} == {"data", "weights", "activations", "gradients", "state"}
