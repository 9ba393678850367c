"""Fetches on GPUs: the work list, the kernel's code under sanitizers, and what NVIDIA's compiler makes of it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

import multifetch_emulation as emulation
import nvrtc
from multifetch_emulation import WORKER, Buffer, Emulation, Group
from planner.algebra.region import Region
from planner.algebra.tiling import Reducer
from planner.artifacts.program import Fetch, Piece, Source
from planner.errors import UnsupportedError
from planner.graph.core.model import DType
from planner.runtime.engine.core.transport import Tile
from planner.runtime.engine.gpu.devices import probe_cuda
from planner.runtime.engine.gpu.fetches import fetch_kernel as kernel
from planner.runtime.engine.gpu.fetches.fetch_kernel import Kind, kernel_source
from planner.runtime.engine.gpu.fetches.multifetch import ITEM_UNITS, joined_dims

ARCHITECTURES = ("75", "80", "90", "100")
COPY, SUM = Kind(16), Kind(16, DType.FLOAT32, Reducer.SUM)
FORMER_ROUND = 30
"""Instructions: the shortest way round the loop of the kernel before this one, of which each round moves an element.

Counted from the block that stores back to it, in the PTX for compute_75, 80 and 90 alike (commit 313789b, float32, a
copy or a sum). The way that a contiguous box takes is longer: it divides once for each array.
"""


def missing(what: str) -> None:
    """Skips, except in CI, where all must be there."""
    if os.environ.get("CI"):
        pytest.fail(what)
    pytest.skip(what)


def bound(*fetches: tuple[Fetch, DType], **buffers: Buffer) -> Group:
    """A group whose buffers are called by name and worker: ``t0`` is the worker's own, ``s1`` lies on worker 1."""
    return Group(fetches, {Source(int(name[1]), name[0]): buffer for name, buffer in buffers.items()})


def line(length: int, dtype: DType = DType.FLOAT32, phase: int = 0, value: float = 0) -> Buffer:
    return Buffer(Tile(np.full(length, value, dtype.array_dtype), Region((0,), (length,))), phase)


def copy_of(lo: int, hi: int, *sources: int, reducer: Reducer | None = None) -> Fetch:
    piece = Piece(Region((lo,), (hi,)), tuple(Source(worker, "s") for worker in sources))
    return Fetch("f", "t", (piece,), reducer, 0)


def widths(group: Group) -> list[tuple[int, int]]:
    """Of each item: the bytes of a unit, and how many units it has."""
    work, word = group.work(), kernel.Word
    return [
        (work.kinds[item[word.KIND]].unit_bytes, int(item[word.UNITS] * item[word.ROWS] * item[word.PLANES]))
        for item in work.items
    ]


def test_dims_are_joined_where_they_are_contiguous() -> None:
    assert joined_dims((4, 5, 6), [[30, 6, 1], [30, 6, 1]]) == ([120], [[1], [1]])
    assert joined_dims((4, 5, 6), [[30, 6, 1], [60, 6, 1]]) == ([4, 30], [[30, 1], [60, 1]])
    assert joined_dims((1, 1), [[7, 1]]) == ([], [[]])


def test_a_line_is_moved_16_bytes_at_once_but_for_its_ends() -> None:
    """10,000 floats from 8 bytes behind a multiple of 16: 2 alone, 2,499 units in items of 2,048 at most, 2 alone."""
    group = bound((copy_of(0, 10_000, 1), DType.FLOAT32), t0=line(10_000, phase=8), s1=line(10_000, phase=8))
    assert ITEM_UNITS == 2048
    assert widths(group) == [(4, 2), (16, 2048), (16, 451), (4, 2)]


def test_what_lies_otherwise_in_target_and_source_is_moved_as_wide_as_both_allow() -> None:
    for dtype, phase, width in ((DType.FLOAT32, 8, 8), (DType.FLOAT16, 4, 4), (DType.UINT8, 3, 1)):
        group = bound((copy_of(0, 4096, 1), dtype), t0=line(4096, dtype), s1=line(4096, dtype, phase))
        assert {unit for unit, _ in widths(group)} == {width}


def test_a_box_of_columns_is_moved_whole() -> None:
    """300 rows of 16 floats of 64: four units each, so 1,200 units, in one item."""
    region, frame = Region((0, 16), (300, 32)), Region((0, 0), (300, 64))
    target, source = (Buffer(Tile(np.zeros(one.shape, np.float32), one), 0) for one in (region, frame))
    fetch = Fetch("f", "t", (Piece(region, (Source(1, "s"),)),), None, 0)
    assert widths(bound((fetch, DType.FLOAT32), t0=target, s1=source)) == [(16, 1200)]


def test_a_piece_of_one_source_is_copied_whatever_the_reducer() -> None:
    group = bound((copy_of(0, 64, 1, reducer=Reducer.SUM), DType.FLOAT32), t0=line(64), s1=line(64))
    assert group.work().kinds == (Kind(16),)


def test_bytes_are_counted_for_each_fetch_of_a_launch() -> None:
    region = Region((0,), (64,))
    sums = Fetch("sum", "u", (Piece(region, (Source(0, "s"), Source(1, "s"))),), Reducer.SUM, 0)
    group = bound((copy_of(0, 64, 1), DType.FLOAT32), (sums, DType.FLOAT32),
                  t0=line(64), u0=line(64), s0=line(64), s1=line(64))  # fmt: skip
    work = group.work()
    assert work.moved_bytes == (256, 256)
    assert work.kinds == (COPY, SUM)


def test_partial_results_of_bytes_are_refused() -> None:
    buffers = [line(8, DType.FLOAT8E5M2) for _ in range(3)]
    group = bound((copy_of(0, 8, 1, 2, reducer=Reducer.SUM), DType.FLOAT8E5M2),
                  t0=buffers[0], s1=buffers[1], s2=buffers[2])  # fmt: skip
    with pytest.raises(UnsupportedError, match="partial results of float8_e5m2 cannot be joined on a GPU"):
        group.work()


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """All kinds, compiled by g++."""
    if shutil.which("g++") is None:
        missing("there is no g++ to compile the kernel's code with")
    return emulation.build(tmp_path_factory.mktemp("emulation"), emulation.all_kinds())


@pytest.fixture
def running(program: Path) -> Iterator[Emulation]:
    with Emulation(program, emulation.all_kinds()) as started:
        yield started


@pytest.mark.gpu_emulation
def test_the_kernels_code_gives_the_bits_of_numpy(running: Emulation) -> None:
    seed = int(np.random.default_rng().integers(1 << 31)) if not os.environ.get("CI") else 0
    print(f"seed {seed}")
    _, _, met = emulation.run_random(running, seed, 500)
    assert {kind.dtype for kind in met} == {None, *kernel.joinable()}
    assert {kind.reducer for kind in met} == {None, *Reducer}
    assert {kind.unit_bytes for kind in met if kind.dtype is None} == {1, 2, 4, 8, 16}


@pytest.mark.nightly
def test_the_kernels_code_gives_the_bits_of_numpy_ten_thousand_times(running: Emulation) -> None:
    fetches, _, met = emulation.run_random(running, 1, 10_000)
    assert fetches >= 10_000
    assert set(met) == set(emulation.all_kinds())


@pytest.mark.gpu_emulation
def test_half_precision_is_rounded_once_and_integers_wrap(running: Emulation) -> None:
    for dtype, values, wanted in (
        (DType.BFLOAT16, (256.0, 0.75, 0.75, 0.75), ml_dtypes.bfloat16(258.25)),
        (DType.FLOAT16, (2048.0, 0.75, 0.75, 0.75), np.float16(2050.25)),
        (DType.INT8, (100, 100, 100, 1), np.int8(45)),
        (DType.INT64, (2**62, 2**62, 0, 0), np.int64(-(2**63))),
    ):
        buffers = {f"s{number + 1}": line(100, dtype, value=value) for number, value in enumerate(values)}
        group = bound((copy_of(0, 100, 1, 2, 3, 4, reducer=Reducer.SUM), dtype), t0=line(100, dtype), **buffers)
        found, _ = running.run(group)
        assert found[Source(WORKER, "t")].tolist() == [wanted] * 100


@pytest.mark.gpu_emulation
@pytest.mark.parametrize(
    ("right", "wrong", "finding"),
    [
        ("first + k * THREADS < units;", "first + k * THREADS <= units;", "AddressSanitizer"),
        ("s = 2; s <= sources; ++s", "s = sources; s >= 2; --s", "elements of float32 differ"),
        ("row -= rows; ++plane;", "row -= rows;", "differ"),
        ("of.part[i] = R::last(held.part[i])", "of.part[i] = R::last(held.part[0])", "elements of float32 differ"),
    ],
    ids=["behind the end", "another order", "no carry", "one element for all"],
)
def test_a_fault_in_the_code_is_found(
    right: str, wrong: str, finding: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    if shutil.which("g++") is None:
        missing("there is no g++ to compile the kernel's code with")

    def faulty(kinds: Sequence[Kind], instructions: str) -> str:
        source = kernel_source(kinds, instructions)
        assert source.count(right) == 1
        return source.replace(right, wrong)

    monkeypatch.setattr(emulation, "kernel_source", faulty)
    kinds = (*(Kind(1 << power) for power in range(5)), SUM, Kind(4, DType.FLOAT32, Reducer.SUM))
    drawn = (np.random.default_rng(number) for number in range(300))
    groups = (emulation.random_group(rng, [Reducer.SUM], [DType.FLOAT32]) for rng in drawn)
    with Emulation(emulation.build(tmp_path, kinds), kinds) as started, pytest.raises(AssertionError, match=finding):
        all(emulation.check(started, group) for group in groups)


@pytest.mark.gpu_emulation
def test_an_access_that_is_not_aligned_is_found(running: Emulation, monkeypatch: pytest.MonkeyPatch) -> None:
    """If addresses are taken for what they are not."""
    group = bound((copy_of(0, 4096, 1), DType.FLOAT32), t0=line(4096), s1=line(4096, phase=4))
    emulation.check(running, group)
    work = group.work()
    work.items[:, kernel.Word.UNITS] //= 4
    monkeypatch.setattr(Group, "work", lambda _: type(work)(work.items, (COPY,), work.moved_bytes))
    with pytest.raises(AssertionError, match="misaligned address"):
        running.run(group)


@pytest.fixture(scope="module")
def compiler() -> nvrtc.Nvrtc:
    path = nvrtc.library()
    if path is None:
        missing(f"{nvrtc.PACKAGE} is not installed")
    assert path is not None
    return nvrtc.Nvrtc(path)


@pytest.mark.gpu_emulation
@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_nvidias_compiler_takes_the_code(compiler: nvrtc.Nvrtc, architecture: str) -> None:
    """The kinds of most plans; the slow test has all of them."""
    kinds = (COPY, Kind(4), SUM, *(Kind(16, dtype, Reducer.MAX) for dtype in (DType.FLOAT16, DType.BFLOAT16)))
    ptx = compiler.ptx(kernel_source(kinds), f"compute_{architecture}")
    accesses = [one for block in nvrtc.blocks_of(ptx) for one in block.instructions]
    assert any(one.startswith("ld.global.v4") for one in accesses)
    assert any("st.global.v4" in one for one in accesses)
    assert not any(".ftz" in one for one in accesses), "subnormal numbers are taken as zero"
    assert not any(one.startswith(("ld.v4", "st.v4", "ld.local", "st.local")) for one in accesses)


@pytest.mark.gpu_emulation
@pytest.mark.slow
@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_nvidias_compiler_makes_machine_code_of_all_kinds(compiler: nvrtc.Nvrtc, architecture: str) -> None:
    said = compiler.machine_code(kernel_source(emulation.all_kinds()), f"sm_{architecture}")
    assert "0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads" in said


def rounds_of(ptx: str) -> list[tuple[int, int]]:
    """Of each loop with a block that stores 16 bytes UNROLL times or more: elements of float32, instructions.

    Instructions are those of all its blocks, once: a loop within, over contributors behind the first, goes round once.
    """
    blocks = nvrtc.blocks_of(ptx)
    return [
        (4 * stores, sum(len(blocks[one].instructions) for one in nvrtc.loop_of(blocks, number)))
        for number, block in enumerate(blocks)
        if (stores := block.count(r"st\.global\.v4")) >= kernel.UNROLL and nvrtc.loop_of(blocks, number)
    ]


@pytest.mark.gpu_emulation
@pytest.mark.parametrize("architecture", ARCHITECTURES)
@pytest.mark.parametrize("kind", [COPY, SUM], ids=str)
def test_an_element_takes_an_eighth_of_the_instructions(compiler: nvrtc.Nvrtc, architecture: str, kind: Kind) -> None:
    """A sum is of two contributors."""
    ((elements, instructions),) = rounds_of(compiler.ptx(kernel_source([kind]), f"compute_{architecture}"))
    each = instructions / elements
    print(f"compute_{architecture} {kind}: {each:.2f} instructions an element, before {FORMER_ROUND}")
    assert each <= FORMER_ROUND / 8


def test_the_benchmark_says_that_there_is_no_gpu() -> None:
    if not probe_cuda().missing:
        pytest.skip("this machine has a GPU")
    script = Path(__file__).parents[2] / "bench" / "multifetch.py"
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("no GPU can be used: ")


@pytest.mark.gpu
def test_random_fetches_on_a_gpu_have_the_bits_of_numpy() -> None:
    probe = probe_cuda()
    if probe.missing:
        pytest.skip(probe.missing)
    import multifetch_gpu

    assert multifetch_gpu.sweep(1000, seed=0)["findings"] == []
