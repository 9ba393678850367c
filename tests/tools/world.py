"""Networks that other people wrote: each planned, run and verified, as a forward graph and as a training step.

    python tests/tools/world.py FOLDER [NAME ...] [--wheels FOLDER] [--table FILE] [--again] [--seconds 600]
    python tests/tools/world.py FOLDER NAME ... --gradients

FOLDER holds ONNX files (`tests/tools/world_models.py`, and the deployed networks of PyPI's wheels, see ``unpack``).
For each file, in a process of its own:

- ONNX Runtime runs the file as it is, on inputs that the file's graph draws.
- Forward: planned with ``quick`` for 2 and 3 workers (4 and 8, too, for those in ``MORE_WORKERS``), run on the same
  inputs, verified against the float64 twin of the graph, and held against what ONNX Runtime gave for the file.
- Training: a step of AdamW on the mean squared error of the first floating-point output, planned and run likewise.

``FOLDER/results.jsonl`` gets a line for each file; a file that has one is left out, unless ``--again``. The table is of
all lines. Exit code 1 if a number is wrong or something crashed. ``--gradients``: the loss's derivative along its
gradient beside the central difference.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import resource
import subprocess
import sys
import tempfile
import traceback
import zipfile
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
import numpy as np

WORKERS: Final = (2, 3)
MORE_WORKERS: Final = (
    "autoencoder", "detector", "gru", "hf-bart", "hf-bert", "hf-gpt2", "hf-llama", "hf-segformer", "hf-t5", "hf-vit",
    "lstm", "tv-densenet", "tv-mobilenet-v2", "tv-swin", "unet-bilinear",
)  # fmt: skip
"""Those that are planned for 4 and 8 workers, too."""
TOLERANCE: Final = 2e-3
"""How far an output may be from the stock runtime's, as a share of its largest element: both compute in float32."""
DIMS: Final[dict[str, dict[str, int]]] = {
    "wheel-nudenet-320n": {"height": 64, "width": 64},
    "wheel-rapidocr_onnxruntime-ch_PP-OCRv4_det_infer": {
        "p2o.DynamicDimension.1": 64, "p2o.DynamicDimension.2": 64,
    },
    "wheel-rapidocr_onnxruntime-ch_PP-OCRv4_rec_infer": {"x[2]": 48, "p2o.DynamicDimension.1": 64},
    "wheel-rapidocr_onnxruntime-ch_ppocr_mobile_v2.0_cls_infer": {"x[2]": 48, "x[3]": 96},
    "wheel-silero_vad-silero_vad": {"input[1]": 576},
    "wheel-silero_vad-silero_vad_16k_op15": {"sequence": 576},
    "wheel-silero_vad-silero_vad_half": {"sequence": 576},
    "wheel-silero_vad-silero_vad_op18_ifless": {"sequence": 576},
}  # fmt: skip
"""Sizes of symbolic dims, by the file's name; those that are not named are 2."""


VALUES: Final[dict[str, dict[str, str]]] = {
    "wheel-silero_vad-silero_vad": {"sr": "16000"},
    "wheel-silero_vad-silero_vad_16k_op15": {"sr": "16000"},
    "wheel-silero_vad-silero_vad_op18_ifless": {"sr": "16000"},
}
"""Inputs that decide which branch is taken, and are fixed before a plan is made (`--value`)."""
INTEGERS: Final = {"bytes": 256}
"""What inputs of integers that nothing in the graph bounds are drawn below, by name."""


class Row(dict[str, Any]):
    """What is known of one file: ``name``, ``stock``, and ``forward`` and ``training`` by number of workers."""


def outcome(what: str, say: str = "") -> dict[str, str]:
    """One result: ``verified``, ``wrong``, ``refused`` or ``crashed``, and what was said."""
    return {"result": what, "said": " ".join(say.split())[:300]}


def attempt(action: Any) -> tuple[Any, dict[str, str] | None]:
    """What an action returns, or how it ended otherwise."""
    from planner.errors import TofuError

    try:
        return action(), None
    except TofuError as error:
        text = f"{error.what}; {'; '.join(error.facts[:3])}" if error.facts else error.what
        return None, outcome("refused", text)
    except Exception as error:  # noqa: BLE001 -- whatever else it is, it is a crash
        where = traceback.extract_tb(error.__traceback__)[-1]
        return None, outcome("crashed", f"{type(error).__name__}: {error} ({Path(where.filename).name}:{where.lineno})")


def planned_and_run(model: Path, workers: int, inputs: Path, folder: Path, fixed: dict[str, Any]) -> tuple[Any, Any]:
    """One plan, one verified run: its result, or how it ended."""
    from planner import api

    out = folder / f"{model.stem}.{workers}"
    _, ended = attempt(lambda: api.plan(model, gpus=workers, effort="quick", out=out, **fixed))
    if ended:
        return None, ended
    run, ended = attempt(lambda: api.run(out, inputs=inputs, verify=True, steps=1))
    if ended:
        return None, ended
    if not run.verified:
        return run, outcome("wrong", f"verification differs: {run.worst}")
    return run, None


def sizes_of(model: Path) -> dict[str, int]:
    """A size for every symbolic dim of the model's inputs."""
    import onnx

    known = DIMS.get(model.stem, {})
    proto = onnx.load(model, load_external_data=False)
    given = {entry.name for entry in proto.graph.initializer}
    sizes: dict[str, int] = {}
    for value in proto.graph.input:
        if value.name in given:
            continue
        for index, dim in enumerate(value.type.tensor_type.shape.dim):
            if dim.WhichOneof("value") != "dim_value" or dim.dim_value == -1:
                name = dim.dim_param or f"{value.name}[{index}]"
                sizes[name] = known.get(name, 2)
    return sizes


def examine(model: Path, counts: Sequence[int] = ()) -> Row:
    """Everything about one file.

    Args:
        model: the file.
        counts: for how many workers; () for those of ``WORKERS`` and ``MORE_WORKERS``.
    """
    import onnxruntime

    from planner import api
    from planner.descriptions import in_force
    from planner.graph.reading.from_onnx import read_model

    row = Row(name=model.stem, stock="", forward={}, training={})
    counts = counts or (*WORKERS, *((4, 8) if model.stem in MORE_WORKERS else ()))
    dims, values = sizes_of(model), VALUES.get(model.stem, {})
    fixed = {"dim": dims, "value": values}
    descriptions, _ = in_force(None)
    graph, ended = attempt(lambda: read_model(model, dims=dims, values=values, operators=descriptions))
    if ended:
        row["forward"] = {str(count): ended for count in counts}
        return row
    row["ops"] = len(graph.ops)
    names = [name for name in graph.inputs if graph.initial.get(name) is None]
    given, ended = attempt(lambda: drawn(graph, names))
    if ended:
        row["forward"] = {str(count): ended for count in counts}
        return row
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    right: dict[str, np.ndarray] | None = None
    try:
        session = onnxruntime.InferenceSession(str(model), options, providers=["CPUExecutionProvider"])
        stated = {name: np.array(int(value), np.int64) for name, value in values.items()}
        results = session.run(None, {**given, **stated})
        right = dict(zip((out.name for out in session.get_outputs()), results, strict=True))
        row["stock"] = "runs"
    except Exception as error:  # noqa: BLE001 -- the runtime's own refusal, of whatever type
        row["stock"] = " ".join(str(error).split())[:200]
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        np.savez(folder / "inputs.npz", **given)
        for count in counts:
            run, ended = planned_and_run(model, count, folder / "inputs.npz", folder, fixed)
            row["forward"][str(count)] = ended or against_stock(run.results, right)
        target = first_float(graph)
        if target is None:
            row["training"] = {str(count): outcome("refused", "no output in floating point") for count in counts}
            return row
        step = folder / f"{model.stem}.train.onnx"
        made, ended = attempt(
            lambda: api.grad(model, loss="mse", optimizer="adamw", lr=0.001, loss_input=target, output=step, **fixed)
        )
        if ended:
            row["training"] = {str(count): ended for count in counts}
            return row
        row["states"] = made.states
        step_graph = read_model(step)
        names = [name for name in step_graph.inputs if step_graph.initial.get(name) is None]
        others, ended = attempt(lambda: drawn(step_graph, [name for name in names if name not in given]))
        if ended:
            row["training"] = {str(count): ended for count in counts}
            return row
        np.savez(folder / "step.npz", **{name: given[name] for name in names if name in given}, **others)
        for count in counts:
            run, ended = planned_and_run(step, count, folder / "step.npz", folder, {})
            row["training"][str(count)] = ended or outcome("verified", f"{run.max_error:.1e}")
    return row


def drawn(graph: Any, names: list[str]) -> dict[str, np.ndarray]:
    """Inputs: as the program draws them, but integers that nothing bounds."""
    from drawn_inputs import sample

    generator = np.random.default_rng(0)
    found = {}
    for name in names:
        tensor = graph.tensors[name]
        if name in INTEGERS and not tensor.dtype.is_float:
            found[name] = generator.integers(0, INTEGERS[name], tensor.shape).astype(tensor.dtype.array_dtype)
        else:
            found |= sample(graph, [name], 0)
    return found


def against_stock(found: Any, right: dict[str, np.ndarray] | None) -> dict[str, str]:
    """Whether outputs are those of the stock runtime."""
    from planner.runtime.judge.compare import errors

    if right is None:
        return outcome("verified", "the stock runtime does not run it")
    worst = 0.0
    for name, value in right.items():
        if name not in found or not value.size:
            continue
        mine = found[name]
        if mine.dtype.kind in "iub":
            if not np.array_equal(mine, value) and np.mean(mine != value) > 0.01:
                return outcome("wrong", f"{name}: integers differ from the stock runtime's")
            continue
        worst = max(worst, errors(mine, value)[0])
    if not worst <= TOLERANCE:
        return outcome("wrong", f"{worst:.1e} from the stock runtime's outputs")
    return outcome("verified", f"{worst:.1e}")


def first_float(graph: Any) -> str | None:
    """The first output that a loss can look at."""
    for name in graph.outputs:
        if graph.tensors[name].dtype.is_float and graph.tensors[name].shape:
            return str(name)
    return None


def unpack(wheels: Path, folder: Path) -> None:
    """Writes the ONNX files of wheels as ``wheel-NAME.onnx``."""
    for wheel in sorted(wheels.glob("*.whl")):
        with zipfile.ZipFile(wheel) as archive:
            for entry in archive.namelist():
                if entry.endswith(".onnx"):
                    target = folder / f"wheel-{wheel.name.split('-')[0]}-{Path(entry).stem}.onnx"
                    target.write_bytes(archive.read(entry))


def gradients(model: Path) -> str:
    """The loss's derivative along its gradient, by the training graph and by central differences."""
    from architectures import directional
    from planner import api
    from planner.descriptions import in_force
    from planner.graph.reading.from_onnx import read_model

    dims = sizes_of(model)
    target = first_float(read_model(model, dims=dims, operators=in_force(None)[0]))
    with tempfile.TemporaryDirectory() as temporary:
        file = Path(temporary) / "step.onnx"
        api.grad(model, loss="mse", optimizer="sgd", lr=1.0, loss_input=target, dim=dims, output=file)
        step = read_model(file)
    known = {name: value for name, value in step.initial.items() if value is not None}
    feeds = {**known, **drawn(step, [name for name in step.inputs if name not in known])}
    loss, found, expected = directional(step, feeds)
    share = abs(found - expected) / max(abs(expected), 1e-12)
    return f"| {model.stem} | {loss:.5f} | {found:.6e} | {expected:.6e} | {share:.1e} |"


def in_a_process(model: Path, seconds: int) -> Row:
    """``examine`` in a process of its own, which may die or hang."""
    command = [sys.executable, __file__, "--one", str(model)]
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=seconds, check=False)
        lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
        row = Row(json.loads(lines[-1])) if lines else None
        said = f"exit {done.returncode}: {done.stderr[-250:]}"
    except subprocess.TimeoutExpired:
        row, said = None, f"no end within {seconds} s"
    if row is None:
        row = Row(name=model.stem, stock="", forward={"2": outcome("crashed", said)}, training={})
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    row["seconds"] = round(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, 1)
    return row


REMARKS: Final = "\n## Remarks\n"
"""What stands below this line was written by people, and stays when a table is written anew."""


def table(rows: list[Row]) -> str:
    """All rows as a page, with the sums and every refusal."""
    import onnxruntime

    lines = ["| network | ops | stock runtime | forward | training step | processor seconds |", "| --- " * 6 + "|"]
    counts: Counter[str] = Counter()
    refused: list[str] = []

    def cell(results: dict[str, dict[str, str]], kind: str, row: Row) -> str:
        by_result: dict[str, list[str]] = {}
        for workers, found in results.items():
            by_result.setdefault(found["result"], []).append(workers)
            counts[found["result"]] += 1
            if found["result"] != "verified":
                text = f"- {row['name']}, {kind}, {workers} workers: {found['result']}: {found['said']}"
                refused.append(text)
        return "; ".join(f"{result} on {', '.join(workers)}" for result, workers in by_result.items())

    for row in sorted(rows, key=lambda row: str(row["name"])):
        stock = "runs" if row["stock"] == "runs" else "does not" if row["stock"] else ""
        forward, training = cell(row["forward"], "forward", row), cell(row["training"], "training", row)
        lines.append(f"| {row['name']} | {row.get('ops', '')} | {stock} | {forward} | {training} | {row['seconds']} |")
    total = sum(counts.values())
    sums = ", ".join(f"{number} {what}" for what, number in counts.most_common())
    minutes = sum(row["seconds"] for row in rows) / 60
    head = f"""# Networks of other authors

{datetime.date.today()}, by `make world`: PyTorch's packages as in `tests/tools/world-requirements.txt`, ONNX Runtime
{onnxruntime.__version__}.

The networks are architectures of torchvision, timm, transformers and of PyTorch's own layers, small and with random
weights, each as PyTorch's exporter writes it after its optimizer and before (`.raw`), and networks in wheels of PyPI
(`wheel-`). Each is planned with `quick` as a forward graph and as a training step (AdamW, mean squared error). It runs
on the numbers of workers in its row, and is verified against the float64 twin. Forward results are also compared with
ONNX Runtime's.

{len(rows)} files, {total} plans: {sums}. Processor time: {minutes:.0f} minutes.
"""
    others = ["", "Not verified:", "", *refused] if refused else ["", "All are verified."]
    return "\n".join([head, *lines, *others, ""])


def main() -> int:
    """See the top of this file."""
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path, nargs="?")
    parser.add_argument("names", nargs="*")
    parser.add_argument("--one", type=Path)
    parser.add_argument("--gradients", action="store_true")
    parser.add_argument("--table", type=Path)
    parser.add_argument("--wheels", type=Path)
    parser.add_argument("--again", action="store_true")
    parser.add_argument("--seconds", type=int, default=600)
    given = parser.parse_intermixed_args()
    if given.one is not None:
        print(json.dumps(examine(given.one)), flush=True)
        return 0
    if given.gradients:
        print("| network | loss | change by gradients | by two runs | apart |\n| --- | --- | --- | --- | --- |")
        for name in given.names:
            print(gradients(given.folder / f"{name}.onnx"), flush=True)
        return 0
    if given.wheels is not None:
        unpack(given.wheels, given.folder)
    log = given.folder / "results.jsonl"
    known = [Row(json.loads(line)) for line in log.read_text().splitlines()] if log.exists() else []
    rows = {str(row["name"]): row for row in known}
    models = sorted(given.folder.glob("*.onnx"))
    for model in models:
        if given.names and model.stem not in given.names and model.stem.removesuffix(".raw") not in given.names:
            continue
        if model.stem in rows and not given.again:
            continue
        row = in_a_process(model, given.seconds)
        rows[model.stem] = row
        with log.open("a") as stream:
            stream.write(json.dumps(row) + "\n")
        short = {kind: {n: found["result"] for n, found in row[kind].items()} for kind in ("forward", "training")}
        print(f"{model.stem}: {short} {row['seconds']} s", flush=True)
    page = table(list(rows.values()))
    if given.table is not None:
        before = given.table.read_text() if given.table.exists() else ""
        given.table.write_text(page + "".join(before.partition(REMARKS)[1:]))
    print(page)
    bad = [found for row in rows.values() for kind in ("forward", "training") for found in row[kind].values()
           if found["result"] in ("wrong", "crashed")]  # fmt: skip
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
