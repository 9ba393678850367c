"""External data, tile by tile: the same values as inline, and eight ways in which a file can be wrong."""

from __future__ import annotations

import errno
import os
import resource
import socket
from collections.abc import Callable
from math import prod
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import numpy_helper

from planner.algebra.region import Region
from planner.errors import ModelError
from planner.graph.core.model import DType, Graph, Tensor
from planner.graph.files.data_folder import Followed
from planner.graph.files.external import stored_bytes
from planner.runtime.values import positions
from planner.runtime.values.external import ExternalData
from planner.runtime.values.state import Values

NARROW = (DType.INT4, DType.UINT4, DType.INT2, DType.UINT2)


def graph_of(**tensors: tuple[Tensor, str]) -> Graph:
    """A graph of constants in files; by name, the tensor and what the note says of it, as JSON."""
    note = ", ".join(f'"{name}": {{{entry}}}' for name, (_, entry) in tensors.items())
    return Graph(
        "g",
        {name: tensor for name, (tensor, _) in tensors.items()},
        (),
        (),
        (),
        dict.fromkeys(tensors),
        notes={"tofu.external": f"{{{note}}}"},
    )


def random_bits(tensor: Tensor, seed: int) -> np.ndarray:
    rng = np.random.default_rng(seed)
    if tensor.dtype in NARROW:
        lo, hi = {"int4": (-8, 8), "uint4": (0, 16), "int2": (-2, 2), "uint2": (0, 4)}[tensor.dtype.value]
        return rng.integers(lo, hi, tensor.shape).astype(tensor.dtype.array_dtype)
    if tensor.dtype is DType.BOOL:
        return rng.integers(0, 2, tensor.shape).astype(bool)
    raw = rng.integers(0, 256, tensor.elements * tensor.dtype.item_bytes, np.uint8)
    return raw.view(tensor.dtype.array_dtype).reshape(tensor.shape)


@given(st.data())
def test_a_tile_has_the_bits_that_the_whole_has(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    shape = tuple(data.draw(st.lists(st.integers(1, 9), max_size=4)))
    tensor = Tensor("W", shape, data.draw(st.sampled_from(DType)))
    offset = data.draw(st.integers(0, 9))
    space = shape or (1,)
    lo = tuple(data.draw(st.integers(0, size - 1)) for size in space)
    hi = tuple(data.draw(st.integers(start + 1, size)) for start, size in zip(lo, space, strict=True))
    whole = random_bits(tensor, data.draw(st.integers(0, 99)))
    stored = numpy_helper.from_array(whole).raw_data
    folder = tmp_path_factory.getbasetemp()
    (folder / "w.bin").write_bytes(b"\xff" * offset + stored + b"\xff")
    graph = graph_of(W=(tensor, f'"location": "w.bin", "offset": "{offset}", "length": "{len(stored)}"'))
    # Small limits, so that every way to read is gone.
    with pytest.MonkeyPatch.context() as patch:
        read, page = data.draw(st.sampled_from([(3, 2), (30, 7), (1 << 18, 1 << 10)]))
        patch.setattr(positions, "_READ_ELEMENTS", read)
        patch.setattr(positions, "_PAGE_ELEMENTS", page)
        tile = ExternalData(graph, ["W"], Followed((folder,))).tile("W", Region(lo, hi))
    wanted = whole.reshape(space)[tuple(map(slice, lo, hi))]
    assert (tile.dtype, tile.shape) == (whole.dtype, wanted.shape)
    assert tile.tobytes() == np.ascontiguousarray(wanted).tobytes()


def test_a_tile_of_a_large_file_takes_no_more_memory_than_itself(tmp_path: Path) -> None:
    shape = (1 << 16, 1 << 14)
    with (tmp_path / "w.bin").open("wb") as file:
        file.truncate(4 * prod(shape))  # 4 GiB, of which nothing is on the disk
        file.seek(4 * ((1 << 14) * 3 + 5))
        file.write(np.float32(2.5).tobytes())
    data = ExternalData(
        graph_of(W=(Tensor("W", shape, DType.FLOAT32), '"location": "w.bin"')), ["W"], Followed((tmp_path,))
    )
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    tile = data.tile("W", Region((0, 4), (64, 8)))
    assert tile[3, 1] == 2.5
    assert np.count_nonzero(tile) == 1
    assert data.tile("W", Region((3, 0), (5, 1 << 14)))[0, 5] == 2.5
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 16_000, "kB"


def missing(path: Path) -> None:
    path.unlink()


def short(path: Path) -> None:
    os.truncate(path, 1000 + 47)


def past_the_end(path: Path) -> None:
    os.truncate(path, 20)


def link(path: Path) -> None:
    path.rename(path.parent.parent / "secret")
    path.symlink_to(path.parent.parent / "secret")


def link_on_the_way(path: Path) -> None:
    path.parent.rename(path.parent.parent / "elsewhere")
    path.parent.symlink_to(path.parent.parent / "elsewhere")


def pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


def device(path: Path) -> None:
    path.unlink()
    path.symlink_to("/dev/zero")


def unix_socket(path: Path) -> None:
    path.unlink()
    here = Path.cwd()
    os.chdir(path.parent)  # a socket's whole path may be too long
    try:
        socket.socket(socket.AF_UNIX).bind(path.name)
    finally:
        os.chdir(here)


def hard_link(path: Path) -> None:
    os.link(path, path.with_name("other"))


def unreadable(path: Path) -> None:
    path.chmod(0)


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (missing, "W: inner/w.bin is not there"),
        (short, "W: inner/w.bin has 1047 bytes, and the tensor is at 1000 to 1048"),
        (past_the_end, "W: inner/w.bin has 20 bytes, and the tensor is at 1000 to 1048"),
        (link, "W: inner/w.bin is behind a link, and links are not followed"),
        (link_on_the_way, "W: inner/w.bin is behind a link, and links are not followed"),
        (pipe, "W: inner/w.bin is a pipe, not a regular file"),
        (folder, "W: inner/w.bin is a folder, not a regular file"),
        (device, "W: inner/w.bin is behind a link, and links are not followed"),
        (unix_socket, "W: inner/w.bin is a socket, not a regular file"),
        (hard_link, "W: inner/w.bin is a file of several names (hard links), and links are not followed"),
        pytest.param(
            unreadable,
            "W: inner/w.bin cannot be read: Permission denied",
            marks=pytest.mark.skipif(os.geteuid() == 0, reason="needs a user who may not read everything"),
        ),
    ],
)
def test_a_wrong_file_is_refused(spoil: Callable[[Path], None], said: str, tmp_path: Path) -> None:
    path = tmp_path / "inner" / "w.bin"
    path.parent.mkdir()
    path.write_bytes(bytes(1048))
    tensor = Tensor("W", (3, 4), DType.FLOAT32)
    graph = graph_of(W=(tensor, '"location": "inner/w.bin", "offset": "1000"'))
    assert Values(graph, data=Followed((tmp_path,))).whole("W").shape == (3, 4)
    spoil(path)
    with pytest.raises(ModelError, match=r"weights cannot be read from .*: 1 of 1 tensors") as caught:
        Values(graph, data=Followed((tmp_path,)))
    assert caught.value.facts == (said,)
    assert all(way in caught.value.hint for way in ("--data-dir", "--weights", "--weights random"))
    assert ("cp -rL" in caught.value.hint) == ("link" in said)


def test_a_device_is_not_opened(tmp_path: Path) -> None:
    graph = graph_of(W=(Tensor("W", (3,), DType.UINT8), '"location": "null"'))
    with pytest.raises(ModelError) as caught:
        Values(graph, data=Followed((Path("/dev"),)))
    assert caught.value.facts == ("W: null is a device, not a regular file",)


def test_a_file_that_changes_after_it_was_looked_at(tmp_path: Path) -> None:
    (tmp_path / "w.bin").write_bytes(bytes(48))
    values = Values(graph_of(W=(Tensor("W", (3, 4), DType.FLOAT32), '"location": "w.bin"')), data=Followed((tmp_path,)))
    os.truncate(tmp_path / "w.bin", 20)
    with pytest.raises(ModelError, match=r"tensor 'W': .*w\.bin ends before the tensor does"):
        values.whole("W")


def test_a_disk_that_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "w.bin").write_bytes(bytes(48))
    values = Values(graph_of(W=(Tensor("W", (3, 4), DType.FLOAT32), '"location": "w.bin"')), data=Followed((tmp_path,)))

    def fail(*_arguments: object) -> int:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(os, "preadv", fail)
    with pytest.raises(ModelError, match=r"tensor 'W': .*w\.bin cannot be read: Input/output error"):
        values.whole("W")


def test_all_findings_at_once_and_no_more_than_twenty(tmp_path: Path) -> None:
    tensors = {
        f"w{number}": (Tensor(f"w{number}", (2,), DType.FLOAT32), f'"location": "{number}"') for number in range(30)
    }
    (tmp_path / "3").write_bytes(bytes(8))
    with pytest.raises(ModelError, match="29 of 30 tensors") as caught:
        Values(graph_of(**tensors), data=Followed((tmp_path, tmp_path / "other")))
    assert caught.value.facts[0] == f"not all are in {tmp_path / 'other'} either"
    assert len(caught.value.facts) == 30
    assert len(str(caught.value).splitlines()) < 25


def test_without_a_folder_nothing_is_made_up() -> None:
    graph = graph_of(W=(Tensor("W", (3, 4), DType.FLOAT32), '"location": "w.bin"'))
    with pytest.raises(ModelError, match="nothing says where"):
        Values(graph)


def test_random_weights_open_no_file(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "w.bin")
    tensor = Tensor("W", (3, 4), DType.FLOAT32)
    values = Values(
        graph_of(W=(tensor, '"location": "w.bin"')), data=Followed((tmp_path,)), random_weights=True, seed=3
    )
    assert values.drawn.weights == (tensor,)
    assert (values.drawn.weight_bytes, values.drawn.seed, values.data_folder) == (
        stored_bytes(DType.FLOAT32, 12),
        3,
        None,
    )
    assert len(np.unique(values.whole("W"))) == 12
