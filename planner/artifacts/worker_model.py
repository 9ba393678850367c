"""The worker model: what one worker does, as an ONNX file that any viewer opens.

    graph inputs       loaded buffers: tiles of data and state
    initializers       fixed buffers: parts of constants; large ones of a single value are ConstantOfShape nodes
    nodes              the steps in execution order: Fetch nodes (``fetch_node.py``) and calls of local functions
    local functions    domain ``tofu.segments``; the bodies of the segments, in standard operators
    graph outputs      collected buffers: tiles of results and next states
    value_info         every other buffer
    metadata_props     what ONNX has no place for: ``tofu.worker`` (its number), ``tofu.plan`` (a digest),
                       ``tofu.buffers`` (JSON: buffer -> tensor, region), ``tofu.segments`` (JSON: segment -> op names),
                       ``tofu.arena`` (JSON: size, workspace, and where each buffer begins, in bytes)

The form is lossless: ``read_worker_model`` of a written model gives the program, the bodies and the constants.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeVar

import numpy as np
from onnx import (
    FunctionProto,
    GraphProto,
    ModelProto,
    NodeProto,
    OperatorSetIdProto,
    TensorProto,
    TypeProto,
    ValueInfoProto,
    helper,
    numpy_helper,
)

from planner.algebra.region import Region
from planner.artifacts import fetch_node
from planner.artifacts.program import Arena, Buffer, Fetch, Segment, Step, WorkerProgram
from planner.errors import ModelError
from planner.graph.core.model import DType, Shape
from planner.graph.core.subgraph import external_holders
from planner.graph.core.wellformed import fresh_name
from planner.graph.files.fills import fill_nodes, fills_of, is_fill_node, is_large_fill
from planner.graph.files.protos import dtype_of, elem_type_of, stored_array
from planner.records import plain, reader
from planner.strict_json import JsonError, Value, parse_json

SEGMENTS: Final = "tofu.segments"
"""Domain of the local functions."""
SEGMENTS_VERSION: Final = 1
IR_VERSION: Final = 10
"""The first with value_info in functions; ONNX Runtime takes up to 13."""
_Stated = TypeVar("_Stated")


@dataclass(frozen=True)
class WorkerModel:
    """The contents of a worker model's file."""

    program: WorkerProgram
    """What the worker does; every buffer that it loads, fixes or collects is there."""
    bodies: Mapping[str, FunctionProto]
    """The function of each name that a segment calls."""
    constants: Mapping[str, np.ndarray]
    """The array of each fixed buffer."""
    plan_digest: str
    """Which plan it belongs to; "" where none was given."""


def make_body(
    name: str,
    inputs: Sequence[str],
    outputs: Sequence[str],
    nodes: Sequence[NodeProto],
    opset: int,
    *,
    domains: Mapping[str, int] | None = None,
    types: Sequence[ValueInfoProto] = (),
) -> FunctionProto:
    """The body of segments: a local function of standard operators, and of the model's own.

    Args:
        name: ``Segment.function``.
        inputs: value names by position of ``Segment.inputs``.
        outputs: value names by position of ``Segment.outputs``.
        nodes: in execution order; small constants are Constant nodes.
        opset: version of the default operator domain.
        domains: versions of the other domains whose operators are among the nodes.
        types: of values inside that ONNX has no inference for.
    """
    versions = {"": opset, **(domains or {})}
    return helper.make_function(
        SEGMENTS,
        name,
        list(inputs),
        list(outputs),
        list(nodes),
        [helper.make_opsetid(domain, version) for domain, version in versions.items()],
        value_info=list(types),
    )


def body_graph(
    body: FunctionProto, inputs: Sequence[tuple[Shape, DType]], outputs: Sequence[tuple[Shape, DType]]
) -> GraphProto:
    """The nodes of a body as a graph of their own, with static shapes.

    Args:
        body: a local function of standard operators.
        inputs: shape and dtype by position of the function's inputs.
        outputs: the same of its outputs.
    """
    reads, makes = (
        [helper.make_tensor_value_info(name, elem_type_of(dtype), list(shape)) for name, (shape, dtype) in named]
        for named in (zip(body.input, inputs, strict=True), zip(body.output, outputs, strict=True))
    )
    return helper.make_graph(list(body.node), body.name, reads, makes)


class WorkerModels:
    """Writes the models of a program's workers; what several of them say is made once.

    Args:
        bodies: the function of each name that segments call.
        opset: version of the default operator domain.
        plan_digest: digest of the plan that they belong to.
    """

    def __init__(self, bodies: Mapping[str, FunctionProto], *, opset: int, plan_digest: str = "") -> None:
        self._bodies = bodies
        self._opset = opset
        self._plan_digest = plan_digest
        self._calls: dict[int, tuple[Segment, NodeProto, str]] = {}
        """By identity of a segment, which workers that do the same share: its node, and what metadata say of it."""
        self._values: dict[tuple[str, DType, Shape], ValueInfoProto] = {}

    def write(self, program: WorkerProgram, constants: Mapping[str, np.ndarray]) -> ModelProto:
        """A worker's program as an ONNX model; ``read_worker_model`` of it is the program again.

        Args:
            program: what the worker does; of the functions, only those that its segments call are written.
            constants: the array of each fixed buffer, of the buffer's shape and dtype.
        """
        called = dict.fromkeys(step.function for step in program.steps if isinstance(step, Segment))
        fills = {name: constants[name] for name in program.fixed if is_large_fill(constants[name], self._opset)}
        outside = {*program.loaded, *program.fixed, *program.collected} - fills.keys()
        model = ModelProto(ir_version=IR_VERSION, producer_name="tofu")
        model.opset_import.extend(self._opsets(called))
        model.functions.extend([self._bodies[name] for name in called])
        graph = model.graph
        graph.name = f"worker{program.worker}"
        for name, value in fills.items():
            graph.node.extend(fill_nodes(name, value, fresh_name(f"{name}.shape", program.buffers)))
        graph.node.extend([self._node(step, program) for step in program.steps])
        graph.input.extend([self._value(program.buffers[name]) for name in program.loaded])
        graph.output.extend([self._value(program.buffers[name]) for name in program.collected])
        graph.initializer.extend(
            [_initializer(program.buffers[name], constants[name]) for name in program.fixed if name not in fills]
        )
        graph.value_info.extend(
            [self._value(buffer) for name, buffer in program.buffers.items() if name not in outside]
        )
        helper.set_model_props(model, self._notes(program))
        return model

    def _opsets(self, called: Iterable[str]) -> list[OperatorSetIdProto]:
        foreign = {
            entry.domain: entry.version for name in called for entry in self._bodies[name].opset_import if entry.domain
        }
        return [
            helper.make_opsetid("", self._opset),
            helper.make_opsetid(fetch_node.DOMAIN, fetch_node.VERSION),
            helper.make_opsetid(SEGMENTS, SEGMENTS_VERSION),
            *(helper.make_opsetid(domain, version) for domain, version in sorted(foreign.items())),
        ]

    def _notes(self, program: WorkerProgram) -> dict[str, str]:
        """The metadata of a worker."""
        buffers = {
            name: [buffer.tensor, buffer.region.lo, buffer.region.hi] for name, buffer in program.buffers.items()
        }
        segments = [self._call(step)[2] for step in program.steps if isinstance(step, Segment)]
        notes = {
            "tofu.worker": str(program.worker),
            "tofu.plan": self._plan_digest,
            "tofu.buffers": _json(buffers),
            "tofu.segments": f"{{{','.join(segments)}}}",
        }
        if program.arena is not None:
            notes["tofu.arena"] = _json(plain(program.arena))
        return notes

    def _node(self, step: Step, program: WorkerProgram) -> NodeProto:
        if isinstance(step, Fetch):
            return fetch_node.encode_fetch(step, program.worker, program.buffers[step.target])
        return self._call(step)[1]

    def _call(self, step: Segment) -> tuple[Segment, NodeProto, str]:
        if id(step) not in self._calls:
            node = NodeProto(
                name=step.name, domain=SEGMENTS, op_type=step.function, input=step.inputs, output=step.outputs
            )
            self._calls[id(step)] = step, node, f"{_json(step.name)}:{_json(step.ops)}"
        return self._calls[id(step)]

    def _value(self, buffer: Buffer) -> ValueInfoProto:
        key = buffer.name, buffer.dtype, buffer.shape
        if key not in self._values:
            kind = helper.make_tensor_type_proto(elem_type_of(buffer.dtype), list(buffer.shape))
            self._values[key] = ValueInfoProto(name=buffer.name, type=kind)
        return self._values[key]


def _json(value: object) -> str:
    return json.dumps(value, separators=(",", ":"))


def read_worker_model(model: ModelProto, seen: dict[Hashable, Any] | None = None) -> WorkerModel:
    """The contents of a worker model's file, as far as one worker's model alone can be judged.

    Whether the workers' programs fit together, and may touch memory, is for the runtime to check.

    Args:
        model: of the file.
        seen: what the workers' models before had; what this one has, too, is then one object.

    Raises:
        ModelError: it was not written by ``WorkerModels``; or buffers, functions or places in the arena that it
            names are not there or not of the form stated.
    """
    seen = {} if seen is None else seen
    notes = {entry.key: entry.value for entry in model.metadata_props}
    graph = model.graph
    try:
        worker = _stated(notes, "tofu.worker", Value.count)
        places = _stated(notes, "tofu.buffers", reader(dict[str, tuple[str, Region]], {tuple[str, Region]: _place}))
        ops = _stated(notes, "tofu.segments", reader(dict[str, tuple[str, ...]]))
        arena = _stated(notes, "tofu.arena", reader(Arena)) if "tofu.arena" in notes else None
    except JsonError as error:
        raise ModelError(
            f"model {graph.name!r} is no worker model: its metadata cannot be read ({error})",
            hint="worker models are written by `tofu plan -o DIR`",
        ) from None
    versions = {entry.domain: entry.version for entry in model.opset_import}
    for domain, version in ((fetch_node.DOMAIN, fetch_node.VERSION), (SEGMENTS, SEGMENTS_VERSION)):
        if versions.get(domain) != version:
            raise ModelError(
                f"model {graph.name!r} is of another version: {versions.get(domain, 0)} of {domain}, not {version}",
                hint="write the worker models again with `tofu build`",
            )
    typed = {value.name: value.type for value in (*graph.input, *graph.output, *graph.value_info)}
    # Large constants of one value are written as nodes, since a file should not hold their elements. They are
    # constants again here, and no steps of the program.
    fills = fills_of([node for node in graph.node if is_fill_node(node)])
    constants = {
        **{tensor.name: stored_array(tensor, f"initializer {tensor.name!r}") for tensor in graph.initializer},
        **fills,
    }
    typed |= {
        tensor.name: helper.make_tensor_type_proto(tensor.data_type, tuple(tensor.dims)) for tensor in graph.initializer
    }
    untyped = sorted(places.keys() - typed.keys())
    if untyped:
        raise ModelError(f"model {graph.name!r} states no type of buffers", facts=tuple(untyped))
    buffers = {name: _buffer(name, place, typed[name], seen) for name, place in places.items()}
    program = WorkerProgram(
        worker=worker,
        buffers=buffers,
        steps=tuple(_step(node, ops, graph.name, seen) for node in graph.node if not is_fill_node(node)),
        loaded=tuple(value.name for value in graph.input),
        fixed=tuple(constants),
        collected=tuple(value.name for value in graph.output),
        arena=arena,
    )
    _check_names(program, graph.name)
    bodies = {function.name: _body(function, seen) for function in model.functions if function.domain == SEGMENTS}
    if len(bodies) != sum(function.domain == SEGMENTS for function in model.functions):
        raise ModelError(f"model {graph.name!r} has several functions of one name", hint="plan the model again")
    _check_calls(program, bodies, graph.name)
    _refuse_external(model)
    return WorkerModel(program, bodies, constants, notes.get("tofu.plan", ""))


def _check_names(program: WorkerProgram, model: str) -> None:
    """Refuses a program that loads, fixes or collects what is no buffer, or a buffer that does not lie in the arena."""
    named = (*program.loaded, *program.fixed, *program.collected)
    facts = [f"there is no buffer {name!r}" for name in named if name not in program.buffers]
    if program.arena is not None:
        facts += program.arena.misplaced(program.buffers)
    if facts:
        raise ModelError(f"model {model!r} has buffers that are not laid out", facts=tuple(facts))


def _check_calls(program: WorkerProgram, bodies: Mapping[str, FunctionProto], model: str) -> None:
    """Refuses segments whose function is not there, or takes or gives another number of values."""
    segments = [step for step in program.steps if isinstance(step, Segment)]
    lacking = sorted({step.function for step in segments} - bodies.keys())
    if lacking:
        raise ModelError(f"model {model!r} calls functions that it does not have", facts=tuple(lacking))
    uneven = tuple(
        f"{step.name}: {step.function}"
        for step in segments
        if len(step.inputs) != len(bodies[step.function].input)
        or len(step.outputs) != len(bodies[step.function].output)
    )
    if uneven:
        raise ModelError(f"model {model!r} calls functions with other inputs or outputs", facts=uneven)


def _refuse_external(model: ModelProto) -> None:
    """Refuses external data anywhere, which ONNX Runtime would read from the working directory."""
    # Of a Fetch numbers and texts are read, and nothing else.
    plain_nodes = (node for node in model.graph.node if not fetch_node.is_fetch(node))
    nodes = (*plain_nodes, *(node for function in model.functions for node in function.node))
    holders = tuple(external_holders(nodes))
    if holders:
        raise ModelError(
            f"model {model.graph.name!r} has external data, which no worker model may have",
            facts=holders,
            hint="plan the model again with `tofu plan`",
        )


def _body(function: FunctionProto, seen: dict[Hashable, Any]) -> FunctionProto:
    content = function.SerializeToString(deterministic=True)
    if content not in seen:
        seen[content] = FunctionProto.FromString(content)  # a part of a message would keep all of it in memory
    body: FunctionProto = seen[content]
    return body


def _step(node: NodeProto, ops: Mapping[str, Sequence[str]], model: str, seen: dict[Hashable, Any]) -> Step:
    if fetch_node.is_fetch(node):
        return fetch_node.decode_fetch(node, seen)
    if node.domain != SEGMENTS or node.name not in ops:
        raise ModelError(f"model {model!r} has node {node.name!r} ({node.op_type}), which is no step of a program")
    key = node.name, node.op_type, tuple(node.input), tuple(node.output), tuple(ops[node.name])
    segment: Segment = seen.get(key) or seen.setdefault(key, Segment(*key))
    return segment


def _initializer(buffer: Buffer, array: np.ndarray) -> TensorProto:
    assert array.shape == buffer.shape, f"constant of {buffer.name!r} is {array.shape}, not {buffer.shape}"
    tensor = numpy_helper.from_array(np.ascontiguousarray(array).reshape(array.shape), buffer.name)
    assert tensor.data_type == elem_type_of(buffer.dtype), f"constant of {buffer.name!r} is of {array.dtype}"
    return tensor


def _stated(notes: Mapping[str, str], key: str, meaning: Callable[[Value], _Stated]) -> _Stated:
    """What a note of the metadata means; a JsonError names it."""
    if key not in notes:
        raise JsonError(f"it has no {key}")
    try:
        return meaning(parse_json(notes[key]))
    except JsonError as error:
        raise JsonError(f"{key}: {error}") from None


def _are_counts(numbers: Sequence[object]) -> bool:
    return all(type(number) is int and number >= 0 for number in numbers)


def _place(stated: Value) -> tuple[str, Region]:
    """Of which tensor a buffer holds a part, and which."""
    match stated.value:
        case [str(tensor), list(lo), list(hi)] if len(lo) == len(hi) and _are_counts(lo + hi):
            return sys.intern(tensor), Region(tuple(lo), tuple(hi))
    parts = stated.values()  # and then what is wrong
    if len(parts) != 3 or len(parts[1].counts()) != len(parts[2].counts()):
        raise stated.fault("is not a tensor, a low corner and a high one")
    return parts[0].text(), Region(parts[1].counts(), parts[2].counts())


def _buffer(name: str, place: tuple[str, Region], kind: TypeProto, seen: dict[Hashable, Any]) -> Buffer:
    dtype = dtype_of(kind.tensor_type.elem_type)
    if dtype is None:
        raise ModelError(f"buffer {name!r} is of a type that no plan has")
    tensor, region = place
    shape = tuple(dim.dim_value for dim in kind.tensor_type.shape.dim)
    if region.is_empty or shape not in (region.shape, ()) or (shape == () and region.shape != (1,)):
        raise ModelError(f"buffer {name!r} of shape {list(shape)} cannot hold the region {region}")
    key = name, tensor, region.lo, region.hi, shape, dtype
    buffer: Buffer = seen.get(key) or seen.setdefault(key, Buffer(name, tensor, region, shape, dtype))
    return buffer
