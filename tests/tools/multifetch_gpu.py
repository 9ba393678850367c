"""The fetch kernel on a GPU: random fetches, every bit against ``NumpyTransport``.

    python tests/tools/multifetch_gpu.py [--fetches 10000] [--seed 0] [--device 0]

The fetches are those of ``multifetch_emulation.py``: all dtypes and reducers, odd addresses, ragged boxes. Each buffer
lies between guards of 64 bytes, which must be as they were. Needs a GPU.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Sequence
from typing import Any, Final

import cupy
import numpy as np

import multifetch_emulation as emulation
from planner.artifacts.program import Source
from planner.runtime.engine.gpu.fetches import fetch_kernel as kernel
from planner.runtime.engine.gpu.fetches.fetch_kernel import Kind, kernel_source
from planner.runtime.engine.gpu.fetches.multifetch import WorkList

_GUARD: Final = 64
_MARK: Final = 0xA5


class OnGpu:
    """Runs groups of fetches; has the shape of ``multifetch_emulation.Emulation``.

    Args:
        kinds: of boxes that the kernel is compiled for.
    """

    def __init__(self, kinds: Sequence[Kind]) -> None:
        self._numbers = {kind: number for number, kind in enumerate(kinds)}
        self._kernel = cupy.RawKernel(kernel_source(kinds), kernel.NAME)
        self._kernel.compile()

    def run(self, group: emulation.Group) -> tuple[dict[Source, np.ndarray], WorkList]:
        """A launch: what all buffers hold then, and the work list.

        Raises:
            AssertionError: something beside a buffer was written.
        """
        work = group.work()
        items = emulation.items_of(work, self._numbers)
        starts, end = [], _GUARD
        for one in group.buffers.values():
            starts.append(-(-end // 16) * 16 + one.phase)
            end = starts[-1] + one.tile.array.nbytes + _GUARD
        host = np.full(end, _MARK, np.uint8)
        for start, one in zip(starts, group.buffers.values(), strict=True):
            flat = np.frombuffer(one.tile.array.tobytes(), np.uint8)
            host[start : start + flat.size] = flat
        block = cupy.asarray(host)
        assert block.data.ptr % 256 == 0
        flat_items = items.reshape(-1)
        buffers = (flat_items >> 40) - 1
        is_address = buffers >= 0
        phases = np.array([one.phase for one in group.buffers.values()])
        bases = block.data.ptr + np.array(starts) - phases
        flat_items[is_address] = bases[buffers[is_address]] + (flat_items[is_address] & ((1 << 40) - 1))
        there = cupy.asarray(items)
        self._kernel((items.shape[0],), (kernel.THREADS,), (there, np.int64(items.shape[1])))
        after = cupy.asnumpy(block)
        is_guard = np.ones(end, bool)
        found = {}
        for start, (source, one) in zip(starts, group.buffers.items(), strict=True):
            array = one.tile.array
            raw = after[start : start + array.nbytes]
            is_guard[start : start + array.nbytes] = False
            found[source] = np.frombuffer(raw.tobytes(), array.dtype).reshape(array.shape)
        assert (after[is_guard] == _MARK).all(), "a byte beside a buffer was written"
        return found, work


def sweep(fetches: int, seed: int) -> dict[str, Any]:
    """Runs random fetches; says how many, in which time, and what differs."""
    rng = np.random.default_rng(seed)
    started = time.perf_counter()
    on_gpu = OnGpu(emulation.all_kinds())
    compiled = time.perf_counter() - started
    done, groups, findings = 0, 0, []
    while done < fetches and len(findings) < 20:
        group = emulation.random_group(rng)
        try:
            emulation.check(on_gpu, group)  # type: ignore[arg-type]  # of the same shape
        except AssertionError as error:
            findings.append(str(error)[:300])
        done, groups = done + len(group.fetches), groups + 1
    return {"fetches": done, "groups": groups, "compiling": round(compiled, 1), "findings": findings}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--fetches", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--device", type=int, default=0)
    options = parser.parse_args()
    cupy.cuda.Device(options.device).use()
    print(json.dumps(sweep(options.fetches, options.seed), indent=1))


if __name__ == "__main__":
    main()
