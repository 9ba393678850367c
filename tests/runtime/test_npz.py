"""npz and npy files: what is declared is believed only where it is there, and nothing is allocated for the rest."""

from __future__ import annotations

import io
import os
import tracemalloc
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays_of

from planner.algebra.region import Region
from planner.errors import UsageError
from planner.features.zoo.models import mlp
from planner.runtime.values.npz import read_npy, read_npz
from planner.runtime.values.safetensors import write_safetensors
from planner.runtime.values.state import given_inputs
from planner.runtime.values.weight_file import WeightFile

GRAPH = mlp(2, 8, 16)
MIB = 2**20


@contextmanager
def little_memory(most_bytes: int = 20 * MIB) -> Iterator[None]:
    """Fails if more is allocated inside, by Python or NumPy, than is allowed."""
    tracemalloc.start()
    try:
        yield
        assert tracemalloc.get_traced_memory()[1] < most_bytes
    finally:
        tracemalloc.stop()


def npy(shape: str, data: bytes = b"", descr: str = "'<f4'") -> bytes:
    """An npy file that declares a shape."""
    text = f"{{'descr': {descr}, 'fortran_order': False, 'shape': {shape}, }}\n".encode()
    return b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text + data


def archive(path: Path, *entries: tuple[str, bytes], packed: int = zipfile.ZIP_DEFLATED) -> Path:
    with zipfile.ZipFile(path, "w", packed) as file:
        for name, content in entries:
            file.writestr(name, content)
    return path


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (npy("(17179869184,)", b"1234"), "x: it declares 68,719,476,736 bytes, which are not there"),
        (npy("(2,)", b"1234"), "x: it declares 8 bytes, which are not there"),
        (npy("(1,)", b"12345678"), "x: it declares 4 bytes, which are not there"),
        (npy("(-1,)", b"1234"), "x: it declares a shape that no tensor has"),
        (npy("(True,)", b"1234"), "x: it declares a shape that no tensor has"),
        (npy(f"({2**40}, {2**40})"), "x: it declares a shape that no tensor has"),
        (npy("(" * 4000), "x: it has a damaged header"),
        (npy("(1,)", b"", "'<V2000000000'"), "x: it is of |V2000000000, and no plain array"),
        (npy("(1,)", b"", "[('a', '<f4')]"), "and no plain array"),
        (npy("(1,)", b"", "'|O'"), "x: it holds Python objects, which are never loaded"),
        (b"\x93NUMPY\x02\x00\xff\xff\xff\xff", "x: it has a header that is too long"),
        (b"\x93NUMPY\x03\x00\x10\x00\x00\x00", "x: it is of a version of the npy format that has no plain arrays"),
        (b"no array", "x: it is no array"),
    ],
)
def test_what_an_entry_declares_and_is_not_there(content: bytes, said: str, tmp_path: Path) -> None:
    path = archive(tmp_path / "a.npz", ("x.npy", content))
    with little_memory(), pytest.raises(UsageError, match="holds what cannot be read") as caught:
        read_npz(path)
    assert said in caught.value.facts[0]


def test_a_bomb_is_refused_by_what_it_declares(tmp_path: Path) -> None:
    """64 MiB of zeros are 64 kB in the archive."""
    zeros = npy(f"({16 * MIB},)", bytes(64 * MIB))
    path = archive(tmp_path / "a.npz", ("x0.npy", zeros))
    assert path.stat().st_size < MIB
    with little_memory():
        for refused in (lambda: given_inputs(GRAPH, path), lambda: WeightFile(path, GRAPH)):
            with pytest.raises(UsageError, match="does not fit the model"):
                refused()


def test_a_bomb_that_nobody_asks_for_is_not_read(tmp_path: Path) -> None:
    zeros = npy(f"({16 * MIB},)", bytes(64 * MIB))
    x0 = io.BytesIO()
    np.save(x0, np.ones(GRAPH.tensors["x0"].shape, np.float32))
    path = archive(tmp_path / "a.npz", ("x0.npy", x0.getvalue()), ("out_y.npy", zeros))
    with little_memory():
        assert list(given_inputs(GRAPH, path)) == ["x0"]


def test_a_size_that_the_archive_states_and_cannot_hold(tmp_path: Path) -> None:
    """The entry's own size is a lie as well: so few bytes cannot stand for so many."""
    content = npy(f"({2**34},)", b"1234")
    path = archive(tmp_path / "a.npz", ("x.npy", content))
    raw = path.read_bytes()
    told = len(content).to_bytes(4, "little")
    assert raw.count(told) >= 2
    path.write_bytes(raw.replace(told, (2**32 - 2).to_bytes(4, "little")))
    with little_memory(), pytest.raises(UsageError):
        read_npz(path)


def test_entries_that_are_no_arrays(tmp_path: Path) -> None:
    one = npy("(1,)", b"1234")
    with pytest.warns(UserWarning, match="Duplicate name"):
        path = archive(tmp_path / "a.npz", ("x.npy", one), ("x.npy", one), ("readme.txt", b"text"))
    with pytest.raises(UsageError) as caught:
        read_npz(path)
    assert caught.value.facts == ("x: is there twice", "readme.txt: it is no array")
    path = archive(tmp_path / "b.npz", ("x.npy", one), packed=zipfile.ZIP_LZMA)
    with pytest.raises(UsageError, match="holds what cannot be read") as caught:
        read_npz(path)
    assert caught.value.facts == ("x: it is packed in another way than NumPy's",)


def test_what_is_damaged_behind_its_header(tmp_path: Path) -> None:
    path = archive(tmp_path / "a.npz", ("x.npy", npy("(100,)", bytes(range(200)) * 2)), packed=zipfile.ZIP_STORED)
    raw = bytearray(path.read_bytes())
    raw[300] ^= 1
    path.write_bytes(raw)
    with pytest.raises(UsageError, match="holds what cannot be read") as caught:
        read_npz(path)
    assert caught.value.facts == ("x: it is damaged",)


PLAIN = arrays_of.arrays(
    st.sampled_from(["<f4", ">f4", "<f8", "<i8", ">i4", "|b1", "|u1"]).map(np.dtype),
    arrays_of.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=4),
)


@given(PLAIN, st.booleans(), st.booleans())
def test_what_numpy_writes_is_read(
    tmp_path_factory: pytest.TempPathFactory, array: np.ndarray, is_fortran: bool, is_packed: bool
) -> None:
    folder = tmp_path_factory.getbasetemp()
    value = np.asfortranarray(array) if is_fortran and array.ndim else array
    (np.savez_compressed if is_packed else np.savez)(folder / "a.npz", x=value)
    np.save(folder / "a.npy", value)
    for read in (read_npz(folder / "a.npz")["x"], read_npy(folder / "a.npy")):
        assert (read.dtype, read.shape, read.tobytes()) == (value.dtype, value.shape, value.tobytes())


def test_an_npy_file_that_is_cut_off(tmp_path: Path) -> None:
    path = tmp_path / "x.npy"
    path.write_bytes(npy("(17179869184,)", b"1234"))
    with little_memory(), pytest.raises(UsageError) as caught:
        read_npy(path)
    assert caught.value.what == f"{path} cannot be read as npy: it declares 68,719,476,736 bytes, and 4 are there"


def test_an_npy_file_that_is_cut_short_while_it_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "x.npy"
    np.save(path, np.ones(1000))

    def shorter(*arguments: Any) -> int:
        os.truncate(path, 200)
        return preadv(*arguments)

    preadv = os.preadv
    monkeypatch.setattr(os, "preadv", shorter)
    with pytest.raises(UsageError, match=r"x\.npy cannot be read as npy: it was cut short meanwhile"):
        read_npy(path)


def test_weights_that_are_cut_short_after_their_header_was_read(tmp_path: Path) -> None:
    name = GRAPH.state[0].current
    tensor = GRAPH.tensors[name]
    path = tmp_path / "w.safetensors"
    write_safetensors(path, {name: tensor}, lambda _: np.ones(tensor.shape, np.float32))
    weights = WeightFile(path, GRAPH)
    assert weights.tile(name, Region.whole(tensor.shape)).sum() == tensor.elements
    os.truncate(path, path.stat().st_size - 8)
    with pytest.raises(UsageError, match=r"w\.safetensors ends before the tensor does"):
        weights.tile(name, Region.whole(tensor.shape))
