"""Files and folders that are whole or not there, whatever happens to who writes them; and places tried beforehand."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from planner import unfinished
from planner.errors import UsageError
from planner.unfinished import remove_folder, sweep
from planner.whole import try_file, try_folder, whole_file, whole_folder

KILLED = """
import os, signal, sys
from pathlib import Path
sys.path.insert(0, {root!r})
from planner import unfinished
from planner.whole import whole_file, whole_folder
target = Path(sys.argv[1])
{before}
with {kind}(target) as place:
    {fill}
    {end}
"""
END = "os.kill(os.getpid(), signal.SIGKILL)"
ROOT = str(Path(unfinished.__file__).parents[1])


def killed(target: Path, kind: str = "whole_folder", *, before: str = "", fill: str = "", end: str = END) -> None:
    """Writes in a process that is killed on the way."""
    fill = fill or ("place.write(b'half')" if kind == "whole_file" else "(place / 'a').write_text('half')")
    script = KILLED.format(root=ROOT, kind=kind, before=before, fill=fill, end=end)
    assert subprocess.run([sys.executable, "-c", script, str(target)]).returncode == -signal.SIGKILL


def names(folder: Path) -> list[str]:
    return sorted(entry.name for entry in folder.iterdir())


@pytest.mark.parametrize("kind", ["whole_folder", "whole_file"])
def test_what_a_killed_process_leaves_goes_with_the_next_writing(kind: str, tmp_path: Path) -> None:
    killed(tmp_path / "a", kind)
    (left,) = names(tmp_path)
    assert left.startswith(".a.")
    assert left.endswith(".tofu-unfinished")
    with whole_file(tmp_path / "b") as stream:
        stream.write(b"all")
    assert names(tmp_path) == ["b"]


def test_what_somebody_still_writes_stays(tmp_path: Path) -> None:
    with whole_folder(tmp_path / "a") as folder, whole_file(tmp_path / "b") as stream:
        sweep(tmp_path)
        (folder / "x").write_text("all")
        stream.write(b"all")
    assert names(tmp_path) == ["a", "b"]
    assert names(tmp_path / "a") == ["x"]


def test_nothing_else_is_swept(tmp_path: Path) -> None:
    for name in (".a.12345678", ".a.tofu-unfinished", "a.12345678.tofu-unfinished", ".a.1234567.tofu-unfinished"):
        (tmp_path / name).mkdir()
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "x").write_text("mine")
    (tmp_path / ".a.12345678.tofu-unfinished").symlink_to(tmp_path / "elsewhere")
    before = names(tmp_path)
    sweep(tmp_path)
    assert names(tmp_path) == before
    assert names(tmp_path / "elsewhere") == ["x"]


def test_a_process_that_is_killed_while_it_replaces_leaves_the_old_one(tmp_path: Path) -> None:
    with whole_folder(tmp_path / "a") as folder:
        (folder / "x").write_text("old")
    rename = "rename = Path.rename\ndef once(path, to):\n    done = rename(path, to)\n"
    before = f"{rename}    if str(to).endswith('replaced'): {END}\n    return done\nPath.rename = once"
    killed(tmp_path / "a", before=before, end="pass")
    assert not (tmp_path / "a").exists()
    sweep(tmp_path)
    assert names(tmp_path) == ["a"]
    assert (tmp_path / "a" / "x").read_text() == "old"


def test_a_process_that_is_killed_while_it_removes_what_it_replaced(tmp_path: Path) -> None:
    with whole_folder(tmp_path / "a") as folder:
        (folder / "x").write_text("old")
    killed(tmp_path / "a", before=f"unfinished._remove = lambda path: {END}", end="pass")
    assert (tmp_path / "a" / "a").read_text() == "half"
    sweep(tmp_path)
    assert names(tmp_path) == ["a"]
    assert names(tmp_path / "a") == ["a"]


def test_a_folder_is_replaced_or_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for text in ("old", "new"):
        with whole_folder(tmp_path / "a") as folder:
            (folder / "x").write_text(text)
    assert names(tmp_path) == ["a"]
    assert (tmp_path / "a" / "x").read_text() == "new"
    rename = Path.rename

    def full(path: Path, to: Path) -> Path:
        if to == tmp_path / "a" and path.name.endswith("unfinished"):
            raise OSError(28, "No space left on device")
        return rename(path, to)

    monkeypatch.setattr(Path, "rename", full)
    with pytest.raises(UsageError, match="No space"), whole_folder(tmp_path / "a") as folder:
        (folder / "x").write_text("newer")
    assert names(tmp_path) == ["a"]
    assert (tmp_path / "a" / "x").read_text() == "new"


@pytest.mark.parametrize("kind", ["file", "link"])
def test_what_is_no_folder_is_not_replaced(kind: str, tmp_path: Path) -> None:
    (tmp_path / "b").mkdir()
    if kind == "file":
        (tmp_path / "a").write_text("mine")
    else:
        (tmp_path / "a").symlink_to(tmp_path / "b")
    with pytest.raises(UsageError, match="Not a directory"), whole_folder(tmp_path / "a"):
        pass
    assert names(tmp_path) == ["a", "b"]


def test_a_removed_folder_is_gone(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "x").write_text("")
    remove_folder(tmp_path / "a")
    assert names(tmp_path) == []


def test_places_that_can_be_written(tmp_path: Path) -> None:
    (tmp_path / "old").write_text("old")
    try_file(tmp_path / "old")
    try_file(tmp_path / "new")
    try_folder(tmp_path / "no" / "such")
    try_folder(tmp_path)
    assert names(tmp_path) == ["old"]
    assert (tmp_path / "old").read_text() == "old"


def test_places_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    os.mkfifo(tmp_path / "pipe")
    for target, says in (
        (tmp_path, "it is a folder"),
        (tmp_path / "pipe", "it is no regular file"),
        (Path("/dev/null"), "it is no regular file"),
        (tmp_path / "none" / "new", f"there is no folder {tmp_path}/none"),
        (Path("/proc/new"), "cannot be written: "),
    ):
        with pytest.raises(UsageError) as caught:
            try_file(target)
        assert caught.value.what.startswith(f"{target} cannot be written: ")
        assert says in caught.value.what
    with pytest.raises(UsageError, match="it is no folder"):
        try_folder(tmp_path / "file")
    with pytest.raises(UsageError, match="file is no folder"):
        try_folder(tmp_path / "file" / "within")


def test_a_sweep_that_comes_before_the_lock_costs_another_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    created = unfinished._created
    made: list[Path] = []

    def swept_once(target: Path, suffix: str, *, is_folder: bool) -> Path:
        made.append(created(target, suffix, is_folder=is_folder))
        if len(made) == 1:
            sweep(target.parent)
        return made[-1]

    monkeypatch.setattr(unfinished, "_created", swept_once)
    with whole_file(tmp_path / "a") as stream:
        stream.write(b"all")
    assert len(made) == 2
    assert names(tmp_path) == ["a"]


def test_where_there_are_no_locks_nothing_is_marked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unfinished, "_lock", lambda _descriptor, _path: False)
    with whole_folder(tmp_path / "a") as folder:
        (left,) = names(tmp_path)
        assert not left.endswith("unfinished")
        sweep(tmp_path)
        (folder / "x").write_text("all")
    assert names(tmp_path) == ["a"]
