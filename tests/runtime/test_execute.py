"""What a run says and keeps while it trains: its log, an interrupt, and numbers that are not finite."""

from __future__ import annotations

import csv
import fcntl
import io
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from planner.errors import DivergedError, UsageError
from planner.options.running import RunOptions
from planner.printing import tables
from planner.runtime.run import run_with
from planner.runtime.run_log import COLUMNS, try_log
from planner.runtime.run_report import StepReport
from planner.stop import Interrupt
from planner.units import format_loss


def batches(folder: Path, *scales: float) -> Path:
    folder.mkdir()
    for number, scale in enumerate(scales):
        np.savez(folder / f"{number}.npz", X=np.full((6, 3), scale, np.float32))
    return folder


def kept(folder: Path) -> list[str]:
    return sorted(entry.name for entry in folder.iterdir())


def logged(path: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_a_log_has_a_line_for_each_step(training: Any, tmp_path: Path) -> None:
    found = run_with(training.plan, RunOptions(steps=3, log=tmp_path / "l.jsonl"))
    lines = logged(tmp_path / "l.jsonl")
    assert [line["step"] for line in lines] == [1, 2, 3]
    assert [line["loss"] for line in lines] == list(found.losses)
    assert [line["moved_bytes"] for line in lines] == [found.moved_bytes] * 3
    assert [line["seconds"] for line in lines] == list(found.seconds)
    run_with(training.plan, RunOptions(steps=3, log=tmp_path / "l.csv"))
    rows = list(csv.DictReader((tmp_path / "l.csv").open()))
    assert [(row["step"], float(row["loss"])) for row in rows] == [
        (str(number), loss) for number, loss in enumerate(found.losses, start=1)
    ]
    assert tuple(rows[0]) == COLUMNS


@pytest.mark.parametrize("suffix", ["jsonl", "csv"])
def test_a_resumed_run_goes_on_with_its_log(training: Any, tmp_path: Path, suffix: str) -> None:
    log = tmp_path / f"l.{suffix}"
    options = RunOptions(steps=4, checkpoint_dir=tmp_path / "ck", checkpoint_every=2, log=log)
    run_with(training.plan, options)
    whole = log.read_text()
    # As if it had been killed after step 4 was told, in the middle of another line, before its checkpoint was there.
    (tmp_path / "ck" / "step-00000004" / "manifest.json").unlink()
    log.write_text(whole + whole.splitlines()[-1][:7])
    run_with(training.plan, replace(options, steps=5, resume=True))
    lines = log.read_text().splitlines()
    assert lines[: len(whole.splitlines()) - 2] == whole.splitlines()[:-2]
    numbers = (
        [int(line.partition(",")[0]) for line in lines[1:]]
        if suffix == "csv"
        else [json.loads(line)["step"] for line in lines]
    )
    assert numbers == [1, 2, 3, 4, 5]


def test_the_table_of_a_long_run_is_cut(training: Any) -> None:
    texts = []
    for steps in (40, 45):
        text = io.StringIO()
        tables.print_run(run_with(training.plan, RunOptions(steps=steps)), text)
        texts.append(text.getvalue())
    assert [text.count("…") for text in texts] == [0, 3]
    assert "5 steps more: --json and -o FILE.csv have all" in texts[1]


def test_a_file_that_is_no_log_is_not_gone_on_with(training: Any, tmp_path: Path) -> None:
    options = RunOptions(steps=1, checkpoint_dir=tmp_path / "ck", log=tmp_path / "l.jsonl")
    with pytest.raises(UsageError, match=r"call it l\.jsonl or l\.csv"):
        run_with(training.plan, replace(options, log=tmp_path / "l.txt"))
    run_with(training.plan, options)
    for line in ("dear diary\n", '{"step": 1e999}\n'):
        (tmp_path / "l.jsonl").write_text(line)
        with pytest.raises(UsageError, match="line 1 is no step"):
            run_with(training.plan, replace(options, steps=2, resume=True))
        assert (tmp_path / "l.jsonl").read_text() == line


@pytest.mark.parametrize("suffix", ["jsonl", "csv"])
def test_two_runs_do_not_share_a_log(training: Any, tmp_path: Path, suffix: str) -> None:
    options = RunOptions(steps=2, log=tmp_path / f"l.{suffix}")
    refused: list[str] = []

    def told(report: StepReport) -> None:
        with pytest.raises(UsageError, match="is in use by another run") as caught:
            run_with(training.plan, options)
        refused.append(caught.value.hint)

    run_with(training.plan, replace(options, on_step=told))
    assert refused == ["wait until it has ended, or name another file"] * 2
    written = (tmp_path / f"l.{suffix}").read_text()
    assert len(written.splitlines()) == 2 + (suffix == "csv")
    with pytest.raises(UsageError, match="the file is there, and would be replaced") as caught:
        run_with(training.plan, options)
    assert "--resume" in caught.value.hint
    assert (tmp_path / f"l.{suffix}").read_text() == written


def test_a_log_without_a_step_is_written_anew(training: Any, tmp_path: Path) -> None:
    for suffix, beginning in (("jsonl", ""), ("csv", ",".join(COLUMNS) + "\n")):
        (tmp_path / f"l.{suffix}").write_text(beginning)
        run_with(training.plan, RunOptions(log=tmp_path / f"l.{suffix}"))
    assert [len((tmp_path / name).read_text().splitlines()) for name in ("l.jsonl", "l.csv")] == [1, 2]


def test_a_line_of_each_step_stands_once(training: Any, tmp_path: Path) -> None:
    """Where stdout and stderr lead to one file, the lines are there before the result is."""
    found = run_with(training.plan, RunOptions(steps=2, export=tmp_path / "w.npz"))
    texts = []
    for is_told in (False, True):
        text = io.StringIO()
        tables.print_run(found, text, is_told=is_told)
        texts.append(text.getvalue())
    assert texts[0].endswith(texts[1].lstrip("\n"))
    assert [text.count(format_loss(found.losses[0])) for text in texts] == [1, 0]
    assert f"1 tensor to {tmp_path}/w.npz" in texts[1]


def test_an_interrupt_finishes_the_step_and_keeps_it(training: Any, tmp_path: Path) -> None:
    stop = Interrupt()

    def told(report: StepReport) -> None:
        if report.step == 2:
            stop.interrupt()

    ready: list[bool] = []
    options = RunOptions(
        steps=9, checkpoint_dir=tmp_path / "ck", stop=stop, on_step=told, notice=lambda _: ready.append(stop.can_end)
    )
    found = run_with(training.plan, options)
    assert set(ready) == {False}, "before the first step there is nothing to keep"
    assert (found.is_interrupted, found.steps, found.checkpoint) == (True, 3, tmp_path / "ck" / "step-00000003")
    again = run_with(training.plan, RunOptions(steps=5, checkpoint_dir=tmp_path / "ck", resume=True))
    straight = run_with(training.plan, RunOptions(steps=5))
    assert again.results["W_next"].tobytes() == straight.results["W_next"].tobytes()


def test_an_interrupt_of_the_last_step_changes_nothing(training: Any) -> None:
    stop = Interrupt()
    stop.interrupt()
    assert not run_with(training.plan, RunOptions(steps=1, stop=stop)).is_interrupted


def test_a_loss_that_is_not_finite_ends_the_run_before_a_checkpoint_goes(training: Any, tmp_path: Path) -> None:
    data = batches(tmp_path / "data", 1, 1, np.nan)
    options = RunOptions(
        steps=9, inputs=data, checkpoint_dir=tmp_path / "ck", checkpoint_every=1, keep=2, log=tmp_path / "l.jsonl"
    )
    with pytest.raises(DivergedError, match="the loss is nan in step 3") as caught:
        run_with(training.plan, options)
    assert caught.value.exit_code == 1
    assert caught.value.facts == (
        "output 'loss'",
        f"input 'X': 18 of 18 numbers are not finite, first at [0, 0] of {data}/2.npz",
        f"the last checkpoint is {tmp_path}/ck/step-00000002",
    )
    assert kept(tmp_path / "ck") == ["step-00000001", "step-00000002"]
    assert [line["loss"] for line in logged(tmp_path / "l.jsonl")][2:] == [None]
    found = run_with(training.plan, replace(options, steps=4, allow_nan=True, resume=True))
    assert np.isnan(found.losses).all()
    assert kept(tmp_path / "ck") == ["step-00000003", "step-00000004"]


def test_data_that_are_not_finite_are_named(training: Any) -> None:
    x = np.ones((6, 3), np.float32)
    x[4, 1] = np.nan
    with pytest.raises(DivergedError) as caught:
        run_with(training.plan, RunOptions(steps=2, inputs={"X": x}))
    assert caught.value.facts == ("output 'loss'", "input 'X': 1 of 18 numbers are not finite, first at [4, 1]")


def test_data_that_are_not_finite_are_named_by_their_row(training: Any) -> None:
    """Not by that of the batch, which a shuffle puts together."""
    x = np.ones((24, 3), np.float32)
    x[17, 2] = np.inf
    with pytest.raises(DivergedError) as caught:
        run_with(training.plan, RunOptions(epochs=1, shuffle=4, inputs={"X": x}))
    assert caught.value.facts[1] == "input 'X': 1 of 18 numbers are not finite, first at [17, 2] of inputs"


def test_a_held_out_loss_that_is_not_finite_ends_the_run_after_its_checkpoint(training: Any, tmp_path: Path) -> None:
    held = np.ones((24, 3), np.float32)
    held[20, 1] = np.nan
    np.savez(tmp_path / "held.npz", X=held)
    options = RunOptions(
        inputs={"X": np.ones((12, 3), np.float32)},
        epochs=3,
        eval_inputs=tmp_path / "held.npz",
        checkpoint_dir=tmp_path / "ck",
        log=tmp_path / "l.jsonl",
    )
    with pytest.raises(DivergedError, match="the held-out loss is not finite after step 2") as caught:
        run_with(training.plan, options)
    assert caught.value.facts == (
        "first nan in batch 4 of 4",
        f"input 'X': 1 of 18 numbers are not finite, first at [20, 1] of {tmp_path}/held.npz",
        f"the last checkpoint is {tmp_path}/ck/step-00000002",
    )
    assert "held-out data" in caught.value.hint
    assert [line["step"] for line in logged(tmp_path / "l.jsonl")] == [1, 2]
    found = run_with(training.plan, replace(options, resume=True, allow_nan=True))
    assert [one.step for one in found.evaluations] == [4, 6]


def test_a_state_that_is_not_finite_is_not_kept(training: Any, tmp_path: Path) -> None:
    """The loss is finite, since what is huge meets a weight of 0; the gradient of that weight is not."""
    x, w = np.full((6, 3), 1, np.float32), np.full((3, 2), 0.5, np.float32)
    x[:, 0], w[0] = 3e38, 0
    options = RunOptions(inputs={"X": x, "W": w}, checkpoint_dir=tmp_path / "ck")
    with pytest.raises(DivergedError, match="state 'W' is not finite after step 1"):
        run_with(training.plan, options)
    assert not (tmp_path / "ck").exists()
    found = run_with(training.plan, replace(options, allow_nan=True))
    assert np.isfinite(found.losses).all()
    assert kept(tmp_path / "ck") == ["step-00000001"]


def test_ranks_try_a_log_side_by_side(tmp_path: Path) -> None:
    """A rank that looks at the log while another one does is not told of another run."""
    log = tmp_path / "log.jsonl"
    log.touch()
    with log.open() as stream:
        fcntl.flock(stream, fcntl.LOCK_SH | fcntl.LOCK_NB)
        try_log(log, is_resumed=True)
        fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
        with pytest.raises(UsageError, match="is in use by another run"):
            try_log(log, is_resumed=True)
