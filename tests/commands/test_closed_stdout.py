"""What stdout does to a command: closed pipes, full disks."""

from __future__ import annotations

import errno
import io
import os
import subprocess
import sys
from pathlib import Path

import pytest

from command_line import ROOT, Door, model_file, raises, tofu
from fast_suite import chosen
from planner.commands import main as cli
from planner.commands.streams import are_one


def into_a_closed_pipe(*arguments: str) -> tuple[int, bytes]:
    """Exit code and stderr of a run whose stdout nobody reads."""
    reader, writer = os.pipe()
    os.close(reader)
    try:
        done = subprocess.run(
            [sys.executable, "-m", "planner", *arguments], cwd=ROOT, stdout=writer, stderr=subprocess.PIPE, timeout=300
        )
    finally:
        os.close(writer)
    return done.returncode, done.stderr


def test_a_workers_broken_pipe_is_not_ours(door: Door, capfd: pytest.CaptureFixture[str]) -> None:
    door.answer = raises(BrokenPipeError(errno.EPIPE, "Broken pipe"))
    assert cli.main(["run"]) == 4
    assert "a bug in tofu: BrokenPipeError" in capfd.readouterr().err


@pytest.mark.parametrize("arguments", [["--help"], ["plan", "--help"]])
def test_broken_pipe(arguments: list[str]) -> None:
    assert into_a_closed_pipe(*arguments) == (141, b"")


@pytest.mark.parametrize("what", chosen(["ops", "explain"], fast=["ops"]))
def test_a_table_into_a_closed_pipe(what: str, tmp_path: Path) -> None:
    arguments = ["ops"]
    if what == "explain":
        folder = tmp_path / "plan"
        assert tofu("plan", str(model_file(tmp_path, "x")), "--gpus", "2", "-o", str(folder)).returncode == 0
        arguments = ["explain", str(folder)]
    assert into_a_closed_pipe(*arguments) == (141, b"")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_full_disk() -> None:
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "planner", "--help"],
            cwd=ROOT,
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            timeout=300,
        )
    assert (done.returncode, done.stderr) == (2, "error: cannot write: No space left on device\n")


@pytest.mark.parametrize("closed", [">&-", "2>&-", ">&- 2>&-", ">&0", "2>&0"])
def test_a_closed_stream_ends_the_command_before_it_writes_anything(closed: str, tmp_path: Path) -> None:
    """A file that the command opened would get the stream's number, and what is printed would be written there."""
    model, out = model_file(tmp_path, "x"), tmp_path / "plan"
    before = sorted(tmp_path.iterdir())
    command = f'"$0" -m planner plan {model} --gpus 2 -o {out} </dev/null {closed}'
    done = subprocess.run(
        ["bash", "-c", command, sys.executable],
        cwd=ROOT,
        capture_output=True,
        timeout=300,
        env={**os.environ, "TMPDIR": str(tmp_path)},
    )
    assert (done.returncode, done.stdout, done.stderr) == (141, b"", b"")
    assert sorted(tmp_path.iterdir()) == before


def test_without_stdin_a_plan_is_made_and_run(tmp_path: Path) -> None:
    model, out = model_file(tmp_path, "x"), tmp_path / "plan"
    for line in (f"plan {model} --gpus 2 -o {out}", f"run {out} --verify"):
        done = subprocess.run(
            ["bash", "-c", f'"$0" -m planner {line} <&-', sys.executable], cwd=ROOT, capture_output=True, timeout=300
        )
        assert done.returncode == 0, done.stderr


def test_streams_that_lead_to_one_file(tmp_path: Path) -> None:
    with (tmp_path / "a").open("w") as a, (tmp_path / "b").open("w") as b, os.fdopen(os.dup(a.fileno()), "w") as again:
        assert are_one(a, again)
        assert not are_one(a, b)
        assert not are_one(a, None)
        assert not are_one(a, io.StringIO())
