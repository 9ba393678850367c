"""Data sets of one file: batches of rows, epochs, their order, and how a run goes on in the middle of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from planner.errors import UsageError
from planner.features.zoo.models import mlp
from planner.graph.core.model import DType, Graph, Tensor
from planner.options.running import RunOptions
from planner.runtime.run import run_with
from planner.runtime.run_report import StepReport
from planner.runtime.values.feed import order_of
from planner.runtime.values.rows import read_arrays

Planner = Callable[..., Any]
GRAPH = mlp(2, 12, 8, learning_rate=0.001)
ROWS = np.random.default_rng(3).standard_normal((27, 12)).astype(np.float32)


def by_hand(plan: Any, places: list[list[int]]) -> dict[str, bytes]:
    """The state after steps of which each takes the rows in these places."""
    state: dict[str, np.ndarray] = {}
    for rows in places:
        outcome = run_with(plan, RunOptions(inputs={"x0": ROWS[rows], **state}, seed=2))
        state = {pair.current: outcome.results[pair.following] for pair in GRAPH.state}
    return {name: array.tobytes() for name, array in state.items()}


def state_of(outcome: Any) -> dict[str, bytes]:
    return {pair.current: outcome.results[pair.following].tobytes() for pair in GRAPH.state}


@pytest.mark.parametrize("shuffle", [None, 5])
def test_rows_are_gone_through_in_batches_and_epochs(plan_of: Planner, tmp_path: Path, shuffle: int | None) -> None:
    plan = plan_of(GRAPH, 2)
    np.savez(tmp_path / "data.npz", x0=ROWS)
    said: list[str] = []
    told: list[StepReport] = []
    options = RunOptions(inputs=tmp_path / "data.npz", epochs=2, shuffle=shuffle, seed=2)
    ran = run_with(plan, replace(options, notice=said.append, on_step=told.append))
    others = "" if shuffle is None else ", others in each"
    assert said[:-1] == [
        f"note: {tmp_path}/data.npz has 27 rows: 3 batches of 8 an epoch; 3 rows are left out of each{others}"
    ]
    assert [(report.step, report.steps, report.epoch, report.epochs) for report in told] == [
        (number, 6, (number + 2) // 3, 2) for number in range(1, 7)
    ]
    said.clear()
    run_with(plan, replace(options, epochs=None, steps=1, notice=said.append))
    assert said[1:-1] == ["hint: this run takes 1 batch; --epochs 1 goes through all of them"]
    orders = [order_of(27, shuffle, epoch).tolist() for epoch in (1, 2)]
    assert state_of(ran) == by_hand(plan, [order[first : first + 8] for order in orders for first in (0, 8, 16)])
    arrays = run_with(plan, replace(options, inputs={"in_x0": ROWS}))
    assert state_of(arrays) == state_of(ran)


def test_an_order_is_a_permutation_and_another_in_each_epoch_and_of_each_seed() -> None:
    orders = [order_of(1000, seed, epoch).tolist() for seed in (0, 1) for epoch in (1, 2)]
    assert all(sorted(order) == list(range(1000)) for order in orders)
    assert len({tuple(order) for order in orders}) == 4
    # A promise to those who go on with a run: the order is the same on every machine and in every release.
    assert order_of(10, 7, 1).tolist() == [2, 9, 0, 3, 4, 5, 6, 7, 8, 1]


@pytest.mark.parametrize("stop", [2, 3, 4])
def test_a_resumed_run_goes_on_at_the_same_row_of_the_same_shuffle(plan_of: Planner, tmp_path: Path, stop: int) -> None:
    plan = plan_of(GRAPH, 2)
    options = RunOptions(inputs={"x0": ROWS}, seed=2, checkpoint_dir=tmp_path / "ck")
    run_with(plan, replace(options, steps=stop, shuffle=5))
    again = run_with(plan, replace(options, epochs=2, resume=True))
    assert again.first_step == stop + 1
    straight = run_with(plan, RunOptions(inputs={"x0": ROWS}, seed=2, shuffle=5, epochs=2))
    assert state_of(again) == state_of(straight)
    with pytest.raises(UsageError, match="--shuffle 6: the run went through its data with --shuffle 5"):
        run_with(plan, replace(options, epochs=3, shuffle=6, resume=True))
    said: list[str] = []
    run_with(plan, replace(options, inputs={"x0": ROWS[:20]}, steps=7, resume=True, notice=said.append))
    assert any("27 rows or files" in line and "20" in line for line in said)


def test_a_folder_has_epochs_and_is_shuffled_by_batches(plan_of: Planner, tmp_path: Path) -> None:
    plan = plan_of(GRAPH, 2)
    for number in range(3):
        np.save(tmp_path / f"{number}.npy", ROWS[8 * number : 8 * number + 8])
    ran = run_with(plan, RunOptions(inputs=tmp_path, epochs=2, shuffle=1, seed=2))
    files = [place for epoch in (1, 2) for place in order_of(3, 1, epoch).tolist()]
    assert state_of(ran) == by_hand(plan, [list(range(8 * file, 8 * file + 8)) for file in files])


def test_one_batch_is_the_same_in_every_step(plan_of: Planner) -> None:
    plan = plan_of(GRAPH, 2)
    assert run_with(plan, RunOptions(inputs={"x0": ROWS[:8]}, epochs=3)).steps == 3
    with pytest.raises(UsageError, match="--shuffle: inputs is one batch"):
        run_with(plan, RunOptions(inputs={"x0": ROWS[:8]}, shuffle=3))


def test_data_that_are_no_data_set(training: Any, plan_of: Planner) -> None:
    with pytest.raises(UsageError, match="--epochs: of which data"):
        run_with(training.plan, RunOptions(epochs=3))
    with pytest.raises(UsageError, match="x0: has 7 rows, a batch has 8"):
        run_with(plan_of(GRAPH, 2), RunOptions(inputs={"x0": ROWS[:7]}))


def test_all_inputs_of_the_batch_have_as_many_rows() -> None:
    tensors = {name: Tensor(name, shape, DType.FLOAT32) for name, shape in (("x", (4, 3)), ("y", (4,)), ("z", (2, 2)))}
    graph = Graph("g", tensors, (), ("x", "y", "z"), (), {})
    data = {name: np.zeros(shape, np.float32) for name, shape in (("x", (9, 3)), ("y", (9,)), ("z", (2, 2)))}
    fixed, rows = read_arrays(graph, data, source="data")
    assert rows is not None
    assert (set(fixed), set(rows.arrays), rows.items, rows.per_batch) == ({"z"}, {"x", "y"}, 9, 4)
    for y in (8, 4):
        with pytest.raises(UsageError, match="not as many of every input") as caught:
            read_arrays(graph, {**data, "y": np.zeros(y, np.float32)}, source="data")
        assert caught.value.facts == ("x: 9 rows, 4 in a batch", f"y: {y} rows, 4 in a batch")


def test_a_model_that_takes_no_rows_is_given_none() -> None:
    graph = Graph("g", {"x": Tensor("x", (0, 3), DType.FLOAT32)}, (), ("x",), (), {})
    with pytest.raises(UsageError, match="does not fit"):
        read_arrays(graph, {"x": np.zeros((9, 3), np.float32)}, source="data")


def test_a_run_that_is_done_gives_its_state_once_more(plan_of: Planner, tmp_path: Path) -> None:
    plan = plan_of(GRAPH, 2)
    ran = run_with(plan, RunOptions(steps=3, checkpoint_dir=tmp_path / "ck"))
    said: list[str] = []
    options = RunOptions(
        steps=3, checkpoint_dir=tmp_path / "ck", resume=True, export=tmp_path / "w.safetensors", notice=said.append
    )
    again = run_with(plan, options)
    assert (again.steps, again.first_step, again.losses) == (0, 4, ())
    assert said == ["note: step 3 is done already: no step is run"]
    assert state_of(again) == state_of(ran)
    assert set(again.exported) == {pair.current for pair in GRAPH.state}
    run_with(plan, RunOptions(steps=3, export=tmp_path / "straight.safetensors"))
    assert (tmp_path / "w.safetensors").read_bytes() == (tmp_path / "straight.safetensors").read_bytes()
    with pytest.raises(UsageError, match="step 3 is done already, and --steps is 2"):
        run_with(plan, replace(options, steps=2))
    with pytest.raises(UsageError, match="step 3 is done already, and --epochs is 1, 2 steps") as caught:
        run_with(plan, replace(options, inputs={"x0": ROWS[:16]}, steps=None, epochs=1))
    assert caught.value.hint == "--epochs counts from the beginning: write --epochs 2, or more"
