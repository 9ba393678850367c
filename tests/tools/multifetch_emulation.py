"""The fetch kernel's own code on the CPU: compiled by g++ with sanitizers, with the geometry of a launch.

    python tests/tools/multifetch_emulation.py [--fetches 10000] [--seed 0]

makes random fetches, in groups of one to four as they are launched together, of all dtypes and reducers, with odd
addresses and ragged boxes, and holds every bit against ``NumpyTransport``. Every buffer is memory of its own, so that
an access beside it is a finding; a misaligned one is a finding, too. Bits of a NaN count in copies, maxima and minima;
what sums and products make of a NaN is a NaN.

The instructions that the kernel has as PTX are written in C++ here. Nothing else differs from what a GPU is given.
"""

from __future__ import annotations

import argparse
import itertools
import os
import shutil
import struct
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import numpy as np

from planner.algebra.region import Region
from planner.algebra.tiling import Reducer
from planner.artifacts.program import Fetch, Piece, Source
from planner.graph.core.model import DType
from planner.runtime.engine.core.transport import NumpyTransport, Tile
from planner.runtime.engine.gpu.fetches import fetch_kernel as kernel
from planner.runtime.engine.gpu.fetches.fetch_kernel import Kind, joinable, kernel_source
from planner.runtime.engine.gpu.fetches.multifetch import ITEM_UNITS, WorkList, work_list

WORKER: Final = 0
"""That assembles."""
_PLACE: Final = 1 << 40
"""Buffers are this far apart in the addresses that a work list is made of; the program puts its own in their place."""

_INSTRUCTIONS: Final = r"""
template <class U> U* global_memory(long long address) { return (U*)address; }
inline float add(float a, float b) { return a + b; }
inline float multiply(float a, float b) { return a * b; }
inline bool at_least(float a, float b) { return a >= b; }
inline float from_half(unsigned short bits) { _Float16 h; std::memcpy(&h, &bits, 2); return (float)h; }
inline unsigned short to_half(float a) {
  const _Float16 h = (_Float16)a;
  unsigned short bits;
  std::memcpy(&bits, &h, 2);
  return bits;
}
"""

_PRELUDE: Final = r"""
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>
#include <sanitizer/asan_interface.h>
#define __global__
#define __device__
#define __forceinline__ inline
#define __launch_bounds__(threads)
struct alignas(16) uint4 { unsigned int x, y, z, w; };
struct Dim { unsigned int x; };
static Dim blockIdx, threadIdx;
"""

_MAIN: Final = r"""
// Numbers from standard input: buffers (bytes, bytes behind a multiple of 16, contents), blocks, words, items. To
// standard output go the contents of all buffers. Each has memory of its own, which ends where the buffer ends.
static long long number() {
  long long found;
  if (std::fread(&found, 8, 1, stdin) != 1) std::exit(0);
  return found;
}
static void contents(void* memory, long long size) {
  if (size && std::fread(memory, 1, size, stdin) != (size_t)size) std::abort();
}
int main() {
  for (;;) {
    const long long count = number();
    std::vector<char*> memory(count);
    std::vector<long long> sizes(count), phases(count);
    for (long long b = 0; b < count; ++b) {
      sizes[b] = number();
      phases[b] = number();
      memory[b] = (char*)std::malloc(sizes[b] + phases[b]);
      contents(memory[b] + phases[b], sizes[b]);
      __asan_poison_memory_region(memory[b], phases[b]);
    }
    const long long blocks = number(), words = number();
    long long* items = (long long*)std::malloc(8 * blocks * words);
    contents(items, 8 * blocks * words);
    for (long long i = 0; i < blocks * words; ++i) {
      const long long buffer = (items[i] >> 40) - 1;
      if (buffer >= 0) items[i] = (long long)memory[buffer] + (items[i] & ((1ll << 40) - 1));
    }
    for (blockIdx.x = 0; blockIdx.x < blocks; ++blockIdx.x)
      for (threadIdx.x = 0; threadIdx.x < THREADS; ++threadIdx.x) multifetch(items, words);
    for (long long b = 0; b < count; ++b) {
      std::fwrite(memory[b] + phases[b], 1, sizes[b], stdout);
      __asan_unpoison_memory_region(memory[b], phases[b]);
      std::free(memory[b]);
    }
    std::free(items);
    std::fflush(stdout);
  }
}
"""


def all_kinds() -> tuple[Kind, ...]:
    """All kinds that there can be in a work list."""
    copies = [Kind(1 << power) for power in range(5)]
    joins = [
        Kind(unit, dtype, reducer)
        for dtype in joinable()
        for reducer in Reducer
        for unit in (dtype.item_bytes, kernel.WIDEST_BYTES)
    ]
    return (*copies, *joins)


def build(folder: Path, kinds: Sequence[Kind]) -> Path:
    """The program that runs launches of a kernel of these kinds."""
    compiler = shutil.which("g++")
    assert compiler is not None, "there is no g++"
    source, program = folder / "multifetch.cpp", folder / "multifetch"
    source.write_text(_PRELUDE + kernel_source(kinds, _INSTRUCTIONS) + _MAIN)
    options = (
        "-std=c++17 -O0 -w -ffp-contract=off -fno-strict-aliasing",
        "-fsanitize=address,undefined -fno-sanitize-recover=all",
    )
    command = [compiler, *" ".join(options).split(), str(source), "-o", str(program)]
    subprocess.run(command, check=True)
    return program


@dataclass(frozen=True, slots=True)
class Buffer:
    """Memory of a worker."""

    tile: Tile
    phase: int
    """Bytes by which it begins behind a multiple of 16."""


@dataclass(frozen=True, slots=True)
class Group:
    """Fetches that are launched together, and all buffers that they name."""

    fetches: tuple[tuple[Fetch, DType], ...]
    buffers: dict[Source, Buffer]

    def locate(self, source: Source) -> Tile:
        return self.buffers[source].tile

    def copied(self) -> Group:
        """The same with arrays of its own."""
        buffers = {
            source: replace(one, tile=Tile(one.tile.array.copy(), one.tile.region))
            for source, one in self.buffers.items()
        }
        return Group(self.fetches, buffers)

    def work(self) -> WorkList:
        """What a GPU would be given, with addresses of no memory."""
        places = {
            int(one.tile.array.ctypes.data): (number + 1) * _PLACE + one.phase
            for number, one in enumerate(self.buffers.values())
        }

        def address_of(view: np.ndarray) -> int:
            whole = view
            while isinstance(whole.base, np.ndarray):
                whole = whole.base
            start = int(whole.ctypes.data)
            return places[start] + int(view.ctypes.data) - start

        return work_list(self.fetches, WORKER, self.locate, address_of)


def items_of(work: WorkList, numbers: Mapping[Kind, int]) -> np.ndarray:
    """The items of a work list for a kernel that was made for more kinds of boxes.

    Args:
        work: the list.
        numbers: of the kernel's kinds.
    """
    items = work.items.copy()
    items[:, kernel.Word.KIND] = np.array([numbers[kind] for kind in work.kinds])[items[:, kernel.Word.KIND]]
    return items


class Emulation:
    """The running program; a context manager that ends it.

    Args:
        program: what ``build`` made.
        kinds: that it was made for.
    """

    def __init__(self, program: Path, kinds: Sequence[Kind]) -> None:
        self._numbers = {kind: number for number, kind in enumerate(kinds)}
        environment = os.environ | {
            "ASAN_OPTIONS": "detect_leaks=0:quarantine_size_mb=1",
            "UBSAN_OPTIONS": "print_stacktrace=1",
        }
        self._process = subprocess.Popen(
            [program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment
        )

    def __enter__(self) -> Emulation:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.communicate()

    def run(self, group: Group) -> tuple[dict[Source, np.ndarray], WorkList]:
        """A launch: what all buffers hold then, and the work list.

        Raises:
            AssertionError: a sanitizer found something.
        """
        work = group.work()
        items = items_of(work, self._numbers)
        arrays = [one.tile.array for one in group.buffers.values()]
        assert all(array.flags.c_contiguous for array in arrays)
        parts = [struct.pack("q", len(arrays))]
        for array, one in zip(arrays, group.buffers.values(), strict=True):
            parts += [struct.pack("qq", array.nbytes, one.phase), array.tobytes()]
        parts += [struct.pack("qq", *items.shape), items.tobytes()]
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None
        assert stdout is not None
        try:
            stdin.write(b"".join(parts))
            stdin.flush()
        except BrokenPipeError:
            self._finding()
        found = {}
        for source, array in zip(group.buffers, arrays, strict=True):
            raw = stdout.read(array.nbytes)
            if len(raw) < array.nbytes:
                self._finding()
            found[source] = np.frombuffer(raw, array.dtype).reshape(array.shape)
        return found, work

    def _finding(self) -> None:
        _, errors = self._process.communicate()
        raise AssertionError(f"the kernel's code failed with {self._process.returncode}:\n{errors.decode()[:4000]}")


def check(emulation: Emulation, group: Group) -> WorkList:
    """Runs a group on the emulation and with NumPy.

    Raises:
        AssertionError: a sanitizer found something, or bits differ, or counted bytes.
    """
    wanted = group.copied()
    with np.errstate(all="ignore"):
        moved = tuple(NumpyTransport().bind(fetch, WORKER, wanted.locate).run() for fetch, _ in group.fetches)
    found, work = emulation.run(group)
    assert work.moved_bytes == moved
    reducers = {Source(WORKER, fetch.target): fetch.reducer for fetch, _ in group.fetches}
    for source, array in found.items():
        right = wanted.locate(source).array
        differ = array.view(f"u{array.itemsize}") != right.view(f"u{right.itemsize}")
        if reducers.get(source) in (Reducer.SUM, Reducer.PROD) and DType(array.dtype.name).is_float:
            differ &= ~(np.isnan(array.astype(np.float64)) & np.isnan(right.astype(np.float64)))
        assert not differ.any(), (
            f"{source}: {differ.sum()} of {differ.size} elements of {array.dtype.name} differ with "
            f"{reducers.get(source)}: {array[differ][:4]} for {right[differ][:4]}"
        )
    return work


def random_group(
    rng: np.random.Generator, reducers: Sequence[Reducer] = tuple(Reducer), joined: Sequence[DType] = joinable()
) -> Group:
    """One to four fetches: copies of all dtypes, and partial results of some, joined by some reducers."""
    buffers: dict[Source, Buffer] = {}
    fetches = []
    for number in range(int(rng.integers(1, 5))):
        reducer = reducers[rng.integers(len(reducers))] if rng.random() < 0.6 else None
        dtypes = tuple(DType) if reducer is None else joined
        fetches.append(_fetch(rng, number, reducer, dtypes[rng.integers(len(dtypes))], buffers))
    return Group(tuple(fetches), buffers)


def _fetch(
    rng: np.random.Generator, number: int, reducer: Reducer | None, dtype: DType, buffers: dict[Source, Buffer]
) -> tuple[Fetch, DType]:
    shape = _shape(rng, dtype)
    lo = tuple(int(rng.integers(0, 4)) for _ in shape)
    region = Region(lo, tuple(begin + extent for begin, extent in zip(lo, shape, strict=True)))
    target = f"t{number}"
    # Even: all tiles are of the same region and begin as many bytes behind a multiple of 16.
    phase = int(rng.integers(0, 16)) if rng.random() < 0.5 else None
    contributors = int(rng.integers(2, 6))
    pieces = []
    for box in itertools.product(*(_cut(rng, begin, end) for begin, end in zip(region.lo, region.hi, strict=True))):
        part = Region(tuple(begin for begin, _ in box), tuple(end for _, end in box))
        workers = rng.permutation(contributors)[: 1 if reducer is None else int(rng.integers(1, contributors + 1))]
        sources = []
        for worker in workers.tolist():
            # A tile of the whole region, or one of just this piece; with something around it, or not.
            is_shared = rng.random() < 0.6 or phase is not None
            source = Source(worker, f"s{number}" if is_shared else f"s{number}-{len(pieces)}")
            if source not in buffers:
                frame = region if is_shared else part
                buffers[source] = _buffer(rng, frame, dtype, phase)
            sources.append(source)
        pieces.append(Piece(part, tuple(sources)))
    buffers[Source(WORKER, target)] = _buffer(rng, region, dtype, phase)
    return Fetch(f"f{number}", target, tuple(pieces), reducer, 0), dtype


def _shape(rng: np.random.Generator, dtype: DType) -> tuple[int, ...]:
    kind = rng.random()
    if kind < 0.3:
        return tuple(int(extent) for extent in rng.integers(1, 9, int(rng.integers(1, 6))))
    if kind < 0.5:  # some items
        return (int(rng.integers(1, 3 * ITEM_UNITS * kernel.WIDEST_BYTES // dtype.item_bytes // 4)),)
    if kind < 0.75:
        return int(rng.integers(1, 30)), int(rng.integers(1, 1500))
    inner = kernel.WIDEST_BYTES // dtype.item_bytes * int(rng.integers(1, 20))
    return int(rng.integers(1, 6)), int(rng.integers(1, 6)), int(rng.integers(1, 9)), inner


def _cut(rng: np.random.Generator, lo: int, hi: int) -> Iterator[tuple[int, int]]:
    cuts = sorted({lo, hi, *(int(cut) for cut in rng.integers(lo, hi + 1, int(rng.integers(0, 3))))})
    return itertools.pairwise(cuts)


def _around(rng: np.random.Generator, region: Region) -> Region:
    """The region, or one that is larger by some."""
    if rng.random() < 0.5:
        return region
    margins = rng.integers(0, 3, (2, len(region.lo)))
    margins[:, -1] *= 1 if rng.random() < 0.5 else 16
    return Region(
        tuple(max(0, begin - int(more)) for begin, more in zip(region.lo, margins[0], strict=True)),
        tuple(end + int(more) for end, more in zip(region.hi, margins[1], strict=True)),
    )


def _buffer(rng: np.random.Generator, region: Region, dtype: DType, phase: int | None) -> Buffer:
    if phase is None:
        region = _around(rng, region)
        phase = 0 if rng.random() < 0.5 else int(rng.integers(0, 16))
    values = np.ascontiguousarray(_values(rng, region.shape, dtype))
    return Buffer(Tile(values, region), phase // dtype.item_bytes * dtype.item_bytes)


def _values(rng: np.random.Generator, shape: tuple[int, ...], dtype: DType) -> Any:
    """Of all sizes, with NaN, infinities and subnormal numbers among floats; zeros of one sign."""
    kind = dtype.array_dtype
    if dtype is DType.BOOL:
        return rng.random(shape) < 0.5
    if not dtype.is_float:
        if dtype.carrier is not dtype:
            return rng.integers(0, 2, shape).astype(kind)
        return rng.integers(0, 256, (*shape, dtype.item_bytes), np.uint8).view(kind).reshape(shape)
    values = rng.standard_normal(shape)
    values[rng.random(shape) < 0.05] *= 1e-39
    values[rng.random(shape) < 0.02] *= 1e30
    values[rng.random(shape) < 0.02] = np.nan
    with np.errstate(all="ignore"):
        found = values.astype(np.float32).astype(kind) if dtype is not DType.FLOAT64 else values
    found[found == 0] = 0  # which zero is the larger one depends, in NumPy, on the processor
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--fetches", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    start = time.perf_counter()
    kinds = all_kinds()
    with tempfile.TemporaryDirectory() as folder:
        program = build(Path(folder), kinds)
        print(f"{len(kinds)} kinds, compiled in {time.perf_counter() - start:.0f} s; seed {options.seed}")
        with Emulation(program, kinds) as emulation:
            fetches, items, met = run_random(emulation, options.seed, options.fetches)
    print(
        f"{fetches} fetches, {items} items, {len(met)} of {len(kinds)} kinds met: all bits equal, no finding; "
        f"{time.perf_counter() - start:.0f} s"
    )


def run_random(emulation: Emulation, seed: int, fetches: int) -> tuple[int, int, Counter[Kind]]:
    """Checks so many random fetches, or some more; a failure names the group by two numbers.

    Returns:
        How many fetches there were, and items, and how many items of each kind.
    """
    done = items = 0
    met: Counter[Kind] = Counter()
    for number in itertools.count():
        if done >= fetches:
            return done, items, met
        group = random_group(np.random.default_rng((seed, number)))
        try:
            work = check(emulation, group)
        except AssertionError:
            print(f"seed {seed}, group {number}", file=sys.stderr)
            raise
        done += len(group.fetches)
        items += len(work.items)
        met.update(work.kinds[one] for one in work.items[:, kernel.Word.KIND].tolist())
    raise AssertionError("unreachable")


if __name__ == "__main__":
    main()
