"""A folder of checkpoints is one run's at a time, and a run that was killed is succeeded."""

from __future__ import annotations

import errno
import os
import socket
from pathlib import Path
from typing import Any

import pytest

from planner.errors import UsageError
from planner.options.running import RunOptions
from planner.runtime.run import run_with
from planner.runtime.run_report import StepReport
from planner.runtime.values import claim
from planner.runtime.values.claim import claimed

NOBODY = 999_999_999
"""No process has this number."""


def test_a_second_run_is_kept_out(training: Any, tmp_path: Path) -> None:
    options = RunOptions(steps=1, checkpoint_dir=tmp_path / "ck")
    refusals: list[UsageError] = []

    def meanwhile(report: StepReport) -> None:
        with pytest.raises(UsageError, match="ck is in use by another run") as caught:
            run_with(training.plan, options)
        refusals.append(caught.value)

    run_with(training.plan, RunOptions(steps=1, checkpoint_dir=tmp_path / "ck", on_step=meanwhile))
    assert [refusal.facts for refusal in refusals] == [(f"process {os.getpid()} on {socket.gethostname()}",)]
    assert [entry.name for entry in (tmp_path / "ck").iterdir()] == ["step-00000001"]


def test_the_lock_of_a_run_that_was_killed_is_taken_over(tmp_path: Path) -> None:
    (tmp_path / ".lock").write_text(f"process {NOBODY} on there\n")
    told: list[str] = []
    with claimed(tmp_path, told.append):
        assert (tmp_path / ".lock").read_text() == f"process {os.getpid()} on {socket.gethostname()}\n"
    assert told == [f"note: {tmp_path}/.lock was left by process {NOBODY} on there, which has ended: taken over"]
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("owner", "is_taken"),
    [
        ("", True),
        (f"process {NOBODY} on {socket.gethostname()}\n", True),
        (f"process {os.getpid()} on {socket.gethostname()}\n", False),
        (f"process {NOBODY} on another-host\n", False),
        ("what is this", False),
    ],
    ids=["nothing", "a dead one here", "a living one here", "one elsewhere", "no words of ours"],
)
def test_where_there_are_no_locks_the_words_decide(
    owner: str, is_taken: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def none(descriptor: int, kind: int) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(claim.fcntl, "flock", none)
    (tmp_path / ".lock").write_text(owner)
    context = claimed(tmp_path, lambda line: None)
    if is_taken:
        with context:
            assert str(os.getpid()) in (tmp_path / ".lock").read_text()
    else:
        with pytest.raises(UsageError, match="in use by another run") as caught, context:
            pass
        assert f"remove {tmp_path}/.lock" in caught.value.hint
        assert (tmp_path / ".lock").read_text() == owner


def test_what_is_no_file_is_no_lock(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / ".lock")
    with pytest.raises(UsageError, match=r"\.lock cannot be written"), claimed(tmp_path, lambda line: None):
        pass


def test_a_folder_into_which_nothing_came_goes(tmp_path: Path) -> None:
    with claimed(tmp_path / "a" / "ck", lambda line: None):
        pass
    assert not (tmp_path / "a" / "ck").exists()
