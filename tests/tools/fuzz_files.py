"""Mutated files through the commands, and how each of them ended.

    python tests/tools/fuzz_files.py --seed 1 --count 1000

Every case is one file, or one folder, that was right, and is changed in one place or a few: a model, a plan, inputs,
weights, a topology, a profile, a baseline, pairs, a checkpoint. A command reads it, in a process that has run some
cases before. Printed are the counts by kind of file and exit code, and the findings, which is what must not be:

    bug        exit code 4, or a traceback on stderr
    crash      the process died
    hang       more than a minute
    memory     more than 1 GB
    words      the words of Python's own errors on stderr

A case is drawn from the seed and its number alone: ``--case 17`` runs that one again and shows what it says.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import json
import os
import re
import resource
import select
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parents[2]
HANG_SECONDS = 300
MOST_BYTES = 10**9
BATCH = 40
WORDS = re.compile(
    r"Expecting (value|property|',')|object has no attribute|index out of range|NoneType|not subscriptable|"
    r"\b(Key|Value|Type|Index|Attribute|Runtime|Assertion|Unicode\w*|Overflow)Error\b|could not convert|invalid literal"
    r"|unhashable|unexpected keyword|codec can't|recursion depth|takes \d+ positional"
)
PARSED = (
    """<ir_version: 10, opset_import: ["" : 21, "local" : 1]>
g (float[2, 4] x, float[4] b = {1.0, 2.0, 3.0, 4.0}) => (float[2, 4] y)
<float[4, 4] w = {1.0, 2.0, 3.0, 4.0, 1.0, 2.0, 3.0, 4.0, 1.0, 2.0, 3.0, 4.0, 1.0, 2.0, 3.0, 4.0}> {
    h = local.dense <alpha = 2.0> (x, w, b)
    s = Shape (h)
    r = Reshape (h, s)
    y = Softmax <axis = -1> (r)
}
<domain: "local", opset_import: ["" : 21]> dense <alpha> (x, w, b) => (y) {
    h = MatMul (x, w)
    a = Constant <value_float: float = @alpha> ()
    m = Mul (h, a)
    y = Add (m, b)
}""",
    """<ir_version: 9, opset_import: ["" : 17]>
g (float[2, 3, 8, 8] x) => (float[2, 4] y)
<float[4, 3, 1, 1] k = {1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0, 1.0, 2.0, 3.0},
 float[4] c = {1.0, 2.0, 3.0, 4.0}> {
    one = Constant <value_ints = [2, 3]> ()
    h = Conv <strides = [2, 2]> (x, k)
    n = InstanceNormalization (h, c, c)
    t = Tanh (n)
    q = AveragePool <kernel_shape = [2, 2]> (t)
    y = ReduceMean <axes = [2, 3], keepdims = 0> (q)
}""",
    """<ir_version: 10, opset_import: ["" : 20]>
g (int64[2, 6] ids, float[10, 8] table) => (float[2, 6, 8] y)
<float[8, 8] w = {WEIGHTS}, float[8] s = {1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0},
 int64[1] last = {1}, int64[3] parts = {2, 2, 2}, bool flag = {1}> {
    e = Gather (table, ids)
    a, b, c = Split <axis = 1> (e, parts)
    j = Concat <axis = 1> (c, a, b)
    q = MatMul (j, w)
    t = Transpose <perm = [0, 2, 1]> (q)
    m = MatMul (q, t)
    z = Softmax (m)
    v = MatMul (z, q)
    n = LayerNormalization <axis = -1> (v, s)
    y = If (flag) <then_branch = t () => (float[2, 6, 8] u) { u = Gelu (n) },
                   else_branch = e () => (float[2, 6, 8] u) { u = Abs (n) }>
}""",
)
WEIGHTS = ", ".join(f"{0.01 * number:.2f}" for number in range(64))
TOPOLOGY = """name: two boxes
source: nobody
device: {memory: 12GiB, compute: {float32: 4.1TFLOP/s, float16: 8TFLOP/s}, memory_bandwidth: 240GB/s}
levels:
  - {name: socket, ways: 1, bandwidth: 10GB/s, latency: 10us, shared_by: 1}
  - {name: pcie, ways: 2, bandwidth: 21GB/s, latency: 5us}
"""
GRAPH_TOPOLOGY = """device: {memory: 16GB}
devices:
  - {id: 0}
  - {id: 1, memory: 24GB}
switches: [host]
links:
  - {between: [0, host], bandwidth: 20GB/s, latency: 3us}
  - {between: [1, host], bandwidth: 16GB/s}
"""


class Material:
    """What is right before it is mutated, made once in a folder.

    Args:
        folder: filled, unless it is already.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.models = sorted((folder / "models").glob("*.onnx"))
        self.forward = sorted((folder / "forward").glob("*.onnx"))

    @classmethod
    def make(cls, folder: Path) -> Material:
        """Writes all of it."""
        from onnx import parser, save_model

        from planner import api

        (folder / "models").mkdir(parents=True)
        (folder / "forward").mkdir()
        for name, batch in (("lenet-5", 2), ("mlp-2x16", 4), ("cnn-2x4-6", 2)):
            api.zoo(name, batch=batch, output=folder / "models" / f"{name}.onnx")
        for number, text in enumerate(PARSED):
            save_model(
                parser.parse_model(text.replace("WEIGHTS", WEIGHTS)), folder / "forward" / f"parsed{number}.onnx"
            )
            save_model(parser.parse_model(text.replace("WEIGHTS", WEIGHTS)), folder / "models" / f"parsed{number}.onnx")
        for name in ("mlp_grads_core", "ort_training_mlp/training_model"):
            shutil.copy(ROOT / "tests" / "models" / f"{name}.onnx", folder / "models" / f"{Path(name).name}.onnx")
        step = folder / "models" / "trained0.onnx"
        api.grad(folder / "forward" / "parsed0.onnx", loss="mse", optimizer="adam", output=step)
        mlp = folder / "models" / "mlp-2x16.onnx"
        api.plan(mlp, gpus=2, out=folder / "plan", effort="quick")
        ran = api.run(folder / "plan", result=folder / "result.npz", checkpoint_dir=folder / "ck", steps=1)
        states = {name.removesuffix(".next"): value for name, value in ran.results.items() if name.endswith(".next")}
        np.savez(folder / "inputs.npz", x0=np.ones((4, 16), np.float32))
        np.savez_compressed(folder / "weights.npz", **states)
        api.run(folder / "plan", export=folder / "weights.safetensors")
        api.check([str(mlp)], gpus=[2], baseline=folder / "costs.json", update=True)
        (folder / "two.yaml").write_text(TOPOLOGY)
        (folder / "graph.yaml").write_text(GRAPH_TOPOLOGY)
        (folder / "pairs.yaml").write_text("".join(f"{name}: {name}.next\n" for name in states))
        api.profile(mlp, gpus=2, topology=str(folder / "two.yaml"), out=folder / "profile.yaml")
        return cls(folder)


def write(path: Path, content: bytes | str) -> Path:
    """Writes a mutated file."""
    path.write_bytes(content if isinstance(content, bytes) else content.encode("utf-8", "surrogateescape"))
    return path


def mend(plan: Path) -> None:
    """Makes a plan's digests those of its files, as somebody would who wants it to be read."""
    from onnx import ModelProto

    digest = {}
    with contextlib.suppress(Exception):
        data = json.loads((plan / "plan.json").read_bytes())
        data["model_digest"] = hashlib.sha256((plan / "model.onnx").read_bytes()).hexdigest()
        (plan / "plan.json").write_text(json.dumps(data))
    for file in plan.glob("worker*.onnx"):
        with contextlib.suppress(Exception):
            model = ModelProto.FromString(file.read_bytes())
            for entry in model.metadata_props:
                if entry.key == "tofu.plan":
                    entry.value = hashlib.sha256((plan / "plan.json").read_bytes()).hexdigest()
            file.write_bytes(model.SerializeToString(deterministic=True))
    for file in plan.iterdir():
        if file.name != "manifest.json":
            digest[file.name] = hashlib.sha256(file.read_bytes()).hexdigest()
    with contextlib.suppress(Exception):
        manifest = json.loads((plan / "manifest.json").read_bytes())
        manifest["files"].update({name: value for name, value in digest.items() if name in manifest["files"]})
        (plan / "manifest.json").write_text(json.dumps(manifest))


def model_case(rng: Random, material: Material, here: Path) -> list[list[str]]:
    """A model, planned, trained or checked; what could be planned is sometimes run."""
    import mutations

    kind = rng.choice(("plan", "plan", "plan", "grad", "grad", "check"))
    base = rng.choice(material.forward if kind == "grad" else material.models)
    mutate = mutations.of_bytes if rng.random() < 0.3 else mutations.of_model
    model = str(write(here / "m.onnx", mutate(rng, base.read_bytes())))
    if kind == "grad":
        loss = rng.choice(("mse", "softmax_cross_entropy"))
        made = str(here / "t.onnx")
        lines = [["grad", model, "--loss", loss, "--optimizer", rng.choice(("sgd", "adam")), "-o", made]]
        return [*lines, ["plan", made, "--gpus", "2", "--effort", "quick", "-o", str(here / "p")]]
    if kind == "check":
        return [["check", model, "--gpus", "2", "--baseline", str(here / "costs.json"), "--update"]]
    lines = [["plan", model, "--gpus", str(rng.choice((2, 2, 3))), "--effort", "quick", "-o", str(here / "p")]]
    lines.append(["explain", str(here / "p")])
    if rng.random() < 0.4:
        lines.append(["run", str(here / "p"), "--patience", "20", *(["--verify"] if rng.random() < 0.5 else [])])
    return lines


def plan_case(rng: Random, material: Material, here: Path) -> list[list[str]]:
    """A plan's folder, of which a file is changed, and mostly the digests with it."""
    import mutations

    plan = here / "p"
    shutil.copytree(material.folder / "plan", plan)
    name = rng.choice(("plan.json", "plan.json", "manifest.json", "worker0.onnx", "worker1.onnx", "model.onnx"))
    content = (plan / name).read_bytes()
    if rng.random() < 0.3:
        write(plan / name, mutations.of_bytes(rng, content))
    elif name.endswith(".json"):
        write(plan / name, mutations.of_json(rng, content.decode()))
    else:
        write(plan / name, mutations.of_model(rng, content))
    if rng.random() < 0.8:
        mend(plan)
    if rng.random() < 0.5:
        return [["explain", str(plan), *rng.choice(([], ["w1"], ["x0"]))]]
    return [["run", str(plan), "--patience", "20", *(["--verify"] if rng.random() < 0.5 else [])]]


def arrays_case(rng: Random, material: Material, here: Path) -> list[list[str]]:
    """Inputs or weights."""
    import mutations

    option, name = rng.choice(
        (("--inputs", "inputs.npz"), ("--weights", "weights.npz"), ("--weights", "weights.safetensors"))
    )
    content = (material.folder / name).read_bytes()
    if name.endswith(".safetensors") and rng.random() < 0.6:
        length = int.from_bytes(content[:8], "little")
        header = mutations.of_json(rng, content[8 : 8 + length].decode()).encode()
        content = len(header).to_bytes(8, "little") + header + content[8 + length :]
    elif rng.random() < 0.7:
        content = mutations.of_bytes(rng, content)
    else:
        shape = tuple(rng.choice((0, 1, 4, 16, 300)) for _ in range(rng.randrange(4)))
        values = np.ones(shape, rng.choice(("<f4", ">f4", "<f8", "|S3", "<i8", "|V2", "<U2", "<c8")))
        np.savez(here / "made.npz", **{rng.choice(("x0", "in_x0", "w1", "out_x", "a/b")): values})
        content, name = (here / "made.npz").read_bytes(), "a.npz"
    file = write(here / f"mutated{Path(name).suffix}", content)
    return [["run", str(material.folder / "plan"), option, str(file), "--patience", "20"]]


def text_case(rng: Random, material: Material, here: Path) -> list[list[str]]:
    """A topology, a profile, pairs or a baseline."""
    import mutations

    name = rng.choice(("two.yaml", "two.yaml", "graph.yaml", "profile.yaml", "pairs.yaml", "costs.json", "costs.json"))
    text = (material.folder / name).read_text()
    mutate = mutations.of_json if name.endswith(".json") and rng.random() < 0.7 else mutations.of_text
    file = str(write(here / name, mutate(rng, text)))
    model = str(material.folder / "models" / "mlp-2x16.onnx")
    plan = ["plan", model, "--effort", "quick", "-o", str(here / "p")]
    match name:
        case "two.yaml" | "graph.yaml":
            return [[*plan, "--topology", file]]
        case "profile.yaml":
            return [[*plan, "--topology", str(material.folder / "two.yaml"), "--profile", file]]
        case "pairs.yaml":
            return [[*plan, "--gpus", "2", "--state", file]]
    return [["check", model, "--gpus", "2", "--baseline", file, *rng.choice(([], ["--update"]))]]


def checkpoint_case(rng: Random, material: Material, here: Path) -> list[list[str]]:
    """A checkpoint."""
    import mutations

    shutil.copytree(material.folder / "ck", here / "ck")
    (step,) = (here / "ck").iterdir()
    file = rng.choice(sorted(step.iterdir()))
    if file.suffix == ".json" and rng.random() < 0.8:
        write(file, mutations.of_json(rng, file.read_text()))
    else:
        write(file, mutations.of_bytes(rng, file.read_bytes()))
    if rng.random() < 0.6:
        with contextlib.suppress(Exception):
            manifest = json.loads((step / "manifest.json").read_bytes())
            for name in manifest["files"]:
                manifest["files"][name] = hashlib.sha256((step / name).read_bytes()).hexdigest()
            (step / "manifest.json").write_text(json.dumps(manifest))
    line = ["run", str(material.folder / "plan"), "--checkpoint-dir", str(here / "ck"), "--resume", "--steps", "2"]
    return [[*line, "--patience", "20"]]


Case = Callable[[Random, Material, Path], list[list[str]]]
CASES: tuple[tuple[str, Case, int], ...] = (
    ("model", model_case, 60),
    ("plan", plan_case, 16),
    ("arrays", arrays_case, 8),
    ("text", text_case, 12),
    ("checkpoint", checkpoint_case, 4),
)


def run_case(seed: int, number: int, material: Material, here: Path) -> list[dict[str, Any]]:
    """Runs one case; how each of its commands ended."""
    from planner.commands import main as cli

    rng = Random(f"{seed}:{number}")
    kind, make, _ = rng.choices(CASES, [weight for _, _, weight in CASES])[0]
    ended = []
    for line in make(rng, material, here):
        start = time.perf_counter()
        code = cli.main(line)
        sys.stdout.flush()
        sys.stderr.flush()
        seconds = time.perf_counter() - start
        ended.append({"case": number, "kind": kind, "command": line[0], "code": code, "seconds": round(seconds, 2)})
        if code:
            break
    return ended


def run_batch(seed: int, numbers: list[int], material: Material, answers: int) -> None:
    """Runs cases in this process, and tells how each ended on a pipe."""
    resource.setrlimit(resource.RLIMIT_AS, (16 * 2**30,) * 2)
    with os.fdopen(answers, "w") as pipe, tempfile.TemporaryDirectory() as folder:
        tempfile.tempdir = folder
        said = Path(folder) / "said"
        for number in numbers:
            here = Path(folder) / f"case{number}"
            here.mkdir()
            print(json.dumps({"begins": number}), file=pipe, flush=True)
            with said.open("w+") as stream:
                os.dup2(stream.fileno(), 2)
                os.dup2(stream.fileno(), 1)
                ended = run_case(seed, number, material, here)
            text = said.read_text(errors="replace")
            for trace in Path(folder).glob("tofu-*.traceback.txt"):
                text += trace.read_text()
                trace.unlink()
            peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
            peak = max(peak, resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024)
            print(json.dumps({"ended": ended, "said": text[-20000:], "peak": peak}), file=pipe, flush=True)
            shutil.rmtree(here, ignore_errors=True)
            if peak > MOST_BYTES:
                return  # the highest peak stays: the next cases need a new process


def finding_of(answer: dict[str, Any]) -> str:
    """What is wrong with how a case ended, or ""."""
    said = answer["said"]
    if any(entry["code"] == 4 for entry in answer["ended"]) or "Traceback (most recent call last)" in said:
        return "bug"
    if answer["peak"] > MOST_BYTES:
        return "memory"
    if any(entry["seconds"] > HANG_SECONDS for entry in answer["ended"]):
        return "hang"
    # What ONNX Runtime says of a worker's failure is told as it is.
    is_told = all(entry["code"] != 3 for entry in answer["ended"])
    return "words" if is_told and WORDS.search(said) else ""


def main() -> int:
    """Runs the cases and prints what became of them."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--first", type=int, default=0, help="number of the first case")
    parser.add_argument("--case", type=int, help="run this case alone, and show what it says")
    parser.add_argument("--batch", help=argparse.SUPPRESS)
    parser.add_argument("--material", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    sys.path[:0] = [str(ROOT), str(Path(__file__).parent)]
    if options.batch is not None:
        numbers, answers = options.batch.split(":")
        run_batch(options.seed, [int(part) for part in numbers.split(",")], Material(options.material), int(answers))
        return 0
    with tempfile.TemporaryDirectory() as folder:
        material = Material.make(Path(folder) / "material")
        if options.case is not None:
            here = Path(folder) / "case"
            here.mkdir()
            for entry in run_case(options.seed, options.case, material, here):
                print(entry)
            return 0
        return _all(options.seed, list(range(options.first, options.first + options.count)), material)


def _all(seed: int, waiting: list[int], material: Material) -> int:
    counts: Counter[tuple[str, str, int]] = Counter()
    findings: list[tuple[str, int, str]] = []
    total = len(waiting)
    while waiting:
        done, found = _one_process(seed, waiting[:BATCH], material, counts)
        findings += found
        waiting = [number for number in waiting if number not in done]
        for what, number, said in found:
            print(f"case {number}: {what}\n{said}", flush=True)
    print(f"seed {seed}: {total} cases, {sum(counts.values())} commands")
    for (kind, command, code), count in sorted(counts.items()):
        print(f"  {kind:<11}{command:<9}exit {code:<4}{count}")
    print(f"findings: {len(findings)}", dict(Counter(what for what, _, _ in findings)))
    return 1 if findings else 0


def _one_process(
    seed: int, numbers: list[int], material: Material, counts: Counter[tuple[str, str, int]]
) -> tuple[set[int], list[tuple[str, int, str]]]:
    """Runs cases in a new process, as far as it comes."""
    reader, writer = os.pipe()
    batch = f"{','.join(map(str, numbers))}:{writer}"
    command = [sys.executable, __file__, "--seed", str(seed), "--batch", batch, "--material", str(material.folder)]
    process = subprocess.Popen(command, pass_fds=(writer,), start_new_session=True, stdin=subprocess.DEVNULL)
    os.close(writer)
    done: set[int] = set()
    findings: list[tuple[str, int, str]] = []
    current = -1
    for answer in _answers(reader):
        if "begins" in answer:
            current = answer["begins"]
            continue
        done.add(current)
        counts.update((entry["kind"], entry["command"], entry["code"]) for entry in answer["ended"])
        what = finding_of(answer)
        if what:
            findings.append((what, current, answer["said"][-3000:]))
        current = -1
    is_silent = process.poll() is None and current >= 0
    if is_silent:
        with contextlib.suppress(subprocess.TimeoutExpired):  # a process that dies may take a moment
            is_silent = process.wait(1) is None
        process.kill()
    code = process.wait()
    if current >= 0:
        findings.append(("hang", current, "") if is_silent else ("crash", current, f"exit code {code}"))
        done.add(current)
    return done, findings


def _answers(reader: int) -> Iterator[dict[str, Any]]:
    """What a process says, line by line, until it says nothing for too long."""
    rest = b""
    with os.fdopen(reader, "rb", buffering=0) as pipe:
        while select.select([pipe], [], [], 3 * HANG_SECONDS)[0]:
            chunk = os.read(reader, 1 << 16)
            if not chunk:
                return
            *lines, rest = (rest + chunk).split(b"\n")
            yield from map(json.loads, lines)


if __name__ == "__main__":
    sys.exit(main())
