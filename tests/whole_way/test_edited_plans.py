"""Nobody's edit of a plan's files is run as if it were the plan: refused, caught, or without effect."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from onnx import ModelProto

import edited_plans
from fast_suite import draws
from planner import api
from planner.artifacts.place import MANIFEST, PLAN
from planner.errors import ModelError


def judged(where: Path, seed: int, count: int, *, in_process: bool) -> Counter[str]:
    found: Counter[str] = Counter()
    wrong = []
    for one in edited_plans.outcomes(where, seed, count, in_process=in_process):
        found[one.verdict] += 1
        if not one.is_sound:
            wrong.append(one)
    print(edited_plans.summary(seed, found))
    assert not wrong, edited_plans.summary(seed, found)
    # What is drawn depends on the graph: some edits are refused and some run. That a run catches one has its own test.
    assert "refused" in found
    assert len(found) > 1
    return found


@pytest.mark.slow
def test_some_edits(tmp_path: Path) -> None:
    assert sum(judged(tmp_path, 4, 25, in_process=True).values()) == 25


@pytest.mark.parametrize("count", draws(20, 200))
def test_many_edits(tmp_path: Path, count: int) -> None:
    """As users run plans: the workers in a child process."""
    assert sum(judged(tmp_path, 0, count, in_process=False).values()) == count


@pytest.fixture(scope="module")
def plans(tmp_path_factory: pytest.TempPathFactory) -> tuple[edited_plans.Original, ...]:
    return edited_plans.originals(tmp_path_factory.mktemp("plans"))


def changed(
    original: edited_plans.Original, target: Path, file: str, change: Callable[[Any], None]
) -> edited_plans.Outcome:
    """A copy with one file changed, run in a child process."""
    shutil.copytree(original.folder, target)
    if file.endswith(".onnx"):
        model = ModelProto.FromString((target / file).read_bytes())
        change(model)
        (target / file).write_bytes(model.SerializeToString())
    else:
        data = json.loads((target / file).read_text())
        change(data)
        (target / file).write_text(json.dumps(data))
    edited_plans.mend(target, mends_plan=file == PLAN)
    return edited_plans.outcome(original, target, file, in_process=False)


def test_a_function_that_one_worker_alone_has_otherwise_is_what_it_executes(
    plans: tuple[edited_plans.Original, ...], tmp_path: Path
) -> None:
    """Worker 0 has the right function of the same name."""

    def subtract(model: ModelProto) -> None:
        update = next(f for f in model.functions if [node.op_type for node in f.node].count("Sub") > 0)
        next(node for node in update.node if node.op_type == "Sub").op_type = "Add"

    found = changed(plans[0], tmp_path / "edited", "worker1.onnx", subtract)
    assert found.verdict == "caught"


@pytest.mark.parametrize(
    ("file", "change", "said"),
    [
        (MANIFEST, lambda data: data["outputs"].pop(), "the manifest's outputs are not the model's: 'updates.next'"),
        (MANIFEST, lambda data: data["inputs"].append("z"), "the manifest's inputs are not the model's: 'z'"),
        (MANIFEST, lambda data: data["outputs"].append(["x"]), "outputs[15] is a list, not a text"),
        (MANIFEST, lambda data: data["state"].append(["w0"]), "state[13] is no pair of a state and its next value"),
        (MANIFEST, lambda data: data.pop("files"), "it lacks 'files'"),
        (PLAN, lambda data: data["cuts"].append("x"), 'cuts[1] is a text ("x"), not a whole number'),
        (PLAN, lambda data: data["peak_bytes"].pop(), "states the memory of 1 workers, and has 2"),
        (PLAN, lambda data: data.update(moved_bytes=17), "the plan states 17 bytes moved, and its worker models move"),
        (PLAN, lambda data: data["tilings"].update(x="S(0)/7"), "tiling 'S(0)/7' does not fit the cuts"),
        (PLAN, lambda data: data["tensor_bytes"].pop("x"), "tensor_bytes lacks 'x'"),
        (PLAN, lambda data: data["tilings"].update(x=7), "tilings.x is a number (7), not a text"),
    ],
)
def test_what_is_wrong_is_named(
    plans: tuple[edited_plans.Original, ...], tmp_path: Path, file: str, change: Callable[[Any], None], said: str
) -> None:
    found = changed(plans[0], tmp_path / "edited", file, change)
    assert found.verdict == "refused"
    assert said in found.said


def test_states_that_changed_places_are_refused(plans: tuple[edited_plans.Original, ...], tmp_path: Path) -> None:
    """Whole model and workers would agree on them, since both are told by the manifest."""

    def swap(data: Any) -> None:
        pairs = {pair[0]: pair for pair in data["state"]}
        pairs["w0"][1], pairs["w1"][1] = pairs["w1"][1], pairs["w0"][1]

    found = changed(plans[0], tmp_path / "edited", MANIFEST, swap)
    assert found.verdict == "refused"
    assert "the manifest's state are not the model's: 'w0 -> w1.next'" in found.said


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda notes: notes["tofu.arena"]["offsets"].update(x=1 << 40), "buffer 'x' does not lie in the arena"),
        (lambda notes: notes["tofu.arena"]["offsets"].pop("x"), "buffer 'x' has no place in the arena"),
        (lambda notes: notes["tofu.buffers"]["x"].__setitem__(1, [6, 1]), "cannot hold the region"),
        (lambda notes: notes["tofu.buffers"]["x"].__setitem__(0, "z"), "'x' is of 'z', which is no input"),
        (lambda notes: notes["tofu.segments"].update({"segment 0": [None]}), "segment 0[0] is null, not a text"),
        (lambda notes: notes.update({"tofu.buffers": "x"}), 'tofu.buffers: it is a text ("x"), not an object'),
    ],
)
def test_what_is_wrong_in_a_worker_model_is_named(
    plans: tuple[edited_plans.Original, ...], tmp_path: Path, change: Callable[[Any], None], said: str
) -> None:
    def edit(model: ModelProto) -> None:
        notes = {entry.key: entry.value for entry in model.metadata_props if entry.key != "tofu.plan"}
        parsed = {key: json.loads(value) for key, value in notes.items()}
        change(parsed)
        for entry in model.metadata_props:
            if entry.key in parsed:
                entry.value = json.dumps(parsed[entry.key])

    found = changed(plans[0], tmp_path / "edited", "worker1.onnx", edit)
    assert found.verdict == "refused"
    assert said in found.said


def test_a_plan_that_says_nothing_of_an_op_is_not_explained(
    plans: tuple[edited_plans.Original, ...], tmp_path: Path
) -> None:
    target = tmp_path / "edited"
    changed(plans[0], target, PLAN, lambda data: [data[of].pop("h0_op") for of in ("iteration_spaces", "strategies")])
    with pytest.raises(ModelError, match="the plan does not fit its model") as caught:
        api.explain(target)
    assert caught.value.facts == ("op 'h0_op' has no strategy",)


def test_a_plan_that_tiles_a_tensor_of_nobody_is_refused_by_all(
    plans: tuple[edited_plans.Original, ...], tmp_path: Path
) -> None:
    target = tmp_path / "edited"

    def edit(data: Any) -> None:
        data["tilings"]["nobody"], data["tensor_bytes"]["nobody"] = "R/2", 0

    found = changed(plans[0], target, PLAN, edit)
    assert found.verdict == "refused"
    assert "there is no tensor 'nobody', which has a tiling" in found.said
    others = (
        lambda: api.explain(target),
        lambda: api.report(target, output=tmp_path / "r.html"),
        lambda: api.export(target, jax=tmp_path / "j.py"),
        lambda: api.diff(target, target),
    )
    said = []
    for command in others:
        with pytest.raises(ModelError, match="the plan does not fit its model") as caught:
            command()
        said.append(caught.value.facts)
    assert said == [("there is no tensor 'nobody', which has a tiling",)] * 4
