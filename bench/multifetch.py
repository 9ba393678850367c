"""How fast fetches are on a GPU, against a plain copy that reads and writes as many bytes in all.

    python bench/multifetch.py [--device 0] [--source 1]

Sources are on the same GPU, or on another one whose memory it can read. Before a fetch is timed its bits are held
against ``NumpyTransport``. Without a GPU the benchmark says what is missing and ends with exit code 2.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from planner.algebra.region import Region
from planner.algebra.tiling import Reducer
from planner.artifacts.program import Buffer, Fetch, Piece, Source, WorkerProgram
from planner.graph.core.model import DType
from planner.runtime.engine.core.transport import NumpyTransport, Tile
from planner.runtime.engine.gpu.cuda import plain, stored
from planner.runtime.engine.gpu.devices import probe_cuda
from planner.runtime.engine.gpu.fetches.cuda_fetch import MultiFetchTransport, connect

ROUNDS = 20
"""Of which the median counts."""
LAUNCHES = 10
"""In each round."""
READER = 0
MEGABYTE = 1 << 20


@dataclass(frozen=True, slots=True)
class Case:
    """Fetches of worker 0 that are launched together."""

    name: str
    fetches: tuple[Fetch, ...]
    dtype: DType
    regions: dict[Source, Region]
    """Of each buffer."""

    @property
    def traffic_bytes(self) -> int:
        """What is read and written."""
        pieces = (piece for fetch in self.fetches for piece in fetch.pieces)
        return sum(piece.region.elements * (len(piece.sources) + 1) for piece in pieces) * self.dtype.item_bytes


def assembled(
    name: str,
    parts: Sequence[tuple[Region, Sequence[int]]],
    *,
    dtype: DType = DType.FLOAT32,
    reducer: Reducer | None = None,
    frame: Region | None = None,
    fetches: int = 1,
) -> Case:
    """A case whose target is the hull of its parts, each from some workers.

    Args:
        name: for the table.
        parts: regions, and the workers that they come from.
        dtype: of the elements.
        reducer: how several workers' parts are joined.
        frame: the region of every source; None: the part's own.
        fetches: so many of the same, with targets of their own.
    """
    regions: dict[Source, Region] = {}
    pieces = []
    for number, (region, workers) in enumerate(parts):
        sources = tuple(Source(worker, f"part {number}") for worker in workers)
        regions.update(dict.fromkeys(sources, frame or region))
        pieces.append(Piece(region, sources))
    hull = parts[0][0]
    for region, _ in parts[1:]:
        hull = hull.hull(region)
    made = []
    for number in range(fetches):
        regions[Source(READER, f"target {number}")] = hull
        made.append(Fetch(f"fetch {number}", f"target {number}", tuple(pieces), reducer, 0))
    return Case(name, tuple(made), dtype, regions)


def line(lo: int, hi: int) -> Region:
    return Region((lo,), (hi,))


def cases() -> list[Case]:
    """Shapes of fetches that plans have."""
    elements = 64 * MEGABYTE // 4
    rows = [(Region((1024 * n, 0), (1024 * (n + 1), 4096)), (n + 1,)) for n in range(4)]
    columns = [(Region((0, 1024 * n), (4096, 1024 * (n + 1))), (n + 1,)) for n in range(4)]
    image = [(0, 0, 0, 0), (32, 64, 56, 28)]
    halo = [(Region((0, 0, 0, 28), (32, 64, 56, 29)), (1,)), (Region(image[0], image[1]), (0,))]
    eight = tuple(range(8))
    return [
        assembled("a tile, 64 MiB", [(line(0, elements), (1,))]),
        assembled("a tile, 256 KiB", [(line(0, elements // 256), (1,))]),
        assembled("8 tiles of 256 KiB in one launch", [(line(0, elements // 256), (1,))], fetches=8),
        assembled("rows of 4 workers, 64 MiB", rows),
        assembled("columns of 4 workers, 64 MiB", columns),
        assembled("a column beside an image's half, 13 MiB", halo),
        assembled("begins an element later, 64 MiB", [(line(1, elements), (1,))], frame=line(0, elements)),
        assembled("sum of 2, float32, 64 MiB", [(line(0, elements), (0, 1))], reducer=Reducer.SUM),
        assembled("sum of 8, float32, 16 MiB", [(line(0, elements // 4), eight)], reducer=Reducer.SUM),
        assembled("sum of 8, bfloat16, 16 MiB", [(line(0, elements // 2), eight)], reducer=Reducer.SUM,
                  dtype=DType.BFLOAT16),
    ]  # fmt: skip


def seconds_of(cupy: Any, stream: Any, work: Callable[[], object]) -> float:
    """The time of one of some launches behind each other."""
    events = [cupy.cuda.Event() for _ in range(2)]
    times: list[float] = []
    work()
    for _ in range(ROUNDS):
        events[0].record(stream)
        for _ in range(LAUNCHES):
            work()
        events[1].record(stream)
        events[1].synchronize()
        times.append(1e-3 * cupy.cuda.get_elapsed_time(*events) / LAUNCHES)
    return statistics.median(times)


def measured(cupy: Any, case: Case, device: int, source_device: int) -> tuple[float, float, bool]:
    """Seconds of the fetches and of a copy of as many bytes, and whether the bits are NumPy's."""
    workers = 1 + max(source.worker for source in case.regions)
    devices = [device, *[source_device] * (workers - 1)]
    streams = []
    for one in devices:
        with cupy.cuda.Device(one):
            streams.append(cupy.cuda.Stream(non_blocking=True))
    rng = np.random.default_rng(0)
    host: dict[Source, Tile] = {}
    there: dict[Source, Tile] = {}
    for source, region in case.regions.items():
        array = rng.standard_normal(region.shape, np.float32).astype(case.dtype.array_dtype)
        host[source] = Tile(array, region)
        with cupy.cuda.Device(devices[source.worker]):
            there[source] = Tile(cupy.empty(region.shape, stored(case.dtype)), region)
            there[source].array.set(plain(array), stream=streams[source.worker])
            streams[source.worker].synchronize()
    programs = [
        WorkerProgram(
            worker,
            {
                source.buffer: Buffer(source.buffer, source.buffer, region, region.shape, case.dtype)
                for source, region in case.regions.items()
                if source.worker == worker
            },
            case.fetches if worker == READER else (),
            tuple(source.buffer for source in case.regions if source.worker == worker and "part" in source.buffer),
            (),
            (),
        )
        for worker in range(workers)
    ]
    transport = MultiFetchTransport(cupy, devices, streams, programs, connect(cupy, devices))
    transport.reserve(READER)
    launch = transport.bind_together(case.fetches, READER, there.__getitem__)
    half = case.traffic_bytes // 2
    with cupy.cuda.Device(device):
        launch()
        streams[READER].synchronize()
        is_right = True
        for fetch in case.fetches:
            NumpyTransport().bind(fetch, READER, host.__getitem__).run()
            target = Source(READER, fetch.target)
            found = np.empty_like(plain(host[target].array))
            there[target].array.get(stream=streams[READER], out=found)
            streams[READER].synchronize()
            is_right &= found.tobytes() == host[target].array.tobytes()
        blocks = [cupy.cuda.alloc(half) for _ in range(2)]
        copy = cupy.cuda.runtime.memcpyAsync
        kind = cupy.cuda.runtime.memcpyDeviceToDevice
        return (
            seconds_of(cupy, streams[READER], launch),
            seconds_of(
                cupy, streams[READER], lambda: copy(blocks[0].ptr, blocks[1].ptr, half, kind, streams[READER].ptr)
            ),
            is_right,
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--device", type=int, default=0, help="the GPU that fetches")
    parser.add_argument("--source", type=int, help="the GPU whose memory it reads; the same if it is not said")
    options = parser.parse_args()
    probe = probe_cuda()
    if probe.missing:
        print(f"no GPU can be used: {probe.missing}", file=sys.stderr)
        sys.exit(2)
    import cupy

    table = Table("fetches", "MiB read and written", "ms", "GB/s", "copy: GB/s", "ratio", "bits")
    source_device = options.device if options.source is None else options.source
    for case in cases():
        seconds, copying, is_right = measured(cupy, case, options.device, source_device)
        table.add_row(
            case.name,
            f"{case.traffic_bytes / MEGABYTE:.1f}",
            f"{1e3 * seconds:.3f}",
            f"{1e-9 * case.traffic_bytes / seconds:.0f}",
            f"{1e-9 * case.traffic_bytes / copying:.0f}",
            f"{copying / seconds:.2f}",
            "NumPy's" if is_right else "OTHERS",
        )
    Console(width=140).print(table)


if __name__ == "__main__":
    main()
