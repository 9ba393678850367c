"""Single ops on a GPU against the CPU: ONNX's own cases and those of the descriptions.

    python tests/tools/gpu_ops.py [--jobs 4] [--shard 0/16] [--dtype bfloat16] [--only NAME ...]
        [--without OPERATOR ...]

Each op's model is brought into the form that ONNX Runtime's CUDA provider takes (``cuda_form``), run on the GPU as a
segment is, bound to device memory on a stream of its own, and held against the same model on the CPU. Prints one JSON
object: how many cases were run, and those that are refused, fail or give other numbers. Needs a GPU.

Without --shard the cases are done by processes that follow each other, each with about 100: a process keeps all of its
sessions (see ``_KEPT``), which fill a GPU otherwise. One that crashes is named with the last case that it finished.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import warnings
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

import numpy as np
import onnx

from cuda_checks import node_cases
from planner.features.ops.cases.case import execute_case
from planner.features.ops.cases.examples import all_cases
from planner.features.ops.execute import ExecutionError
from planner.graph.core.model import DType
from planner.graph.decompositions.registry import Purpose, decompositions
from planner.graph.files.protos import dtype_of, elem_type_of
from planner.graph.files.to_onnx import to_model
from planner.runtime.engine.core.sessions import carried, carried_name, onnxruntime
from planner.runtime.engine.gpu.cuda import plain
from planner.runtime.engine.gpu.cuda_form import cuda_form
from planner.runtime.engine.gpu.cuda_sessions import cuda_session
from planner.runtime.engine.gpu.devices import require_cuda

_SHARDS: Final = 21
_KEPT: Final[list[Any]] = []
"""Sessions and their streams: ONNX Runtime crashes where either is given back before the process ends."""


def cases() -> Iterator[tuple[str, onnx.ModelProto, dict[str, np.ndarray]]]:
    """Names, models and inputs."""
    for case, model, _ in node_cases():
        for inputs, _ in case.data_sets or ():
            arrays = dict(zip((value.name for value in model.graph.input), inputs, strict=False))
            if all(isinstance(array, np.ndarray) for array in arrays.values()):
                yield case.name, model, arrays
            break
    for own in all_cases():
        try:
            graph, arrays, _ = execute_case(own)
        except ExecutionError:
            continue
        yield str(own), to_model(graph), arrays


def rounded(model: onnx.ModelProto, kind: int) -> onnx.ModelProto | None:
    """The model with operands of float32 rounded to 16 bits and its results brought back; None: no such op."""
    changed = onnx.ModelProto.FromString(model.SerializeToString())
    graph, before, after = changed.graph, [], []
    (node,) = graph.node
    given = {value.name: value.type.tensor_type.elem_type for value in graph.input}
    given |= {one.name: one.data_type for one in graph.initializer}
    small = {name for name, its in given.items() if its == onnx.TensorProto.FLOAT}
    for name in dict.fromkeys(node.input):
        if name in small:
            before.append(onnx.helper.make_node("Cast", [name], [f"{name}.small"], to=kind))
    node.input[:] = [f"{name}.small" if name in small else name for name in node.input]
    made = {value.name for value in graph.output if value.type.tensor_type.elem_type == onnx.TensorProto.FLOAT}
    for name in made:
        after.append(onnx.helper.make_node("Cast", [f"{name}.small"], [name], to=onnx.TensorProto.FLOAT))
    node.output[:] = [f"{name}.small" if name in made else name for name in node.output]
    nodes = [*before, node, *after]
    del graph.node[:]
    graph.node.extend(nodes)
    try:
        onnx.checker.check_model(changed, full_check=True)
    except Exception:  # noqa: BLE001 -- the checker's exceptions have no common type
        return None
    return changed if small else None


def on_cpu(model: onnx.ModelProto, arrays: dict[str, np.ndarray]) -> list[Any]:
    """What the op gives on the CPU."""
    options = onnxruntime().SessionOptions()
    options.log_severity_level, options.intra_op_num_threads = 4, 1
    session = onnxruntime().InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return list(session.run(None, arrays))


def on_gpu(cupy: Any, device: int, model: onnx.ModelProto, arrays: dict[str, np.ndarray], like: list[Any]) -> list[Any]:
    """What the op gives on a GPU, bound as a segment's function is."""
    model = onnx.ModelProto.FromString(model.SerializeToString())
    for value, array in zip(model.graph.input, (arrays[value.name] for value in model.graph.input), strict=True):
        _shaped(value, array)
    for value, array in zip(model.graph.output, like, strict=True):
        _shaped(value, array)
    names = [value.name for value in (*model.graph.input, *model.graph.output)]
    dtypes = [dtype_of(value.type.tensor_type.elem_type) for value in (*model.graph.input, *model.graph.output)]
    stream = cupy.cuda.Stream(non_blocking=True)
    session, options = cuda_session(cuda_form(carried(model)), device, stream.ptr)
    binding, kept = session.io_binding(), []
    _KEPT.append((session, stream, binding))
    for name, dtype, array in zip(names, dtypes, (*arrays.values(), *like), strict=True):
        host = plain(np.ascontiguousarray(array))
        there = cupy.empty(max(host.nbytes, 1), np.uint8)
        if host.nbytes and name in arrays:
            there[: host.nbytes].set(host.reshape(-1).view(np.uint8), stream=stream)
        bind = binding.bind_input if name in arrays else binding.bind_output
        bind(carried_name(name, dtype), "cuda", device, elem_type_of(dtype.carrier), list(array.shape), there.data.ptr)
        kept.append(there)
    stream.synchronize()
    session.run_with_iobinding(binding, options)
    stream.synchronize()
    found = []
    for there, array in zip(kept[len(arrays) :], like, strict=True):
        raw = there.get()[: array.nbytes]
        found.append(raw.view(array.dtype).reshape(array.shape) if array.nbytes else np.empty_like(array))
    return found


def _as(array: np.ndarray, dtype: str | None) -> np.ndarray:
    """The array as 16 bits hold it."""
    return (
        array
        if dtype is None or array.dtype != np.float32
        else array.astype(DType(dtype).array_dtype).astype(array.dtype)
    )


def _shaped(value: onnx.ValueInfoProto, array: np.ndarray) -> None:
    del value.type.tensor_type.shape.dim[:]
    value.type.tensor_type.shape.SetInParent()
    for extent in array.shape:
        value.type.tensor_type.shape.dim.add().dim_value = extent


def difference(found: np.ndarray, wanted: np.ndarray, is_rounded: bool) -> str:
    """How numbers differ; "" if they do not by more than rounding."""
    if wanted.dtype.kind in "biu":
        wrong = int((found != wanted).sum())
        if wrong and wanted.dtype.itemsize == 1 and wanted.dtype.kind != "b":  # a quantised number may round otherwise
            wrong = int((np.abs(found.astype(np.int64) - wanted.astype(np.int64)) > 1).sum())
        return f"{wrong} of {wanted.size} integers" if wrong else ""
    one, other = found.astype(np.float64), wanted.astype(np.float64)
    tolerance = 5e-2 if is_rounded else 2e-2 if wanted.dtype.itemsize < 4 else 1e-4
    is_close = np.isclose(one, other, rtol=tolerance, atol=tolerance, equal_nan=True)
    if is_close.all():
        return ""
    place = np.unravel_index(int(np.argmin(is_close)), other.shape)
    return f"{int((~is_close).sum())} of {other.size}: {one[place]} for {other[place]}"


def in_processes(arguments: list[str], jobs: int) -> dict[str, Any]:
    """What all shards tell, together."""

    def told(number: int) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, __file__, "--shard", f"{number}/{_SHARDS}", *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=False)

    total: dict[str, Any] = {"crashed": {}}
    with ThreadPoolExecutor(jobs) as pool:
        for number, done in enumerate(pool.map(told, range(_SHARDS))):
            if done.returncode:
                total["crashed"][f"{number}/{_SHARDS}"] = done.stderr.strip().rpartition("\n")[2]
                continue
            for key, value in json.loads(done.stdout.strip().rpartition("\n")[2]).items():
                total[key] = {**total.get(key, {}), **value} if isinstance(value, dict) else total.get(key, 0) + value
    return total


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--shard", help="which of how many parts of the cases, in this process")
    parser.add_argument("--jobs", type=int, default=1, help="processes at a time")
    parser.add_argument("--device", type=int, default=0)
    parser.add_argument("--dtype", choices=["float16", "bfloat16"], help="of the operands of the descriptions' cases")
    parser.add_argument("--only", nargs="+", help="cases by name")
    parser.add_argument("--without", nargs="+", default=[], help="operators that are left out")
    options = parser.parse_args()
    cupy, _ = require_cuda([options.device])
    if options.shard is None:
        passed = [f"--{key}={value}" for key, value in (("device", options.device), ("dtype", options.dtype)) if value]
        passed += ["--without", *options.without] if options.without else []
        passed += ["--only", *options.only] if options.only else []
        print(json.dumps(in_processes(passed, options.jobs)))
        return
    number, count = map(int, options.shard.split("/"))
    warnings.simplefilter("ignore")
    cupy.cuda.Device(options.device).use()
    told: dict[str, Any] = {"run": 0, "not on CPUs": 0, "drawn": 0, "failed": {}, "other numbers": {}}
    for index, (name, model, arrays) in enumerate(cases()):
        if index % count != number or (options.only and name not in options.only):
            continue
        if any(node.op_type in options.without for node in model.graph.node):
            continue
        if any(node.op_type in decompositions(Purpose.RANDOM) for node in model.graph.node):
            told["drawn"] += 1
            continue
        kind = getattr(onnx.TensorProto, options.dtype.upper()) if options.dtype else 0
        if kind and (name.startswith("test_") or (small := rounded(model, kind)) is None):
            continue
        try:
            wanted = on_cpu(model, {k: _as(array, options.dtype) for k, array in arrays.items()})
        except Exception:  # noqa: BLE001 -- the runtime's exceptions have no common type
            told["not on CPUs"] += 1
            continue
        if not all(isinstance(array, np.ndarray) and array.dtype.kind in "biuf" for array in wanted):
            told["not on CPUs"] += 1
            continue
        try:
            found = on_gpu(cupy, options.device, small if kind else model, arrays, wanted)
        except Exception as error:  # noqa: BLE001 -- whatever is raised is what is looked for
            told["failed"][name] = f"{type(error).__name__}: {error}"[:400]
            continue
        told["run"] += 1
        wrong = [text for one, other in zip(found, wanted, strict=True) if (text := difference(one, other, bool(kind)))]
        if wrong:
            told["other numbers"][name] = "; ".join(wrong)
        print(name, file=sys.stderr, flush=True)
    print(json.dumps(told), flush=True)
    os._exit(0)


if __name__ == "__main__":
    main()
