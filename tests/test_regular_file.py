"""Files that are read whole: regular ones only, up to a size."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from planner.errors import ModelError, TofuError, UsageError
from planner.graph.reading.load import load_model
from planner.machine.device_profile import load_profile
from planner.machine.topology_file import load_topology
from planner.regular_file import digest_of, read_regular
from planner.strict_json import JsonError, read_json
from planner.training.doors.pairs import read_pairs


@pytest.fixture
def pipe(tmp_path: Path) -> Path:
    path = tmp_path / "pipe.yaml"
    os.mkfifo(path)
    return path


def test_a_file_is_read_and_a_larger_one_is_not(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"12345")
    assert read_regular(path, most_bytes=5) == b"12345"
    with pytest.raises(OSError, match="more than 4 bytes") as caught:
        read_regular(path, most_bytes=4)
    assert caught.value.strerror == "it has more than 4 bytes"


def test_a_file_of_the_system_that_states_no_size_is_no_larger() -> None:
    with pytest.raises(OSError, match="more than 3 bytes"):
        read_regular(Path("/proc/self/status"), most_bytes=3)


def test_links_to_files_are_followed(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"x")
    (tmp_path / "link").symlink_to("a")
    assert read_regular(tmp_path / "link") == b"x"
    assert digest_of(tmp_path / "link").startswith("2d711642")


def test_nothing_waits_for_a_pipe(pipe: Path) -> None:
    said = []
    for read in (load_topology, load_profile, read_pairs, load_model):
        with pytest.raises(TofuError) as caught:
            read(pipe)
        said.append(caught.value.what)
    assert all("not a regular file" in what for what in said)
    assert len(said) == 4
    with pytest.raises(JsonError, match="it is a pipe, not a regular file"):
        read_json(pipe)


def test_a_device_is_not_read() -> None:
    with pytest.raises(UsageError, match="cannot be read: it is a device, not a regular file"):
        load_topology("/dev/zero")
    with pytest.raises(ModelError, match="is not a regular file"):
        load_model("/dev/zero")


def test_many_pairs_are_read_by_libyaml(tmp_path: Path) -> None:
    """Each name was counted among all names before, and events were made by PyYAML's own reader."""
    path = tmp_path / "pairs.yaml"
    path.write_text("".join(f"w{number}: n{number}\n" for number in range(5_000)))
    assert len(read_pairs(path)) == 5_000
    path.write_text("".join(f"w{number % 4_999}: n{number}\n" for number in range(5_000)))
    with pytest.raises(UsageError, match="not a file of pairs") as caught:
        read_pairs(path)
    assert caught.value.facts == ("'w0' is there twice",)
