"""``tofu explain``: a folder, a subject, or both."""

from __future__ import annotations

from pathlib import Path

import pytest

from command_line import Door, assert_refused
from planner.commands import main as cli


def test_explain_takes_a_directory_or_a_subject(door: Door, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "p").mkdir()
    for arguments, directory, subject in [
        ([], None, None),
        (["p"], Path("p"), None),
        (["p", "fc.weight"], Path("p"), "fc.weight"),
        (["fc.weight"], None, "fc.weight"),
        (["layer1/conv"], None, "layer1/conv"),
        (["p/missing"], Path("p/missing"), None),
        (["/missing"], Path("/missing"), None),
        (["./nosuch"], Path("nosuch"), None),
        (["../nosuch"], Path("../nosuch"), None),
        (["model.onnx"], Path("model.onnx"), None),
        (["p", "model.onnx"], Path("p"), "model.onnx"),
    ]:
        assert cli.main(["explain", *arguments]) == 0
        assert door.calls.pop() == ("explain", (directory,), {"subject": subject})


def test_memory_is_of_a_worker_alone(door: Door, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["explain", "./p", "--view", "memory", "--worker", "2"]) == 0
    assert door.calls.pop() == ("memory", (Path("p"),), {"worker": 2})
    assert cli.main(["explain", "./p", "--view", "memory"]) == 0
    assert door.calls.pop() == ("memory", (Path("p"),), {"worker": None})
    assert cli.main(["explain", "missing", "--view", "memory"]) == 0
    assert door.calls.pop() == ("memory", (Path("missing"),), {"worker": None})
    capsys.readouterr()
    refused = "tells of a worker, and takes no tensor or op"
    assert_refused("explain ./p fc.weight --view memory", refused, door, capsys)
    assert_refused("explain ./p --view memory --sort size", "takes no --sort", door, capsys)
    assert_refused("explain ./p --worker 1", "--worker: of one worker, memory is told", door, capsys)


def test_time_is_of_all_workers(door: Door, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["explain", "./p", "--view", "time"]) == 0
    assert door.calls.pop() == ("simulate", (Path("p"),), {})
    capsys.readouterr()
    refused = "tells of all workers, and takes no tensor or op"
    assert_refused("explain ./p fc.weight --view time", refused, door, capsys)


@pytest.mark.parametrize(
    ("view", "asked"),
    [("all", {"every": True}), ("next-state", {"role": "next-state"})],
)
def test_other_views_are_of_tensors_and_ops(view: str, asked: dict[str, object], door: Door) -> None:
    assert cli.main(["explain", "./p", "fc.*", "--view", view, "--sort", "size"]) == 0
    assert door.calls.pop() == ("explain", (Path("p"),), {"subject": "fc.*", "sort": "size", **asked})


@pytest.mark.parametrize("view", [[], ["fc.*", "--view", "bounds"]])
def test_lists_alone_are_sorted(view: list[str], door: Door, capsys: pytest.CaptureFixture[str]) -> None:
    line = " ".join(("explain ./p", *view))
    assert_refused(f"{line} --sort moved", "hint: write --view all", door, capsys)
    assert cli.main(["explain", "./p", "--sort", "moved", "--json"]) == 0
    assert door.calls.pop()[2]["sort"] == "moved"
