"""What a step of several micro-batches moves: forward and backward for each of them, and one update."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import accumulated
from planner import api, opdefs
from planner.graph.core.notes import without_micro_batch
from planner.graph.reading.from_onnx import read_model
from planner.graph.rewriting.lanes import lanes_of, marked
from planner.records import plain
from planner.search.model.problem import Problem
from planner.search.repeats.unrolled import find_copies

FOLDER = accumulated.MODELS


def trained(name: str, batches: int, folder: Path) -> Path:
    step = folder / f"{name}{batches}.onnx"
    api.grad(
        FOLDER / f"{name}.onnx", loss="softmax_cross_entropy", optimizer="momentum", accumulate=batches, output=step
    )
    return step


def planned(step: Path, workers: int, **options):
    folder = step.with_suffix(f".{workers}")
    return api.plan(step, gpus=workers, out=folder, models=False, **options)


def of_the_update(plan, step: Path) -> int:
    """What moves of weights, of what the optimizer remembers, and of gradients of weights."""
    states = [pair.current for pair in read_model(step).state]
    names = {name for name in plan.tensor_bytes if any(name == one or name.startswith(f"{one}.") for one in states)}
    return sum(plan.tensor_bytes[name] for name in names)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "workers"), [("gpt", 2), ("cnn", 2)])
def test_one_update_moves_once(name, workers, tmp_path):
    single, step = trained(name, 1, tmp_path), trained(name, 4, tmp_path)
    one, four = planned(single, workers).plan, planned(step, workers)
    update = of_the_update(one, single)
    each = one.moved_bytes - update
    assert four.plan.moved_bytes <= 1.02 * (4 * each + update)
    found = four.micro_batches
    assert (found.count, found.moved_bytes + found.update_bytes) == (4, four.plan.moved_bytes)


@pytest.mark.slow
def test_data_parallelism_moves_the_gradients_once(tmp_path):
    """Contributions are added up where they lie, and joined once a step."""
    one, four = (planned(trained("gpt", batches, tmp_path), 2, strategy="data") for batches in (1, 4))
    assert one.micro_batches is None
    assert four.plan.moved_bytes <= 1.02 * one.plan.moved_bytes
    assert four.micro_batches.moved_bytes < 0.01 * four.micro_batches.update_bytes
    said = plain(four)["micro_batches"]
    assert said == {field: getattr(four.micro_batches, field) for field in ("count", "moved_bytes", "update_bytes")}


@pytest.mark.parametrize("name", ["gpt", "cnn"])
def test_copies_are_the_same_op_of_several_micro_batches(name, tmp_path):
    """Two are tied already, and equal matrices beside each other, each of which a worker may own, are none."""
    graph = read_model(trained(name, 2, tmp_path))
    graph = marked(graph, lanes_of(graph))
    copies = find_copies(graph, opdefs.standard().bind_all(graph)).ops
    own = {op.name for op in graph.ops if op.name != without_micro_batch(op.name)}
    assert len(own & copies.keys()) > 0.8 * len(own)
    for one in own & copies.keys():
        assert without_micro_batch(one) == without_micro_batch(copies[one])


def test_more_micro_batches_are_no_more_variables(tmp_path):
    count = []
    for batches in (3, 6):
        graph = read_model(trained("cnn", batches, tmp_path))
        count.append(len(Problem(graph, opdefs.standard().bind_all(graph), 2).variables))
    assert count[1] - count[0] <= 3 * 8  # offsets of slices, and sums


@pytest.mark.slow
@pytest.mark.parametrize("name", ["gpt", "cnn"])
def test_twenty_updates_are_those_of_pytorch(name, tmp_path):
    """The schedule, the log and the checkpoints count updates."""
    folder, log, kept = tmp_path / "plan", tmp_path / "log.jsonl", tmp_path / "kept"
    api.plan(trained(name, accumulated.BATCHES, tmp_path), gpus=2, out=folder)
    np.savez(tmp_path / "data.npz", **accumulated.data(name))
    rate = f"cosine:{accumulated.RATES[name]},0,{accumulated.UPDATES}"
    result = api.run(
        folder, inputs=tmp_path / "data.npz", epochs=1, lr=rate, log=log, checkpoint_dir=kept, checkpoint_every=20
    )
    assert result.moved_bytes == result.predicted_bytes
    expected = np.load(FOLDER / "losses.npz")[name]
    np.testing.assert_allclose(result.losses, expected, rtol=1e-5)
    assert len(log.read_text().splitlines()) == len(expected) == accumulated.UPDATES
    assert [entry.name for entry in kept.iterdir() if entry.is_dir()] == ["step-00000020"]
