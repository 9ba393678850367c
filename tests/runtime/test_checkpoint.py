"""Checkpoints: whole or not there, bit-identical, and good for another number of workers."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from planner.algebra.region import Region
from planner.errors import ModelError, UsageError
from planner.features.zoo.models import mlp
from planner.options.running import RunOptions
from planner.runtime.run import run_with
from planner.runtime.run_report import RunResult
from planner.runtime.values import checkpoint as module
from planner.runtime.values.checkpoints import newest_checkpoint

Planner = Callable[..., Any]
GRAPH = mlp(3, 24, 36, learning_rate=0.001)


def bits(result: RunResult) -> dict[str, bytes]:
    return {name: array.tobytes() for name, array in result.results.items()}


def test_a_resumed_run_gives_the_same_bits(plan_of: Planner, tmp_path: Path) -> None:
    plan = plan_of(GRAPH, 4)
    straight = run_with(plan, RunOptions(steps=5, seed=3))
    options = RunOptions(steps=2, seed=3, checkpoint_dir=tmp_path, checkpoint_every=1)
    first = run_with(plan, options)
    assert first.checkpoint == tmp_path / "step-00000002"
    again = run_with(plan, RunOptions(steps=5, checkpoint_dir=tmp_path, resume=True))
    assert (again.first_step, again.steps) == (3, 3)
    assert bits(again) == bits(straight)


@pytest.mark.parametrize(("before", "after"), [(4, 2), (2, 6), (3, 4), (1, 8)])
def test_another_number_of_workers_takes_its_tiles_from_the_regions(
    plan_of: Planner, tmp_path: Path, before: int, after: int
) -> None:
    run_with(plan_of(GRAPH, before), RunOptions(steps=2, checkpoint_dir=tmp_path))
    straight = run_with(plan_of(GRAPH, before), RunOptions(steps=2))
    checkpoint, _ = newest_checkpoint(tmp_path, GRAPH, "of the model")
    for program in plan_of(GRAPH, after).program.workers:
        for pair in GRAPH.state:
            region = program.buffers[pair.current].region
            whole = straight.results[pair.following]
            np.testing.assert_array_equal(
                checkpoint.tile(pair.current, region), whole[region.within(Region.whole(whole.shape))]
            )
    resumed = run_with(plan_of(GRAPH, after), RunOptions(steps=3, checkpoint_dir=tmp_path, resume=True, verify=True))
    assert resumed.verified


def test_with_verification_it_holds_the_whole_models_state(plan_of: Planner, tmp_path: Path) -> None:
    plan = plan_of(GRAPH, 2)
    run_with(plan, RunOptions(steps=1, verify=True, checkpoint_dir=tmp_path))
    assert run_with(plan, RunOptions(steps=3, verify=True, checkpoint_dir=tmp_path, resume=True)).verified


def test_what_is_given_does_not_replace_the_checkpoints_state(plan_of: Planner, tmp_path: Path) -> None:
    plan = plan_of(GRAPH, 2)
    given = {"x0": np.full((36, 24), 0.5, np.float32), "w1": np.full((24, 24), 0.01, np.float32)}
    straight = run_with(plan, RunOptions(steps=3, inputs=given))
    run_with(plan, RunOptions(steps=2, inputs=given, checkpoint_dir=tmp_path))
    again = run_with(plan, RunOptions(steps=3, inputs=given, checkpoint_dir=tmp_path, resume=True))
    assert bits(again) == bits(straight)


def test_no_torn_checkpoint(plan_of: Planner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plan = plan_of(GRAPH, 2)
    run_with(plan, RunOptions(steps=1, checkpoint_dir=tmp_path))
    write = module.write_arrays

    def full(path: Path, arrays: Any) -> None:
        if path.name == "worker1.npz":
            raise OSError(28, "No space left on device")
        write(path, arrays)

    monkeypatch.setattr(module, "write_arrays", full)
    with pytest.raises(UsageError, match="cannot be written: No space"):
        run_with(plan, RunOptions(steps=2, checkpoint_dir=tmp_path, resume=True))
    assert [entry.name for entry in tmp_path.iterdir()] == ["step-00000001"]


def test_what_does_not_belong_is_refused(plan_of: Planner, tmp_path: Path) -> None:
    plan = plan_of(GRAPH, 2)
    options = RunOptions(steps=1, checkpoint_dir=tmp_path)
    with pytest.raises(UsageError, match="holds no checkpoint"):
        run_with(plan, replace(options, resume=True))
    run_with(plan, options)
    more = replace(options, steps=2, resume=True)
    with pytest.raises(ModelError, match="checkpoint of another model"):
        run_with(replace(plan, model_digest="another"), more)
    folder = tmp_path / "step-00000001"
    tiles = folder / "worker0.npz"
    sound = tiles.read_bytes()
    tiles.write_bytes(sound[:100] + b"?" + sound[101:])
    with pytest.raises(ModelError, match="cannot be resumed from") as caught:
        run_with(plan, more)
    assert "worker0.npz is not the file that was written" in caught.value.facts[0]
    tiles.write_bytes(sound)
    manifest = json.loads((folder / "manifest.json").read_text())
    manifest["tiles"]["w2"] = manifest["tiles"]["w2"][:-1]
    del manifest["tiles"]["w3"]
    del manifest["digest"]
    (folder / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(ModelError, match="cannot be resumed from") as caught:
        run_with(plan, more)
    assert caught.value.facts == ("state 'w3' is not in it", "state 'w2' is not covered by its tiles")
    (folder / "manifest.json").write_text("{")
    with pytest.raises(ModelError, match="no checkpoint that can be read"):
        run_with(plan, more)


def test_options_that_do_not_go_together(plan_of: Planner) -> None:
    plan = plan_of(GRAPH, 1)
    for options in (RunOptions(resume=True), RunOptions(checkpoint_every=2), RunOptions(keep=2)):
        with pytest.raises(UsageError, match="of which checkpoints"):
            run_with(plan, options)
    with pytest.raises(UsageError, match="no input 'learning_rate'"):
        run_with(plan, RunOptions(lr="0.1"))


def steps_in(folder: Path) -> list[str]:
    return sorted(entry.name for entry in folder.iterdir())


def test_old_checkpoints_go(plan_of: Planner, tmp_path: Path) -> None:
    plan = plan_of(GRAPH, 2)
    run_with(plan, RunOptions(steps=3, checkpoint_dir=tmp_path, checkpoint_every=1))
    (tmp_path / "step-00000002" / "manifest.json").unlink()
    run_with(plan, RunOptions(steps=7, checkpoint_dir=tmp_path, checkpoint_every=2, keep=2, resume=True))
    # What cannot be read stays.
    assert steps_in(tmp_path) == [f"step-0000000{step}" for step in (2, 6, 7)]


@pytest.mark.parametrize("other", [{}, {"model_digest": "another"}])
def test_a_fresh_run_replaces_no_checkpoints(plan_of: Planner, tmp_path: Path, other: dict[str, str]) -> None:
    plan = plan_of(GRAPH, 2)
    run_with(plan, RunOptions(steps=4, checkpoint_dir=tmp_path, checkpoint_every=1))
    before = {path: path.read_bytes() for path in sorted(tmp_path.rglob("*")) if path.is_file()}
    with pytest.raises(UsageError, match="holds 4 checkpoints of another run") as caught:
        run_with(replace(plan, **other), RunOptions(steps=2, seed=5, checkpoint_dir=tmp_path, keep=1))
    whose = "another" if other else "this"
    assert caught.value.facts == (f"the latest is step-00000004, of {whose} model",)
    assert "--resume goes on" in caught.value.hint
    assert before == {path: path.read_bytes() for path in sorted(tmp_path.rglob("*")) if path.is_file()}


def test_a_folder_with_checkpoints_of_two_models_is_refused(plan_of: Planner, tmp_path: Path) -> None:
    plan = plan_of(GRAPH, 2)
    run_with(plan, RunOptions(steps=2, checkpoint_dir=tmp_path))
    run_with(replace(plan, model_digest="another"), RunOptions(steps=3, checkpoint_dir=tmp_path / "other"))
    (tmp_path / "other" / "step-00000003").rename(tmp_path / "step-00000003")
    with pytest.raises(ModelError, match="step-00000003 is a checkpoint of another model"):
        run_with(plan, RunOptions(steps=5, checkpoint_dir=tmp_path, resume=True))


def test_a_damaged_checkpoint_is_passed_over(plan_of: Planner, tmp_path: Path) -> None:
    plan = plan_of(GRAPH, 2)
    run_with(plan, RunOptions(steps=4, checkpoint_dir=tmp_path, checkpoint_every=1))
    straight = run_with(plan, RunOptions(steps=5))
    tiles = tmp_path / "step-00000003" / "worker1.npz"
    tiles.write_bytes(tiles.read_bytes()[:-1] + b"?")
    (tmp_path / "step-00000004" / "manifest.json").unlink()
    said: list[str] = []
    again = run_with(plan, RunOptions(steps=5, checkpoint_dir=tmp_path, resume=True, notice=said.append))
    assert (again.first_step, bits(again)) == (3, bits(straight))
    assert [line for line in said if not line.startswith("no --inputs: random data")] == [
        f"passed over: {tmp_path}/step-00000004 is no checkpoint that can be read: No such file or directory",
        f"passed over: {tmp_path}/step-00000003 cannot be resumed from; "
        "worker1.npz is not the file that was written: its digest differs",
        "going on from step 2",
    ]


def test_no_checkpoint_is_whole(plan_of: Planner, tmp_path: Path) -> None:
    plan = plan_of(GRAPH, 2)
    run_with(plan, RunOptions(steps=2, checkpoint_dir=tmp_path, checkpoint_every=1))
    for step in (1, 2):
        (tmp_path / f"step-0000000{step}" / "worker0.npz").unlink()
    with pytest.raises(ModelError, match="holds no checkpoint that can be resumed from") as caught:
        run_with(plan, RunOptions(steps=3, checkpoint_dir=tmp_path, resume=True))
    assert [fact.endswith("cannot be resumed from; worker0.npz is missing") for fact in caught.value.facts] == [
        True
    ] * 2


@pytest.mark.parametrize(
    ("edit", "said"),
    [
        (lambda manifest: manifest.pop("step"), "it lacks 'step'"),
        (lambda manifest: manifest.update(seed=-1), "seed is a number (-1), not a whole number of at least 0"),
        (lambda manifest: manifest["tiles"]["w1"][0].update(region=[0, 1, 2]), "tiles.w1[0].region is no box"),
        (lambda manifest: manifest["tiles"]["w1"][0].update(key="77"), "does not hold the tiles"),
        (lambda manifest: manifest["tiles"]["w1"][0].update(file="../x.npz"), "state 'w1' is not covered"),
        (lambda manifest: manifest["files"].update({"../x.npz": ""}), "../x.npz is missing"),
    ],
)
def test_a_manifest_that_somebody_edited(
    edit: Callable[[dict[str, Any]], object], said: str, plan_of: Planner, tmp_path: Path
) -> None:
    plan = plan_of(GRAPH, 2)
    run_with(plan, RunOptions(steps=1, checkpoint_dir=tmp_path))
    file = tmp_path / "step-00000001" / "manifest.json"
    manifest = json.loads(file.read_text())
    edit(manifest)
    del manifest["digest"]
    file.write_text(json.dumps(manifest))
    with pytest.raises(ModelError) as caught:
        run_with(plan, RunOptions(steps=2, checkpoint_dir=tmp_path, resume=True))
    assert said in str(caught.value)


@pytest.mark.parametrize("member", ["step", "seed"])
def test_a_manifest_is_under_a_digest(member: str, plan_of: Planner, tmp_path: Path) -> None:
    plan = plan_of(GRAPH, 2)
    run_with(plan, RunOptions(steps=1, checkpoint_dir=tmp_path))
    file = tmp_path / "step-00000001" / "manifest.json"
    manifest = json.loads(file.read_text())
    manifest[member] += 11
    file.write_text(json.dumps(manifest))
    with pytest.raises(ModelError, match=r"manifest\.json is not the file that was written: its digest differs"):
        run_with(plan, RunOptions(steps=20, checkpoint_dir=tmp_path, resume=True))


def test_a_place_for_checkpoints_is_tried_before_the_work(plan_of: Planner, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match="it is no folder"):
        run_with(plan_of(GRAPH, 1), RunOptions(checkpoint_dir=tmp_path / "file", weights=tmp_path / "none.npz"))
