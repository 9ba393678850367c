"""Runs a plan's step in JAX, on virtual devices of the CPU, beside ONNX Runtime; prints what was found as JSON.

    python jax_steps.py DIR STEP.py ITERATIONS SCALE

Data in floating point is multiplied by SCALE: networks of the zoo that have no loss diverge on larger samples.
A process of its own: JAX must be told of its devices before it is imported.
"""

from __future__ import annotations

import importlib.util
import json
import os
import sys
import time
from collections import Counter
from pathlib import Path

os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=8"
os.environ["JAX_PLATFORMS"] = "cpu"
os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")


def main(directory: Path, file: Path, iterations: int, scale: float) -> None:
    import jax
    import numpy as np

    from drawn_inputs import sample
    from hlo_bytes import collectives
    from planner.graph.core.model import Role
    from planner.graph.folding.foreign import EVERY_OPERATOR
    from planner.graph.reading.from_onnx import read_model
    from planner.runtime.judge.whole import WholeModel
    from planner.runtime.values.samples import Sampler

    spec = importlib.util.spec_from_file_location("exported", file)
    exported = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(exported)
    graph = read_model(directory / "model.onnx", operators=EVERY_OPERATOR)
    given = {name: value for name, value in graph.initial.items() if value is not None}
    drawn = sample(graph, [name for name in graph.inputs if name not in given], 0)
    sampler = Sampler(graph, 0)
    for name, value in drawn.items():
        if graph.roles[name] is Role.DATA and value.dtype.kind == "f" and not sampler.is_stated(name):
            drawn[name] = (value * scale).astype(value.dtype)
    values = {**drawn, **given}
    workers = exported.MESH.size
    state, data = exported.placed(exported.STATE, values), exported.placed(exported.DATA, values)
    begun = time.perf_counter()
    compiled = exported.step.lower(state, data).compile()
    compile_seconds = time.perf_counter() - begun
    moved, count = Counter(), Counter()
    for one in collectives(compiled.as_text(), workers):
        moved[one.kind] += one.bytes
        count[one.kind] += 1
    worst, worst_name = 0.0, ""
    if iterations:
        whole = WholeModel(graph)
        following = {pair.current: pair.following for pair in graph.state}
        for _ in range(iterations):
            expected = whole.step(values)
            state, results = exported.step(state, data)
            for name, array in {**{following[key]: one for key, one in state.items()}, **results}.items():
                mine, want = np.asarray(exported.whole(name, array)), expected[name]
                assert mine.dtype == want.dtype, f"{name} is of {mine.dtype}, not {want.dtype}"
                mine = mine.reshape(want.shape)
                if want.size == 0:
                    continue
                apart = np.abs(mine.astype(np.float64) - want.astype(np.float64))
                error = float((apart / (1 + np.abs(want.astype(np.float64)))).max())
                if not error <= worst:
                    worst, worst_name = error, name
            values.update({key: expected[name] for key, name in following.items()})
    print(
        json.dumps(
            {
                "moved_bytes": sum(moved.values()),
                "by_kind": moved,
                "count": count,
                "error": worst,
                "worst": worst_name,
                "compile_seconds": round(compile_seconds, 2),
                "devices": len(jax.devices()),
            }
        )
    )


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]), float(sys.argv[4]))
