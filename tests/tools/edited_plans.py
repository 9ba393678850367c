"""Plans of which somebody changed something, with every digest mended: what does a run make of them?

    .venv/bin/python tests/tools/edited_plans.py [SEED [COUNT]]      prints what became of each edit, and the counts

One edit at random, of a worker model, of the plan or of the manifest; ``model.onnx`` is left alone, since an edit of
that is simply another model. What may come of it:

    refused      before or while it runs, with an error of ours
    caught       the verification differs, or other bytes move than predicted
    no effect    verified, and every output has the bits that it had
    rounding     verified, and outputs differ by no more than right runs do; an edit of an epsilon can do no more

All else is a bug: a crash, a run that does not end, or "verified" with wrong numbers.
"""

from __future__ import annotations

import contextlib
import json
import random
import shutil
import signal
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import numpy as np
from onnx import AttributeProto, ModelProto, NodeProto, TensorProto, numpy_helper

from planner import api
from planner.artifacts.place import MANIFEST, PLAN
from planner.artifacts.plan import digest
from planner.errors import DifferenceError, TofuError
from planner.graph.core.model import DType, Graph, Op, Tensor
from planner.graph.files.to_onnx import write_model
from planner.runtime.judge.compare import errors
from planner.runtime.plan_files import load_plan
from planner.runtime.run_report import RunResult
from planner.training.build import build_training_graph
from run_plan import run_plan

_PATIENCE_SECONDS: Final = 300
_ROUNDING: Final = 1e-5
"""Of the largest element, or of the largest change: what outputs may differ by and still be called rounding."""
_SWAPS: Final = {
    "Add": ("Sub", "Mul"), "Sub": ("Add", "Max"), "Mul": ("Div", "Add"), "Div": ("Mul", "Pow"),
    "Relu": ("Abs", "Tanh"), "Tanh": ("Sigmoid", "Relu"), "MatMul": ("Mul", "Add"), "Max": ("Min", "Add"),
    "ReduceSum": ("ReduceMean", "ReduceMax"), "Exp": ("Sin", "Neg"), "Sqrt": ("Abs", "Exp"), "Neg": ("Identity", "Abs"),
    "Conv": ("ConvTranspose", "MatMul"), "Greater": ("Less", "Equal"), "Identity": ("Neg", "Abs"),
    "Transpose": ("Identity", "Relu"),
}  # fmt: skip


class PassedOverError(Exception):
    """The edit found nothing to change in this file."""


@dataclass(frozen=True)
class Original:
    """A plan in a folder, and what a run of it gives."""

    folder: Path
    result: RunResult


@dataclass(frozen=True)
class Outcome:
    """What became of an edit."""

    verdict: str
    """See above; else ``WRONG``, ``CRASH`` or ``HANG``."""
    edit: str
    said: str

    @property
    def is_sound(self) -> bool:
        return self.verdict in ("refused", "caught", "no effect", "rounding")


def originals(where: Path) -> tuple[Original, ...]:
    """Two training steps, planned: dense layers with Adam on 2 workers, and a convolution cut along its height on 3."""
    found = []
    for name, forward, optimizer, workers, pin in (
        ("dense", _dense(), "adam", 2, {"x": "S(0)"}),
        ("conv", _convolutions(), "momentum", 3, {"x": "S(2)", "one": "S(2)", "two": "S(2)"}),
    ):
        graph = build_training_graph(forward, loss="softmax_cross_entropy", optimizer=optimizer, learning_rate=0.05)
        write_model(graph, where / f"{name}.onnx")
        folder = where / name
        api.plan(where / f"{name}.onnx", gpus=workers, out=folder, pin=pin, effort="quick")
        result = run_plan(replace(load_plan(folder), paths=()), steps=2, verify=True, seed=3)
        assert result.verified
        assert result.moved_bytes > 0
        found.append(Original(folder, result))
    return tuple(found)


def _dense() -> Graph:
    """Three dense layers; two weights are of one shape."""
    rng = np.random.default_rng(0)
    shapes = {"x": (12, 8), "w0": (8, 8), "w1": (8, 8), "w2": (8, 5), "b": (5,), "h0": (12, 8), "a0": (12, 8)}
    shapes |= {"h1": (12, 8), "a1": (12, 8), "h2": (12, 5), "y": (12, 5)}
    ops = (
        Op("h0_op", "MatMul", ("x", "w0"), ("h0",)),
        Op("a0_op", "Relu", ("h0",), ("a0",)),
        Op("h1_op", "MatMul", ("a0", "w1"), ("h1",)),
        Op("a1_op", "Tanh", ("h1",), ("a1",)),
        Op("h2_op", "MatMul", ("a1", "w2"), ("h2",)),
        Op("y_op", "Add", ("h2", "b"), ("y",)),
    )
    return _graph("dense", shapes, ops, {name: rng.normal(0, 0.5, shapes[name]) for name in ("w0", "w1", "w2", "b")})


def _convolutions() -> Graph:
    """Two convolutions, which need their neighbours' borders, and a dense layer."""
    rng = np.random.default_rng(1)
    shapes = {"x": (2, 3, 9, 5), "k1": (4, 3, 3, 3), "k2": (4, 4, 3, 3), "one": (2, 4, 9, 5), "act": (2, 4, 9, 5)}
    shapes |= {"two": (2, 4, 9, 5), "pool": (2, 4, 1, 1), "flat": (2, 4), "w": (4, 3), "y": (2, 3)}
    window = (("kernel_shape", (3, 3)), ("pads", (1, 1, 1, 1)))
    ops = (
        Op("one_op", "Conv", ("x", "k1"), ("one",), window),
        Op("act_op", "Relu", ("one",), ("act",)),
        Op("two_op", "Conv", ("act", "k2"), ("two",), window),
        Op("pool_op", "GlobalAveragePool", ("two",), ("pool",)),
        Op("flat_op", "Flatten", ("pool",), ("flat",), (("axis", 1),)),
        Op("y_op", "MatMul", ("flat", "w"), ("y",)),
    )
    return _graph("conv", shapes, ops, {name: rng.normal(0, 0.4, shapes[name]) for name in ("k1", "k2", "w")})


def _graph(name: str, shapes: dict[str, tuple[int, ...]], ops: tuple[Op, ...], weights: dict[str, np.ndarray]) -> Graph:
    tensors = {tensor: Tensor(tensor, shape, DType.FLOAT32) for tensor, shape in shapes.items()}
    constants = {weight: value.astype(np.float32) for weight, value in weights.items()}
    return Graph(name, tensors, ops, ("x",), ("y",), constants)


def edited(original: Original, target: Path, rng: random.Random) -> str:
    """A copy of a plan's folder with one thing changed; returns what."""
    while True:
        shutil.rmtree(target, ignore_errors=True)
        shutil.copytree(original.folder, target)
        kind = rng.choice(("worker", "worker", "worker", "worker", "worker", "plan", "manifest"))
        try:
            said = {"worker": _edit_worker, "plan": _edit_plan, "manifest": _edit_manifest}[kind](target, rng)
        except (PassedOverError, IndexError):
            continue
        mend(target, mends_plan=kind == "plan")
        if kind == "manifest" or _differs(original.folder, target):
            return said


def _differs(one: Path, other: Path) -> bool:
    return any(file.read_bytes() != (other / file.name).read_bytes() for file in one.iterdir() if file.name != MANIFEST)


def mend(folder: Path, *, mends_plan: bool) -> None:
    """Digests of all files, in the manifest and in the worker models."""
    if mends_plan:
        wanted = digest((folder / PLAN).read_bytes())
        for file in sorted(folder.glob("worker*.onnx")):
            model = ModelProto.FromString(file.read_bytes())
            for entry in model.metadata_props:
                if entry.key == "tofu.plan":
                    entry.value = wanted
            file.write_bytes(model.SerializeToString())
    manifest = folder / MANIFEST
    data = json.loads(manifest.read_text())
    if isinstance(data, dict) and isinstance(data.get("files"), dict):
        for name in data["files"]:
            if (folder / str(name)).is_file():
                data["files"][name] = digest((folder / name).read_bytes())
        manifest.write_text(json.dumps(data, indent=1))


def _edit_worker(folder: Path, rng: random.Random) -> str:
    file = rng.choice(sorted(folder.glob("worker*.onnx")))
    content = file.read_bytes()
    if rng.random() < 0.03:
        if rng.random() < 0.5:
            other = rng.choice(sorted(folder.glob("worker*.onnx")))
            file.write_bytes(other.read_bytes())
            return f"{file.name} is a copy of {other.name}"
        length = rng.randrange(len(content))
        file.write_bytes(content[:length])
        return f"{file.name} ends after {length} bytes"
    model = ModelProto.FromString(content)
    edit = rng.choice(_WORKER_EDITS)
    said = edit(model, rng)
    file.write_bytes(model.SerializeToString())
    return f"{file.name}: {said}"


def _bodies(model: ModelProto, rng: random.Random) -> tuple[Any, Any]:
    body = rng.choice(list(model.functions))
    return body, rng.choice(list(body.node))


def _attribute(model: ModelProto, rng: random.Random) -> str:
    body = rng.choice([f for f in model.functions if any(node.attribute for node in f.node)])
    node = rng.choice([node for node in body.node if node.attribute])
    attribute = rng.choice(list(node.attribute))
    return f"{body.name}, {node.op_type}: {_changed_attribute(attribute, rng)}"


def _changed_attribute(attribute: AttributeProto, rng: random.Random) -> str:
    match attribute.type:
        case AttributeProto.INT:
            attribute.i += rng.choice((-3, -1, 1, 2, 1 << 40))
        case AttributeProto.FLOAT:
            attribute.f = rng.choice((0.0, -attribute.f, attribute.f * 2 + 1, float("nan"), float("inf")))
        case AttributeProto.STRING:
            attribute.s = rng.choice((b"", b"SAME_UPPER", b"Sum", b"Max", b"nonsense", b"\xff\xfe"))
        case AttributeProto.INTS:
            position = rng.randrange(len(attribute.ints) + 1)
            if position == len(attribute.ints):
                attribute.ints.append(rng.randrange(-1, 4))
            else:
                attribute.ints[position] += rng.choice((-1, 1, 7))
        case AttributeProto.STRINGS:
            attribute.strings[rng.randrange(len(attribute.strings))] = b"nonsense"
        case AttributeProto.TENSOR:
            return f"{attribute.name}: {_changed_tensor(attribute.t, rng)}"
        case _:
            raise PassedOverError
    return f"attribute {attribute.name} changed"


def _changed_tensor(tensor: TensorProto, rng: random.Random) -> str:
    array = numpy_helper.to_array(tensor).copy()
    if not array.size:
        raise PassedOverError
    match rng.randrange(6):
        case 0:
            tensor.raw_data = tensor.raw_data[: len(tensor.raw_data) // 2]
            return "half of its bytes are gone"
        case 1:
            tensor.data_type = rng.choice((TensorProto.INT32, TensorProto.DOUBLE, TensorProto.STRING, 99))
            return f"its dtype is {tensor.data_type}"
        case 2:
            tensor.dims.append(rng.choice((1, 2, -1, 1 << 40)))
            return f"its dims are {list(tensor.dims)}"
        case _:
            flat = array.reshape(-1)
            place = rng.randrange(flat.size)
            flat[place] = ~flat[place] if array.dtype == np.bool_ else flat[place] * 2 + 1
            tensor.CopyFrom(numpy_helper.from_array(array, tensor.name))
            return "one element changed"


def _operator(model: ModelProto, rng: random.Random) -> str:
    _, node = _bodies(model, rng)
    was = node.op_type
    node.op_type = rng.choice((*_SWAPS.get(was, ("Identity",)), *rng.choices(("Relu", "NoSuchOp"), k=1)))
    return f"{was} is {node.op_type}"


def _node_inputs(model: ModelProto, rng: random.Random) -> str:
    body, node = _bodies(model, rng)
    known = [name for other in body.node for name in (*other.input, *other.output) if name]
    match rng.randrange(4):
        case 0 if len(node.input) > 1:
            node.input[0], node.input[1] = node.input[1], node.input[0]
            return f"{node.op_type}: its first inputs changed places"
        case 1 if node.input:
            node.input[rng.randrange(len(node.input))] = rng.choice(known)
            return f"{node.op_type}: another input"
        case 2 if node.input:
            del node.input[-1]
            return f"{node.op_type}: an input less"
        case _:
            node.output[0] = rng.choice(known)
            return f"{node.op_type}: another output"


def _body(model: ModelProto, rng: random.Random) -> str:
    body, node = _bodies(model, rng)
    match rng.randrange(6):
        case 0 if len(body.input) > 1:
            order = rng.sample(list(body.input), len(body.input))
            del body.input[:]
            body.input.extend(order)
            return f"{body.name}: inputs in another order"
        case 1 if len(body.output) > 1:
            order = rng.sample(list(body.output), len(body.output))
            del body.output[:]
            body.output.extend(order)
            return f"{body.name}: outputs in another order"
        case 2:
            body.opset_import[0].version = rng.choice((-1, 1, 7, 12, 13, 18, 99))
            return f"{body.name}: opset {body.opset_import[0].version}"
        case 3:
            body.node.remove(node)
            return f"{body.name}: without its {node.op_type}"
        case 4:
            other = rng.choice(list(model.functions))
            body.name = other.name
            return f"a function is called {other.name}, as another one"
        case _:
            model.functions.remove(body)
            return f"without {body.name}"


def _segment(model: ModelProto, rng: random.Random) -> str:
    node = rng.choice([node for node in model.graph.node if node.domain == "tofu.segments"])
    names = [value.name for value in (*model.graph.input, *model.graph.output, *model.graph.value_info)]
    match rng.randrange(6):
        case 0 if len(node.input) > 1:
            one, other = rng.sample(range(len(node.input)), 2)
            node.input[one], node.input[other] = node.input[other], node.input[one]
            return f"{node.name}: inputs changed places"
        case 1 if node.input:
            node.input[rng.randrange(len(node.input))] = rng.choice(names)
            return f"{node.name}: another input"
        case 2:
            node.output[rng.randrange(len(node.output))] = rng.choice(names)
            return f"{node.name}: another output"
        case 3:
            node.op_type = rng.choice(list(model.functions)).name
            return f"{node.name}: another function"
        case 4 if node.input:
            del node.input[-1]
            return f"{node.name}: an input less"
        case _:
            node.name = rng.choice([other.name for other in model.graph.node])
            return f"a segment is called {node.name}"


def _fetch(model: ModelProto, rng: random.Random) -> str:
    node = rng.choice([node for node in model.graph.node if node.op_type == "Fetch"])
    attributes = {attribute.name: attribute for attribute in node.attribute}
    names = [value.name for value in (*model.graph.input, *model.graph.output, *model.graph.value_info)]
    kind = rng.choice(("region", "piece", "worker", "buffer", "reducer", "bytes", "tensor", "counts", "target", "drop"))
    match kind:
        case "region" | "counts":
            _changed_attribute(attributes[kind], rng)
        case "piece":
            _moved_piece(attributes["pieces"], rng)
        case "worker":
            workers = attributes["workers"].ints
            workers[rng.randrange(len(workers))] = rng.choice((0, 1, 2, -1, 77))
        case "buffer":
            buffers = attributes["buffers"].strings
            buffers[rng.randrange(len(buffers))] = rng.choice(names).encode()
        case "reducer":
            if "reducer" in attributes and rng.random() < 0.4:
                node.attribute.remove(attributes["reducer"])
            elif "reducer" in attributes:
                attributes["reducer"].s = rng.choice((b"Max", b"Min", b"Prod", b"Mean"))
            else:
                node.attribute.append(AttributeProto(name="reducer", type=AttributeProto.STRING, s=b"Max"))
        case "bytes":
            attributes["bytes"].i += rng.choice((-4, 4, 4096))
        case "tensor":
            attributes["tensor"].s = b"other"
        case "target":
            node.output[0] = rng.choice(names)
        case _:
            node.attribute.remove(rng.choice(list(node.attribute)))
    return f"{node.name}: its {kind}"


def _moved_piece(pieces: AttributeProto, rng: random.Random) -> None:
    """A number of a box, or the whole box by one."""
    if rng.random() < 0.5:
        pieces.ints[rng.randrange(len(pieces.ints))] += rng.choice((-1, 1))
        return
    by = rng.choice((-1, 1))
    half = len(pieces.ints) // 2
    place = rng.randrange(half)
    pieces.ints[place] += by
    pieces.ints[(place + half) % len(pieces.ints)] += by


def _steps(model: ModelProto, rng: random.Random) -> str:
    nodes = list(model.graph.node)
    match rng.randrange(3):
        case 0:
            gone = nodes.pop(rng.randrange(len(nodes)))
            said = f"without {gone.name}"
        case 1:
            one, other = rng.sample(range(len(nodes)), 2)
            nodes[one], nodes[other] = nodes[other], nodes[one]
            said = f"{nodes[one].name} and {nodes[other].name} changed places"
        case _:
            again = NodeProto()
            again.CopyFrom(rng.choice(nodes))
            nodes.insert(rng.randrange(len(nodes)), again)
            said = f"{again.name} twice"
    copies = [NodeProto.FromString(node.SerializeToString()) for node in nodes]
    del model.graph.node[:]
    model.graph.node.extend(copies)
    return said


def _values(model: ModelProto, rng: random.Random) -> str:
    lists = [values for values in (model.graph.input, model.graph.output, model.graph.value_info) if len(values)]
    values = rng.choice(lists)
    value = rng.choice(list(values))
    kind = value.type.tensor_type
    match rng.randrange(7):
        case 0:
            kind.elem_type = rng.choice((TensorProto.INT32, TensorProto.DOUBLE, TensorProto.FLOAT16, 0, 99))
            return f"{value.name}: dtype {kind.elem_type}"
        case 1 if kind.shape.dim:
            dim = rng.choice(list(kind.shape.dim))
            dim.dim_value += rng.choice((-1, 1, 1 << 40))
            return f"{value.name}: a dim of {dim.dim_value}"
        case 2 if kind.shape.dim:
            rng.choice(list(kind.shape.dim)).dim_param = "n"
            return f"{value.name}: a symbolic dim"
        case 3:
            values.remove(value)
            return f"{value.name}: not declared"
        case 4:
            value.ClearField("type")
            return f"{value.name}: without a type"
        case 5:
            value.name += "'"
            return f"{value.name}: renamed"
        case _:
            again = values.add()
            again.CopyFrom(value)
            return f"{value.name}: declared twice"


def _initializer(model: ModelProto, rng: random.Random) -> str:
    tensor = rng.choice(list(model.graph.initializer))
    if rng.random() < 0.2:
        model.graph.initializer.remove(tensor)
        return f"without the constant {tensor.name}"
    return f"constant {tensor.name}: {_changed_tensor(tensor, rng)}"


def _notes(model: ModelProto, rng: random.Random) -> str:
    entry = rng.choice([entry for entry in model.metadata_props if entry.key != "tofu.plan"])
    match rng.randrange(8):
        case 0:
            model.metadata_props.remove(entry)
            return f"without {entry.key}"
        case 1:
            entry.value = rng.choice(("", "{", "[]", "null", "7", '"x"', "{}", "[" * 5000))
            return f"{entry.key} is {entry.value[:8]!r}"
        case _:
            data = json.loads(entry.value)
            said = _changed_json(data, rng)
            entry.value = json.dumps(data)
            return f"{entry.key}: {said}"


def _changed_json(data: Any, rng: random.Random, path: str = "") -> str:
    """Changes one value somewhere inside of a list or an object."""
    if not isinstance(data, dict | list) or not data:
        raise PassedOverError
    keys = list(data) if isinstance(data, dict) else list(range(len(data)))
    key = rng.choice(keys)
    path = f"{path}[{key!r}]"
    if isinstance(data[key], dict | list) and data[key] and rng.random() < 0.8:
        return _changed_json(data[key], rng, path)
    match rng.randrange(5):
        case 0:
            del data[key]
            return f"{path} is gone"
        case 1:
            other = rng.choice(keys)
            data[key], data[other] = data[other], data[key]
            return f"{path} and [{other!r}] changed places"
        case 2:
            data[key] = rng.choice((None, "x", -1, 1.5, [], {}, True, 1 << 70))
        case 3 if isinstance(data[key], int):
            data[key] += rng.choice((-64, -4, -1, 1, 4, 64))
        case _:
            data[key] = data[rng.choice(keys)]
    return f"{path} is {str(data[key])[:20]!r}"


_WORKER_EDITS: Final[tuple[Callable[[ModelProto, random.Random], str], ...]] = (
    _attribute, _attribute, _operator, _operator, _node_inputs, _node_inputs, _body, _segment, _segment,
    _fetch, _fetch, _fetch, _steps, _values, _initializer, _notes, _notes,
)  # fmt: skip


def _edit_plan(folder: Path, rng: random.Random) -> str:
    file = folder / PLAN
    data = json.loads(file.read_text())
    keys = (
        "cuts",
        "workers",
        "peak_bytes",
        "moved_bytes",
        "model_digest",
        "tilings",
        "iteration_spaces",
        "tensor_bytes",
    )
    if rng.random() < 0.5:
        said = _changed_json(data, rng)
    else:
        key = rng.choice(keys)
        if key == "tilings":
            name = rng.choice(list(data[key]))
            data[key][name] = rng.choice((*data[key].values(), "S(9)/2", "S(0)/3", "R", "nonsense", ""))
            said = f"tiling of {name} is {data[key][name]!r}"
        elif isinstance(data[key], dict | list):
            said = f"{key}{_changed_json(data[key], rng)}"
        else:
            data[key] = rng.choice((0, 1, 2, 3, -1, "x", None)) if key == "workers" else rng.choice((17, "x", None))
            said = f"{key} is {data[key]!r}"
    file.write_text(json.dumps(data, indent=1) + "\n")
    return f"{PLAN}: {said}"


def _edit_manifest(folder: Path, rng: random.Random) -> str:
    file = folder / MANIFEST
    data = json.loads(file.read_text())
    if rng.random() < 0.5:
        key = rng.choice(("state", "state", "inputs", "outputs"))
        if key == "state" and rng.random() < 0.6:
            one, other = rng.sample(range(len(data[key])), 2)
            side = rng.randrange(2)
            pairs = data[key]
            pairs[one][side], pairs[other][side] = pairs[other][side], pairs[one][side]
            said = f"states {pairs[one]} and {pairs[other]}"
        else:
            said = f"{key}{_changed_json(data[key], rng)}"
    else:
        said = _changed_json(data, rng)
    file.write_text(json.dumps(data, indent=1))
    return f"{MANIFEST}: {said}"


def outcome(original: Original, folder: Path, edit: str, *, in_process: bool) -> Outcome:
    """Runs an edited plan, verified, and says what became of it.

    Args:
        original: that was edited.
        folder: the edited copy.
        edit: in words.
        in_process: without a child process: quicker, and a crash of a kernel is one of this process.
    """
    try:
        with _time_limit():
            plan = load_plan(folder)
            found = run_plan(replace(plan, paths=()) if in_process else plan, steps=2, verify=True, seed=3)
    except TimeoutError:
        return Outcome("HANG", edit, f"no end after {_PATIENCE_SECONDS} s")
    except DifferenceError as error:
        return Outcome("caught", edit, str(error))
    except TofuError as error:
        return Outcome("refused", edit, str(error))
    except Exception as error:  # noqa: BLE001 -- that is what is looked for
        return Outcome("CRASH", edit, f"{type(error).__name__}: {error}")
    if not found.verified:
        return Outcome("caught", edit, str(found.difference()))
    largest, name = max((_off(original, found, name), name) for name in original.result.results)
    if largest == 0 and found.moved_bytes == original.result.moved_bytes:
        return Outcome("no effect", edit, "")
    verdict = "rounding" if largest <= _ROUNDING and found.moved_bytes == original.result.moved_bytes else "WRONG"
    return Outcome(verdict, edit, f"verified, and {name} is off by {largest:.1e}")


def _off(original: Original, found: RunResult, name: str) -> float:
    if name not in found.results:
        return float("inf")
    one, other = original.result.results[name], found.results[name]
    if one.dtype != other.dtype or one.shape != other.shape:
        return float("inf")
    return 0.0 if one.tobytes() == other.tobytes() else max(errors(other, one)[0], 1e-30)


@contextlib.contextmanager
def _time_limit() -> Iterator[None]:
    def stop(*_: object) -> None:
        raise TimeoutError

    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(_PATIENCE_SECONDS)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def outcomes(where: Path, seed: int, count: int, *, in_process: bool) -> Iterator[Outcome]:
    """Random edits, and what became of each."""
    rng = random.Random(seed)
    plans = originals(where)
    for _ in range(count):
        original = rng.choice(plans)
        edit = f"{original.folder.name}/{edited(original, where / 'edited', rng)}"
        yield outcome(original, where / "edited", edit, in_process=in_process)


def summary(seed: int, found: Counter[str]) -> str:
    """The counts, in a line."""
    return f"seed {seed}: " + ", ".join(f"{count} {verdict}" for verdict, count in sorted(found.items()))


def main() -> int:
    """Prints every edit that is no good, and the counts."""
    numbers = [int(text) for text in sys.argv[1:] if text.isdigit()]
    seed, count = (*numbers, *(0, 200)[len(numbers) :])
    found: Counter[str] = Counter()
    with tempfile.TemporaryDirectory() as folder:
        for one in outcomes(Path(folder), seed, count, in_process="--in-process" in sys.argv):
            found[one.verdict] += 1
            if not one.is_sound or "-v" in sys.argv:
                print(f"{one.verdict}: {one.edit}\n    {one.said[:600]}")
    print(summary(seed, found))
    return 0 if found.keys() <= {"refused", "caught", "no effect", "rounding"} else 1


if __name__ == "__main__":
    sys.exit(main())
