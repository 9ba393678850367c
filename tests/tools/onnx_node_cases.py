"""The node test cases that ship in the ``onnx`` package: one operator each, with inputs and the outputs to expect.

They are ONNX's own statement of what its operators compute (``onnx.backend.test``, made for every runtime). Each comes
as the operator, and many a second time as the operator's function body.
"""

from __future__ import annotations

import contextlib
import io
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final, TypeAlias

import numpy as np
from onnx import ModelProto, TensorProto, numpy_helper

from planner.graph.files.protos import MAX_IR_VERSION, MAX_OPSET, dtype_of
from planner.runtime.engine.core.sessions import onnxruntime

_RELATIVE: Final = {"bfloat16": 2.0**-6, "float16": 2.0**-9}
"""Two units in the last place, where that is more than a case's own tolerance. ONNX's runner does so for bfloat16."""

_FATAL: Final = 4
"""ONNX Runtime's log severity: what it refuses is counted, not printed."""

Value: TypeAlias = "np.ndarray | list[Any] | None"
"""A tensor; a sequence; an optional without a value."""


@dataclass(frozen=True)
class OnnxCase:
    """One case."""

    name: str
    model: ModelProto
    """As it is; its opset may be newer than the runtime."""
    inputs: Mapping[str, Value]
    """In the order of the model's inputs."""
    expected: tuple[Value, ...]
    """In the order of the model's outputs."""
    rtol: float
    atol: float

    @cached_property
    def has_only_tensors(self) -> bool:
        """True if inputs and outputs are tensors of numbers."""
        values = (*self.model.graph.input, *self.model.graph.output)
        return all(
            value.type.WhichOneof("value") == "tensor_type"
            and value.type.tensor_type.elem_type not in (TensorProto.UNDEFINED, TensorProto.STRING)
            for value in values
        )

    @property
    def op_types(self) -> tuple[tuple[str, str], ...]:
        """(domain, op type) of its nodes, sorted."""
        return tuple(sorted({(node.domain, node.op_type) for node in self.model.graph.node}))


def onnx_cases() -> tuple[OnnxCase, ...]:
    """All cases of the installed ``onnx`` package, in its order."""
    with warnings.catch_warnings(), np.errstate(all="ignore"), contextlib.redirect_stdout(io.StringIO()):
        warnings.simplefilter("ignore")  # the cases are computed by NumPy as they are collected, overflow and all
        from onnx.backend.test.case.node import collect_testcases

        testcases = collect_testcases("")
    return tuple(_case(case) for case in testcases)


def _case(case: Any) -> OnnxCase:
    model = case.model
    ((inputs, outputs),) = case.data_sets
    values = {value.name: _value(data) for value, data in zip(model.graph.input, inputs, strict=True)}
    return OnnxCase(case.name, model, values, tuple(_value(output) for output in outputs), case.rtol, case.atol)


def _stamped(model: ModelProto) -> ModelProto:
    """The model with stamps that the runtime takes: it reads no later ones, though it may have the operator."""
    stamped = ModelProto()
    stamped.CopyFrom(model)
    stamped.ir_version = min(model.ir_version, MAX_IR_VERSION)
    for entry in stamped.opset_import:
        if entry.domain in ("", "ai.onnx"):
            entry.version = min(entry.version, MAX_OPSET)
    return stamped


def _value(data: Any) -> Value:
    if isinstance(data, TensorProto):
        return numpy_helper.to_array(data)
    if data is None or isinstance(data, list):
        return data
    return np.asarray(data)


def stock_outputs(case: OnnxCase) -> Sequence[Value]:
    """The stock runtime's outputs of the case's own model.

    Tensors are bound as bytes, in ONNX's own layout: the runtime's Python interface has no arrays of narrow types.

    Raises:
        Exception: the runtime's, whatever it is.
    """
    runtime = onnxruntime()
    options = runtime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = _FATAL
    model = _stamped(case.model).SerializeToString()
    # The runtime as it is, without anything of ours.
    session = runtime.InferenceSession(model, options, providers=["CPUExecutionProvider"], enable_fallback=0)
    if not case.has_only_tensors:
        feeds = {name: value for name, value in case.inputs.items() if value is not None}
        results: Sequence[Value] = session.run(None, feeds)
        return results
    binding = session.io_binding()
    buffers = []
    for value in case.model.graph.input:
        array = case.inputs[value.name]
        assert isinstance(array, np.ndarray), "the case has only tensors"
        buffers.append(_as_bytes(array))
        kind = value.type.tensor_type.elem_type
        binding.bind_input(value.name, "cpu", 0, kind, array.shape, buffers[-1].ctypes.data)
    outputs = []
    for value, expected in zip(case.model.graph.output, case.expected, strict=True):
        assert isinstance(expected, np.ndarray), "the case has only tensors"
        kind = value.type.tensor_type.elem_type
        outputs.append((kind, expected.shape, np.zeros_like(_as_bytes(expected))))
        binding.bind_output(value.name, "cpu", 0, kind, expected.shape, outputs[-1][2].ctypes.data)
    session.run_with_iobinding(binding)
    return [_from_bytes(*output) for output in outputs]


def _as_bytes(array: np.ndarray) -> np.ndarray:
    """The tensor's bytes as ONNX lays them out; one at least, so that there is an address."""
    raw = numpy_helper.from_array(np.ascontiguousarray(array).reshape(array.shape)).raw_data
    return np.frombuffer(raw or b"\0", np.uint8).copy()


def _from_bytes(kind: int, shape: tuple[int, ...], raw: np.ndarray) -> np.ndarray:
    is_empty = 0 in shape
    tensor = TensorProto(data_type=kind, dims=shape, raw_data=b"" if is_empty else raw.tobytes())
    return numpy_helper.to_array(tensor)


def differences(case: OnnxCase, outputs: Sequence[Value]) -> tuple[str, ...]:
    """The outputs that differ from the case's, by the rule of ONNX's own test runner; () if none do."""
    names = [value.name for value in case.model.graph.output]
    return tuple(
        f"output {name!r}: {fault}"
        for name, actual, expected in zip(names, outputs, case.expected, strict=True)
        for fault in _faults(actual, expected, case.rtol, case.atol)
    )


def _faults(actual: Value, expected: Value, rtol: float, atol: float) -> Iterator[str]:
    if isinstance(expected, list) or isinstance(actual, list):
        if not isinstance(actual, list) or not isinstance(expected, list) or len(actual) != len(expected):
            yield "is another sequence"
            return
        for element, expected_element in zip(actual, expected, strict=True):
            yield from _faults(element, expected_element, rtol, atol)
        return
    if actual is None or expected is None:
        if actual is not expected:
            yield "is there, or is not"
        return
    first, second = np.asarray(actual), np.asarray(expected)
    if first.shape != second.shape:
        yield f"has shape {list(first.shape)}, not {list(second.shape)}"
    elif second.dtype.kind in "OUT":
        if not np.array_equal(first, second):
            yield "has other text"
    elif first.dtype != second.dtype:
        yield f"is of {first.dtype.name}, not {second.dtype.name}"
    else:
        rtol = max(rtol, _RELATIVE.get(first.dtype.name, 0.0))
        if first.dtype.isbuiltin != 1:
            first, second = first.astype(np.float32), second.astype(np.float32)
        if not np.allclose(first, second, rtol=rtol, atol=atol, equal_nan=True):
            yield f"differs by up to {_largest(first, second):.2e}"


def _largest(first: np.ndarray, second: np.ndarray) -> float:
    """The largest difference of two arrays of numbers, over those that are finite in both."""
    wide_first, wide_second = first.astype(np.float64), second.astype(np.float64)
    finite = np.isfinite(wide_first) & np.isfinite(wide_second)
    return float(np.abs(wide_first[finite] - wide_second[finite]).max(initial=0.0))


def with_constants(case: OnnxCase, names: Sequence[str]) -> ModelProto:
    """The case's model with some inputs as initializers, which hold the case's values."""
    model = ModelProto()
    model.CopyFrom(case.model)
    inputs = [value for value in case.model.graph.input if value.name not in names]
    del model.graph.input[:]
    model.graph.input.extend(inputs)
    for name in names:
        array = case.inputs[name]
        assert isinstance(array, np.ndarray), "only tensors become initializers"
        model.graph.initializer.append(numpy_helper.from_array(np.ascontiguousarray(array).reshape(array.shape), name))
    return model


def parameters(case: OnnxCase) -> tuple[str, ...]:
    """Inputs that may be parameters of an operator rather than its data: a shape, axes, bounds, all of rank 0 or 1."""
    return tuple(
        value.name
        for value in case.model.graph.input
        if dtype_of(value.type.tensor_type.elem_type) is not None and np.ndim(case.inputs[value.name]) <= 1  # type: ignore[arg-type]  # a tensor
    )
