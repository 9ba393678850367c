"""The graph as it was read is judged, too: it is held against the file itself.

Between the file and what is planned lie the inlining of functions, folding, the conversion of older opsets and the
canonical form. A mistake there is in everything that comes after: the whole model, its float64 twin and the split run
all compute the graph as read. So the stock runtime computes the file, as it is and without optimizations, and the graph
as read and in its canonical form, from the same inputs; and all results must agree, as a split run must with a whole
one where there is no reference (``compare``), rounding told by nudged runs of the file.

If a result differs, tensors inside are looked at: names survive inlining, folding and rewriting, but for those inside
of functions and of what was folded or replaced. The first one that differs, in the order of the file, is named.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, Final, Literal, TypeAlias

import numpy as np
from onnx import ModelProto, TensorProto, helper, numpy_helper

from planner.artifacts.source_file import SourceFile
from planner.errors import DifferenceError
from planner.graph.core.attributes import draws
from planner.graph.core.model import DType, Graph, qualified
from planner.graph.core.traits import DRAWING
from planner.graph.core.wellformed import every_node
from planner.graph.files.protos import elem_type_of, op_of
from planner.graph.files.to_onnx import to_model
from planner.graph.reading.inline import reachable_nodes
from planner.graph.reading.values import fixed_inputs, values_of
from planner.graph.rewriting.canonical import canonical
from planner.runtime.engine.core.sessions import SessionMaker, bind, carried, carried_name, cores
from planner.runtime.judge.compare import Noise, TensorComparison, compare_tensor, errors
from planner.runtime.judge.foreign import first_line
from planner.runtime.judge.precision import coarsest_eps
from planner.runtime.judge.rounding import RUNS, nudged

MOST_BYTES: Final = 2**29
"""Weights, and tensors inside, up to which a file is held against its graph."""

Form: TypeAlias = Literal["as read", "in canonical form"]


@dataclass(frozen=True, slots=True)
class Difference:
    """The first tensor that the file has otherwise."""

    form: Form
    """The form of the graph that differs."""
    tensor: str
    op: str
    """The op that makes the tensor in the file."""
    what: str
    """How it differs."""

    def __str__(self) -> str:
        return f"{self.tensor!r} ({self.op}), the graph {self.form}: {self.what}"


@dataclass(frozen=True, slots=True)
class DoorVerdict:
    """Whether a graph is what its file says."""

    told: ClassVar = "file results=tensors not_done difference"

    file: str
    tensors: int = 0
    """Results that were compared, in each form."""
    not_done: str = ""
    """Why nothing was compared; "" if it was."""
    difference: Difference | None = None

    @property
    def is_same(self) -> bool:
        """Whether nothing speaks against it."""
        return self.difference is None

    def error(self) -> DifferenceError | None:
        """The error for a difference."""
        if self.difference is None:
            return None
        return DifferenceError(
            f"{self.file}: the graph as it was read computes something else than the stock runtime makes of the file",
            facts=(f"first in {self.difference}",),
            hint="it is a bug of tofu or of the runtime; please report it with the model",
        )


@dataclass(frozen=True, slots=True, eq=False)
class ReadGraph:
    """A graph that was read from a file, with what both compute from."""

    graph: Graph
    """With all its constants."""
    inputs: Mapping[str, np.ndarray]
    """A value of every input, data and state."""
    absent: Callable[[str], np.ndarray]
    """Gives the value of a constant that the file does not hold."""
    libraries: Sequence[Path] = ()
    """Of custom operators."""


class _UnheldError(Exception):
    """The file is not compared; the message says why."""


def check_door(file: str, content: bytes, read: ReadGraph) -> DoorVerdict:
    """Holds a graph, as read and in canonical form, against its file.

    Args:
        file: how to name it.
        content: of the file.
        read: the graph that was read from it.
    """
    try:
        model = ModelProto.FromString(content)
        _refuse(model, read.graph)
        return DoorVerdict(file, len(read.graph.outputs), difference=_Door(model, read).difference())
    except _UnheldError as reason:
        return DoorVerdict(file, not_done=str(reason))


def check_source(source: SourceFile | None, read: ReadGraph) -> DoorVerdict:
    """Holds the graph of a plan against the file that was planned, as ``check_door`` does.

    Args:
        source: as the plan records it.
        read: the graph that the plan holds.
    """
    if source is None:
        return DoorVerdict("", not_done="the plan does not record its file")
    file = source.paths[-1].name
    content, why = source.content()
    return DoorVerdict(file, not_done=why) if why else check_door(file, content, read)


def _refuse(model: ModelProto, graph: Graph) -> None:
    drawing = [op_of(node, node.name) for node in every_node(reachable_nodes(model)) if node.op_type in DRAWING]
    if drawn := {op.op_type for op in drawing if draws(op, lambda _: None) is not False}:
        raise _UnheldError(f"it draws random numbers ({', '.join(sorted(drawn))})")
    if model.training_info:
        raise _UnheldError("it has training information, which the stock runtime does not run")
    size = sum(value.nbytes for value in graph.constants.values() if value is not None)
    size += sum(graph.tensors[name].size_bytes for name in graph.inputs)
    if size > MOST_BYTES:
        raise _UnheldError(f"its weights and inputs are more than {MOST_BYTES >> 20} MiB")
    for node in every_node(reachable_nodes(model)):
        for attribute in node.attribute:
            if any(tensor.data_location == TensorProto.EXTERNAL for tensor in (attribute.t, *attribute.tensors)):
                raise _UnheldError("an op's attribute is external data")


class _Door:
    """One file, its graph, and values of its inputs."""

    def __init__(self, model: ModelProto, read: ReadGraph) -> None:
        self._maker = SessionMaker(cores(), libraries=read.libraries)
        self._graph, self._inputs = read.graph, read.inputs
        self._model = _filled(model, read)
        self._feeds = _arrays_of_file(model, read)
        form = canonical(read.graph)
        if form.in_parts:  # states by part have no value here; the run itself holds what is made of them to the whole
            form = canonical(read.graph, form.in_parts)
        self._forms: Mapping[Form, Graph] = {"as read": read.graph, "in canonical form": form.graph}
        self._makers = {name: node for node in model.graph.node for name in node.output if name}

    def difference(self) -> Difference | None:
        """The first tensor that differs, in the first form in which one does."""
        outputs = [name for name in self._graph.outputs if name not in self._graph.inputs]
        samples = self._samples(outputs)
        for form, graph in self._forms.items():
            off = self._differing(form, graph, outputs, samples)
            if off is not None:
                return self._inside(form, graph) or off
        return None

    def _inside(self, form: Form, graph: Graph) -> Difference | None:
        """The first tensor of all whose names survive; None if they are too large, or the runtime does not tell."""
        graph_names = {*graph.producer, *(name for name, value in graph.constants.items() if value is not None)}
        names = [name for name in self._makers if name in graph_names and name in self._graph.tensors]
        if sum(graph.tensors[name].size_bytes for name in names) > MOST_BYTES:
            return None
        try:
            return self._differing(form, graph, names, self._samples(names))
        except _UnheldError:
            return None

    def _samples(self, names: Sequence[str]) -> _Samples:
        session = self._session(self._with_outputs(names), "it")
        return _Samples(session, names, self._graph, self._feeds, self._inputs)

    def _differing(self, form: Form, graph: Graph, names: Sequence[str], samples: _Samples) -> Difference | None:
        constants = {name: value for name, value in graph.constants.items() if value is not None}
        computed = tuple(name for name in names if name not in constants)
        shown = replace(graph, constants=constants, outputs=computed, initial={}, notes={}, state=())
        results = {name: constants[name] for name in names if name in constants}
        if computed:
            results |= _run(self._session(to_model(shown), f"the graph {form}"), computed, self._graph, self._inputs)
        eps = coarsest_eps(shown)
        for name in names:
            difference = samples.difference(name, results[name], eps.get(name))
            if difference:
                node = self._makers.get(name)
                op = "a result" if node is None else f"{qualified(node.domain, node.op_type)} {node.name!r}"
                return Difference(form, name, op, difference)
        return None

    def _with_outputs(self, names: Sequence[str]) -> ModelProto:
        model = ModelProto()
        model.CopyFrom(self._model)
        del model.graph.output[:]
        for name in names:
            kind = elem_type_of(self._graph.tensors[name].dtype)
            model.graph.output.append(helper.make_tensor_value_info(name, kind, None))
        return model

    def _session(self, model: ModelProto, subject: str) -> Any:
        try:
            return self._maker.session(carried(model), is_literal=True)
        except Exception as error:
            raise _UnheldError(f"the stock runtime does not load {subject}: {first_line(error)}") from error


class _Samples:
    """The results of the file; and, where a tensor differs from them, results of nudged runs of the file."""

    def __init__(
        self,
        session: Any,
        names: Sequence[str],
        graph: Graph,
        feeds: Mapping[str, np.ndarray],
        inputs: Mapping[str, np.ndarray],
    ) -> None:
        self._session, self._names, self._graph, self._feeds, self._inputs = session, names, graph, feeds, inputs
        self._right = _run(session, names, graph, feeds)
        self._nudged: list[dict[str, np.ndarray]] = []

    def difference(self, name: str, array: np.ndarray, eps: float | None) -> str:
        """The difference of a tensor from the file's; "" if there is none."""
        right = self._right[name]
        if array.shape != right.shape:
            return f"has the shape {list(array.shape)}, and the file's {list(right.shape)}"
        comparison = compare_tensor(name, array, right, None, eps)
        if comparison.is_same:
            return ""
        seen = Noise(0.0, 0.0)
        for number in range(RUNS):
            error, median = errors(self._sample(number)[name], right)
            if np.isfinite(error):
                seen = Noise(max(seen.largest, error), max(seen.median, median))
            comparison = compare_tensor(name, array, right, None, eps, seen)
            if comparison.is_same:
                return ""
        return _remark_of(comparison)

    def _sample(self, number: int) -> dict[str, np.ndarray]:
        if number == len(self._nudged):
            inputs = nudged(self._inputs, number)
            self._nudged.append(
                _run(self._session, self._names, self._graph, {**self._feeds, **_subset(self._feeds, inputs)})
            )
        return self._nudged[number]


def _subset(names: Mapping[str, np.ndarray], values: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    return {name: value for name, value in values.items() if name in names}


def _remark_of(comparison: TensorComparison) -> str:
    if comparison.remark:
        return comparison.remark
    return f"{comparison.error:.2e} of the largest element off (limit {comparison.limit:.2e})"


def _filled(model: ModelProto, read: ReadGraph) -> ModelProto:
    """The model with the values that lie in other files."""
    filled = ModelProto()
    filled.CopyFrom(model)
    for tensor in filled.graph.initializer:
        if tensor.data_location == TensorProto.EXTERNAL and tensor.name in read.graph.tensors:
            tensor.CopyFrom(numpy_helper.from_array(read.absent(tensor.name), tensor.name))
        elif tensor.data_location == TensorProto.EXTERNAL:  # nothing that counts reads it
            raise _UnheldError(f"its initializer {tensor.name!r} is external data, and none of the graph")
    return filled


def _arrays_of_file(model: ModelProto, read: ReadGraph) -> dict[str, np.ndarray]:
    """What the file's own inputs are given: those of its graph, and those that were fixed or stand for constants."""
    graph, inputs = read.graph, read.inputs
    held = {tensor.name for tensor in model.graph.initializer}
    fixed = dict(values_of(graph.notes))
    arrays: dict[str, np.ndarray] = {}
    for value in model.graph.input:
        if value.name in inputs:
            arrays[value.name] = inputs[value.name]
        elif value.name in fixed and value.name in graph.tensors:
            arrays[value.name] = fixed_inputs({value.name: fixed[value.name]}, graph.tensors)[value.name]
        elif value.name not in held:
            if value.name not in graph.tensors:
                raise _UnheldError(f"its input {value.name!r} is none of the graph")
            arrays[value.name] = read.absent(value.name)
    return arrays


def _run(session: Any, names: Sequence[str], graph: Graph, values: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The outputs of a session, of whatever shape they are."""
    tensors = graph.tensors
    # A file's state may have initial values, which its inputs go before: the runtime lists such inputs apart.
    wanted = {value.name for value in (*session.get_inputs(), *session.get_overridable_initializers())}
    feeds = {
        name: (np.asarray(value, order="C"), tensors[name].dtype)
        for name, value in values.items()
        if carried_name(name, tensors[name].dtype) in wanted
    }
    binding = bind(session, feeds, {})
    for name in names:
        binding.bind_output(carried_name(name, tensors[name].dtype), "cpu")
    try:
        session.run_with_iobinding(binding)
    except Exception as error:
        raise _UnheldError(f"the stock runtime fails on it: {first_line(error)}") from error
    return {name: _array(value, tensors[name].dtype) for name, value in zip(names, binding.get_outputs(), strict=True)}


def _array(value: Any, dtype: DType) -> np.ndarray:
    """A copy of what the runtime made, in a dtype that it may have no array for."""
    shape, kind = tuple(value.shape()), dtype.array_dtype
    size = int(np.prod(shape)) * kind.itemsize
    if not size:
        return np.empty(shape, kind)
    return np.frombuffer(ctypes.string_at(value.data_ptr(), size), kind).reshape(shape).copy()
