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
    ]:
        assert cli.main(["explain", *arguments]) == 0
        assert door.calls.pop() == ("explain", (directory,), {"subject": subject, "opdefs": None, "runners_up": 3})


def test_memory_is_of_a_worker_alone(door: Door, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["explain", "./p", "--memory", "--worker", "2"]) == 0
    assert door.calls.pop() == ("memory", (Path("p"),), {"worker": 2, "opdefs": None})
    assert cli.main(["explain", "./p", "--memory"]) == 0
    assert door.calls.pop() == ("memory", (Path("p"),), {"worker": None, "opdefs": None})
    assert cli.main(["explain", "missing", "--memory"]) == 0
    assert door.calls.pop() == ("memory", (Path("missing"),), {"worker": None, "opdefs": None})
    capsys.readouterr()
    assert_refused("explain ./p fc.weight --memory", "tells of a worker, and takes no tensor or op", door, capsys)
    assert_refused("explain ./p --memory --bounds", "takes no --bounds", door, capsys)
    assert_refused("explain ./p --worker 1", "--worker: of one worker, memory is told", door, capsys)


def test_time_is_of_all_workers(door: Door, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["explain", "./p", "--time"]) == 0
    assert door.calls.pop() == ("simulate", (Path("p"),), {})
    assert cli.main(["explain", "missing", "--time", "--topology", "t.yaml", "--profile", "p.yaml"]) == 0
    given = {"topology": "t.yaml", "profile": Path("p.yaml")}
    assert door.calls.pop() == ("simulate", (Path("missing"),), given)
    capsys.readouterr()
    assert_refused("explain ./p fc.weight --time", "tells of all workers, and takes no tensor or op", door, capsys)
    assert_refused("explain ./p --memory --time", "takes no --time", door, capsys)
    assert_refused("explain ./p --topology t.yaml", "--topology: times are told with it", door, capsys)
