"""Random valid graphs over all described operators: planned, run, verified, and held against the stock runtime.

    python tests/tools/fuzz_graphs.py [--seed N] [--count N] [--ops N]

A graph is a chain of cases of `planner.features.ops.cases.examples`: each floating-point input of an op is made of an
earlier op's result (flattened, repeated or cut to the number of elements, reshaped, brought into the case's range),
where one is there, and an input of the graph otherwise. What ONNX Runtime itself does not run is left out and
counted.

Prints the outcomes by kind and each graph that is neither verified nor refused; exit code 1 if there is one.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import traceback
from collections import Counter
from pathlib import Path
from typing import Final

os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

import stock_runtime
from planner.features.ops.cases.case import Case, Given, Known
from planner.features.ops.cases.examples import all_cases
from planner.graph.core.model import Op, dtype_of_array
from planner.graph.files.protos import elem_type_of, op_to_node
from planner.runtime.judge.compare import errors

BATCH: Final = 20
"""Graphs tried in one process, which may die."""
SECONDS: Final = 600
"""For so many."""
TOLERANCE: Final = 2e-3
"""How far an output may be from the stock runtime's, as a share of its largest element."""


_STOCK: Final = "now in the stock runtime"
_OURS: Final = "now in tofu"


class Drawing:
    """A model that grows case by case.

    Args:
        generator: draws cases, links and values.
    """

    def __init__(self, generator: np.random.Generator) -> None:
        self._generator = generator
        self._pool: list[str] = []
        self._nodes: list[onnx.NodeProto] = []
        self._constants: list[TensorProto] = []
        self.feeds: dict[str, np.ndarray] = {}
        self.opset = 13
        self._count = 0
        self._used: set[str] = set()

    def add(self, case: Case) -> None:
        """Appends an op."""
        names = [self._operand(operand) for operand in case.operands]
        outputs = [self._name("y") for _ in range(case.outputs)]
        self._nodes.append(op_to_node(Op(self._name("op"), case.op_type, tuple(names), tuple(outputs),
                                         case.attributes, case.domain)))  # fmt: skip
        self._pool.extend(outputs)
        self.opset = max(self.opset, case.opset)

    def model(self) -> onnx.ModelProto:
        """What has grown, with every result as an output: nothing is dead."""
        inputs = [helper.make_tensor_value_info(name, elem_type_of(dtype_of_array(array)), array.shape)
                  for name, array in self.feeds.items()]  # fmt: skip
        outputs = [helper.make_empty_tensor_value_info(name) for name in self._pool]
        graph = helper.make_graph(self._nodes, "fuzz", inputs, outputs, self._constants)
        domains = sorted({node.domain for node in self._nodes if node.domain})
        opsets = [helper.make_opsetid("", self.opset), *(helper.make_opsetid(domain, 1) for domain in domains)]
        model = helper.make_model(graph, opset_imports=opsets, ir_version=10)
        inferred = onnx.shape_inference.infer_shapes(model)
        del model.graph.output[:]
        model.graph.output.extend(value for value in inferred.graph.output if value.type.tensor_type.elem_type)
        wrong = {name for node in self._nodes if node.op_type == "STFT" for name in node.output}
        for value in model.graph.output:
            if value.name in wrong:  # without `onesided`, half of the frequencies are made; ONNX infers all
                value.type.tensor_type.ClearField("shape")
        return model

    def _operand(self, operand: Given | Known | None) -> str:
        if operand is None:
            return ""
        if isinstance(operand, Known):
            return self._constant(operand.array) if operand.constant else self._fed(operand.array)
        if operand.dtype == "float32" and self._pool and self._generator.random() < 0.8:
            return self._linked(operand, str(self._generator.choice(self._pool)))
        if operand.dtype == "bool":
            return self._fed(self._generator.random(operand.shape) < 0.5)
        if np.dtype(operand.dtype).kind in "iu":
            return self._fed(self._generator.integers(int(operand.low), int(operand.high) + 1, operand.shape).astype(
                operand.dtype))  # fmt: skip
        return self._fed(self._generator.uniform(operand.low, operand.high, operand.shape).astype(operand.dtype))

    def _linked(self, operand: Given, source: str) -> str:
        """An earlier result in the shape and range of an operand."""
        elements = int(np.prod(operand.shape, dtype=np.int64))
        float_, flat, many, some, shaped = (self._name(stem) for stem in ("float", "flat", "many", "some", "shaped"))
        limited = self._name("limited")
        low, high = (self._constant(np.array(bound, np.float32)) for bound in (operand.low, operand.high))
        self._nodes += [
            helper.make_node("Cast", [source], [float_], to=TensorProto.FLOAT),
            helper.make_node("Reshape", [float_, self._constant(np.array([-1]))], [flat]),
            # Resize would do it, too: what is too short is repeated.
            helper.make_node("Tile", [flat, self._constant(np.array([elements]))], [many]),
            helper.make_node("Slice", [many, self._constant(np.array([0])), self._constant(np.array([elements])),
                                       self._constant(np.array([0]))], [some]),
            helper.make_node("Reshape", [some, self._constant(np.array(operand.shape, np.int64))], [shaped]),
            helper.make_node("Clip", [shaped, low, high], [limited]),
        ]  # fmt: skip
        return limited

    def _constant(self, array: np.ndarray) -> str:
        name = self._name("c")
        self._constants.append(numpy_helper.from_array(np.ascontiguousarray(array).reshape(array.shape), name))
        return name

    def _fed(self, array: np.ndarray) -> str:
        name = self._name("x")
        self.feeds[name] = array
        return name

    def _name(self, stem: str) -> str:
        self._count += 1
        return f"{stem}{self._count}"


def one(seed: int, number: int, ops: int) -> tuple[str, str]:
    """One graph: what became of it, and what is to be said."""
    from planner import api
    from planner.errors import TofuError

    generator = np.random.default_rng([seed, number])
    cases = [case for case in all_cases() if case.domain == "" and case.opset <= 21]
    drawing = Drawing(generator)
    chosen = [cases[int(index)] for index in generator.integers(0, len(cases), int(generator.integers(1, ops + 1)))]
    try:
        for case in chosen:
            drawing.add(case)
        model = drawing.model()
        print(_STOCK, file=sys.stderr, flush=True)
        right = stock_runtime.run(model, drawing.feeds, threads=1, log_level=4)
    except Exception as error:  # noqa: BLE001 -- what neither ONNX nor the runtime takes is no valid graph
        return "not run by the stock runtime", f"{type(error).__name__}"
    print(_OURS, file=sys.stderr, flush=True)
    workers = int(generator.integers(2, 5))
    said = f"{number}: {' '.join(map(str, chosen))} on {workers}"[:400]
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        onnx.save(model, folder / "fuzz.onnx")
        np.savez(folder / "inputs.npz", **drawing.feeds)
        try:
            api.plan(folder / "fuzz.onnx", gpus=workers, effort="quick", out=folder / "plan")
        except TofuError as error:
            return f"refused: {' '.join(error.what.split()[-6:])}"[:90], said
        except Exception as error:  # noqa: BLE001 -- a crash
            return "crashed", f"{said}: plan: {traceback.format_exception(error)[-2:]}"
        try:
            found = api.run(folder / "plan", inputs=folder / "inputs.npz", verify=True)
        except TofuError as error:
            return "crashed", f"{said}: run: {error.what} {error.facts[:2]}"
        except Exception as error:  # noqa: BLE001 -- a crash
            return "crashed", f"{said}: run: {traceback.format_exception(error)[-2:]}"
    for name, value in right.items():
        mine = found.results[name]
        if value.dtype.kind == "f" and value.size:
            off, _ = errors(mine, value)
            if off == np.inf:
                return "other infinities than the stock runtime's", f"{said}: {name}"
            if off > TOLERANCE:
                return "wrong", f"{said}: {name} is not the stock runtime's"
    if not found.verified:
        return "not verified", f"{said}: {found.worst}"
    return "verified", said


def batch(seed: int, first: int, count: int, ops: int) -> list[tuple[str, str]]:
    """Several graphs in a process of their own; one that dies is told from the others."""
    command = [sys.executable, __file__, "--seed", str(seed), "--first", str(first), "--count", str(count), "--ops",
               str(ops), "--inside"]  # fmt: skip
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=False)
        lines = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("[")]
        ended, said_last = f"exit {done.returncode}", done.stderr
    except subprocess.TimeoutExpired as error:
        text = error.stdout.decode() if isinstance(error.stdout, bytes) else error.stdout or ""
        lines = [json.loads(line) for line in text.splitlines() if line.startswith("[")]
        ended, said_last = f"no end in {SECONDS} s", str(error.stderr)
    found = [(str(what), str(said)) for what, said in lines]
    if len(found) < count:
        in_stock = said_last.rfind(_STOCK) > said_last.rfind(_OURS)
        what = "not run by the stock runtime, which died" if in_stock else "died"
        found.append((what, f"graph {first + len(found)}: {ended}: {said_last[-300:]}"))
        if len(found) < count:
            found += batch(seed, first + len(found), count - len(found), ops)
    return found


def main() -> int:
    """See the top of this file."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--ops", type=int, default=6)
    parser.add_argument("--inside", action="store_true")
    given = parser.parse_args()
    if given.inside:
        for number in range(given.first, given.first + given.count):
            print(json.dumps(one(given.seed, number, given.ops)), flush=True)
        return 0
    counts: Counter[str] = Counter()
    bad = 0
    for first in range(given.first, given.first + given.count, BATCH):
        for what, said in batch(given.seed, first, min(BATCH, given.first + given.count - first), given.ops):
            counts[what] += 1
            if what != "verified" and not what.startswith(("refused", "not run")):
                bad += 1
                print(f"{what}: {said}", flush=True)
    print(f"seed {given.seed}, {given.count} graphs: " + "; ".join(f"{n} {what}" for what, n in counts.most_common()))
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
