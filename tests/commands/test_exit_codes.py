"""How a command ends: refusals, bugs, interrupts, files of the user's."""

from __future__ import annotations

import errno
import signal
from pathlib import Path

import numpy as np
import pytest

from command_line import Door, raises, tofu
from planner import errors
from planner.commands import main as cli


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (errors.InfeasibleError("no plan"), 1),
        (errors.DifferenceError("differs"), 1),
        (errors.UsageError("bad option"), 2),
        (errors.ModelError("bad model"), 2),
        (errors.UnsupportedError("operator"), 2),
        (errors.DescriptionError("description"), 2),
        (errors.WorkerError("worker 2 failed"), 3),
    ],
)
@pytest.mark.parametrize("json_wanted", [False, True])
def test_exit_codes_of_the_tree(
    error: errors.TofuError, code: int, json_wanted: bool, door: Door, capsys: pytest.CaptureFixture[str]
) -> None:
    door.answer = raises(error)
    assert cli.main(["plan", "m.onnx", "--gpus", "2", *(["--json"] if json_wanted else [])]) == code
    out, err = capsys.readouterr()
    assert out == ""
    assert err == f"a library speaks\nerror: {error.what}\n"


def test_an_error_has_facts_and_a_hint(door: Door, capsys: pytest.CaptureFixture[str]) -> None:
    door.answer = raises(
        errors.ModelError("m.onnx: dims are not bound", facts=("x: batch", "[conv1]\x1b[31m: n"), hint="--dim batch=8")
    )
    assert cli.main(["plan", "m.onnx", "--gpus", "2"]) == 2
    assert capsys.readouterr().err == (
        "a library speaks\nerror: m.onnx: dims are not bound\n  x: batch\n  [conv1]\\x1b[31m: n\nhint: --dim batch=8\n"
    )


def test_a_bug_saves_its_traceback(door: Door, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    door.answer = raises(AssertionError("two\nlines"))
    assert cli.main(["plan", "m.onnx", "--gpus", "2"]) == 4
    (saved,) = tmp_path.iterdir()
    out, err = capsys.readouterr()
    assert out == ""
    assert err.splitlines()[1:] == [
        "error: a bug in tofu: AssertionError: two lines",
        f"  traceback saved in {saved}",
        "hint: please report it, with that traceback and the model",
    ]
    text = saved.read_text(encoding="utf-8")
    assert text.startswith("tofu plan m.onnx --gpus 2\npython 3.")
    assert "Traceback (most recent call last)" in text
    assert text.endswith("AssertionError: two\nlines\n")


def test_a_bug_without_a_place_to_save_prints_its_traceback(
    door: Door, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "missing"))
    door.answer = raises(ZeroDivisionError())
    assert cli.main(["run"]) == 4
    err = capsys.readouterr().err
    assert "error: a bug in tofu: ZeroDivisionError\n" in err
    assert "Traceback (most recent call last)" in err


def test_many_findings_are_counted(door: Door, capsys: pytest.CaptureFixture[str]) -> None:
    facts = tuple(f"line {number}: unknown key" for number in range(1, 2004))
    door.answer = raises(errors.UsageError("topology t.yaml cannot be used", facts=facts))
    assert cli.main(["plan", "m.onnx", "--gpus", "2"]) == 2
    lines = capsys.readouterr().err.splitlines()
    assert lines[1:] == [
        "error: topology t.yaml cannot be used",
        *(f"  line {number}: unknown key" for number in range(1, 21)),
        "  … and 1,983 more",
    ]


def test_a_few_findings_are_all_told() -> None:
    facts = tuple(str(number) for number in range(20))
    assert errors.UsageError("what", facts=facts).shown_facts == facts


def test_too_little_memory_for_an_array(door: Door, capsys: pytest.CaptureFixture[str]) -> None:
    door.answer = lambda: np.empty((2**30, 2**30), np.float32)
    assert cli.main(["run"]) == 1
    err = capsys.readouterr().err
    assert "error: this machine has too little memory\n  the process has taken " in err
    assert f"\n  an array of float32 [{2**30}, {2**30}] needs {2**62:,} bytes more\n" in err


@pytest.mark.parametrize("error", [MemoryError(), OSError(errno.ENOMEM, "Cannot allocate memory")])
def test_too_little_memory(error: BaseException, door: Door, capsys: pytest.CaptureFixture[str]) -> None:
    door.answer = raises(error)
    assert cli.main(["run"]) == 1
    assert "bytes\n  it needs more than that\nhint: " in capsys.readouterr().err


def test_terminated(door: Door, capsys: pytest.CaptureFixture[str]) -> None:
    before = signal.getsignal(signal.SIGTERM)
    door.answer = lambda: signal.raise_signal(signal.SIGTERM)
    assert cli.main(["run"]) == 143
    assert capsys.readouterr().err.endswith("terminated\n")
    assert signal.getsignal(signal.SIGTERM) is before


def test_who_is_terminated_already_is_not_disturbed(door: Door) -> None:
    ended = []

    def clean_up_slowly() -> None:
        try:
            signal.raise_signal(signal.SIGTERM)
        finally:
            signal.raise_signal(signal.SIGTERM)
            ended.append(True)

    door.answer = clean_up_slowly
    assert cli.main(["run"]) == 143
    assert ended == [True]


def test_interrupted(door: Door, capsys: pytest.CaptureFixture[str]) -> None:
    door.answer = raises(KeyboardInterrupt())
    assert cli.main(["run"]) == 130
    assert capsys.readouterr().err.endswith("interrupted\n")


def _during_an_interrupt(how: str) -> None:
    try:
        raise KeyboardInterrupt
    except KeyboardInterrupt as interrupt:
        if how == "cause":
            raise ImportError("numpy's C extensions failed") from interrupt
        raise ImportError("numpy's C extensions failed")  # noqa: B904  as NumPy does


@pytest.mark.parametrize("how", ["cause", "context"])
def test_an_interrupt_that_became_another_error(
    how: str, door: Door, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    door.answer = lambda: _during_an_interrupt(how)
    assert cli.main(["run"]) == 130
    assert capsys.readouterr().err.endswith("interrupted\n")
    assert not list(tmp_path.iterdir())


def test_an_interrupt_while_an_error_is_handled(
    door: Door, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(cli, "_bug", lambda _error, _given: raises(KeyboardInterrupt())())
    door.answer = raises(ZeroDivisionError())
    assert cli.main(["run"]) == 130
    assert capsys.readouterr().err.endswith("interrupted\n")


@pytest.mark.parametrize(
    ("error", "says"),
    [
        (PermissionError(errno.EACCES, "Permission denied", "/plan"), "error: /plan: Permission denied\n"),
        (
            OSError(errno.ENOSPC, "No space left on device", "p/plan.json"),
            "error: p/plan.json: No space left on device\n",
        ),
    ],
)
def test_a_file_of_the_users(error: OSError, says: str, door: Door, capsys: pytest.CaptureFixture[str]) -> None:
    door.answer = raises(error)
    assert cli.main(["run"]) == 2
    assert capsys.readouterr().err.endswith(says)


def test_the_process_exits_with_the_code() -> None:
    done = tofu("plaan")
    assert (done.returncode, done.stdout) == (2, "")
