"""Writes bench/results/cuda-kernels.md: what ONNX Runtime's CUDA provider takes of the plans of many models.

    python tests/tools/cuda_table.py [MODEL...]

Plans each model of the zoo and of tests/models on 2 and 8 workers, quickly, and makes a session of every function that
is not the same as another one, over the stand-ins for CUDA's libraries (``cuda_stand_in.py``). What was found stays in
build/cuda-table, so that a run goes on where the last one was stopped; without MODEL, all of them.
"""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import onnxruntime

import cuda_checks
import cuda_stand_in
import five_models
from planner import api
from planner.errors import TofuError
from planner.features.zoo.models import build, names
from planner.graph.files.to_onnx import write_model

MODELS: Final = Path(__file__).parents[1] / "models"
PAGE: Final = cuda_stand_in.ROOT / "bench" / "results" / "cuda-kernels.md"
FOUND: Final = cuda_stand_in.ROOT / "build" / "cuda-table"
WORKERS: Final = (2, 8)
GROUPS: Final = ("*.onnx", "exports/*.onnx", "optimized/*.onnx", "ort_training_*/training_model.onnx", "world/*.onnx")


def everything() -> Iterable[str]:
    """Names of all models: files first, then networks of tests, then the zoo."""
    for group in GROUPS:
        yield from (str(path.relative_to(MODELS)) for path in sorted(MODELS.glob(group)))
    yield from five_models.WRITERS
    yield from names()


def row(name: str, workers: int) -> dict[str, Any]:
    """What is found of one model."""
    key = f"{name.replace('/', '-')}.{workers}"
    known = FOUND / f"{key}.json"
    if known.exists():
        found: dict[str, Any] = json.loads(known.read_text())
        return found
    folder = FOUND / "plans"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    try:
        if name.endswith(".onnx"):
            model = MODELS / name
        else:
            model = folder / f"{name}.onnx"
            if name in five_models.WRITERS:
                five_models.WRITERS[name](model)
            else:
                write_model(build(name), model)
        api.plan(model, gpus=workers, effort="quick", out=folder / "plan", unknown_ops="replicate")
        found = cuda_checks.run("functions", folder / "plan")
    except TofuError as error:
        found = {"not planned": str(error).splitlines()[0]}
    known.write_text(json.dumps(found))
    shutil.rmtree(folder)
    return found


def page(rows: Iterable[tuple[str, int, dict[str, Any]]]) -> str:
    """The page."""
    lines = [
        "# CUDA kernels",
        "",
        "    python tests/tools/cuda_table.py",
        "",
        f"{datetime.now(UTC):%Y-%m-%d}, ONNX Runtime {onnxruntime.__version__}, over stand-ins for CUDA's libraries, "
        "without a GPU.",
        "",
        "Functions are the distinct calls of ONNX Runtime in a plan; each became a session of its CUDA provider. [On",
        "GPUs](../../docs/gpu-results.md) explains *widened*, *expanded* and *on the CPU*. An op has the dtype of its "
        "first operand.",
        "",
        "| model | workers | functions | unchanged | widened | expanded | on the CPU | refused |",
        "| --- | ---: | ---: | ---: | --- | --- | --- | --- |",
    ]
    left: list[str] = []
    total = 0
    for name, workers, found in rows:
        if "not planned" in found:
            left.append(f"- {name} on {workers}: {found['not planned']}")
            continue
        counts = found["counts"]
        total += counts["functions"]
        ops = [", ".join(found[what]) for what in ("widened", "expanded", "on_cpu", "refused")]
        cells = [name, str(workers), str(counts["functions"]), str(counts["accepted"]), *(one or "-" for one in ops)]
        lines.append("| " + " | ".join(cells) + " |")
    lines += ["", f"{total:,} functions in all."]
    if left:
        lines += ["", "Not planned, so not tried:", "", *left]
    return "\n".join(lines) + "\n"


def main() -> None:
    """Writes the page of the models that are named, or of all."""
    FOUND.mkdir(parents=True, exist_ok=True)
    rows = []
    for name in sys.argv[1:] or everything():
        for workers in WORKERS:
            print(name, workers, flush=True)
            rows.append((name, workers, row(name, workers)))
    if not sys.argv[1:]:
        PAGE.write_text(page(rows))


if __name__ == "__main__":
    main()
