"""What is looked at over the stand-ins for CUDA's libraries, each in a process of its own: ``run(NAME, ...)``.

A check runs as ``python cuda_checks.py NAME ARGUMENT...`` with the variables of ``cuda_stand_in.environment`` and
prints one JSON object.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import cuda_stand_in


def run(name: str, *arguments: object, gpus: int = 8) -> Any:
    """A check's answer.

    Raises:
        AssertionError: the check failed; says what the process wrote.
    """
    variables = cuda_stand_in.environment(cuda_stand_in.build(), gpus=gpus)
    command = [sys.executable, __file__, name, *map(str, arguments)]
    done = subprocess.run(command, env=variables, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-4000:]
    return json.loads(done.stdout.splitlines()[-1])


def functions(folder: str) -> Mapping[str, Any]:
    """Makes a session of every function of a plan: what was done to its ops, and what the provider refuses."""
    from planner.artifacts.program import Segment
    from planner.runtime.engine.core.backend import BodyDigests, segment_model
    from planner.runtime.engine.gpu.cuda_form import cuda_form
    from planner.runtime.engine.gpu.cuda_sessions import cuda_session
    from planner.runtime.plan_files import load_plan

    digests = BodyDigests()
    known: set[str] = set()
    found: dict[str, set[str]] = {"widened": set(), "expanded": set(), "on_cpu": set(), "refused": set()}
    counts = {"functions": 0, "accepted": 0, "widened": 0, "expanded": 0, "on_cpu": 0, "refused": 0}
    for model in load_plan(Path(folder)).models:
        for step in model.program.steps:
            if not isinstance(step, Segment) or (digest := digests.of(step, model)) in known:
                continue
            known.add(digest)
            form = cuda_form(segment_model(step, model))
            counts["functions"] += 1
            is_as_it_was = True
            for what in ("widened", "expanded", "on_cpu"):
                ops = getattr(form, what)
                found[what] |= ops
                counts[what] += bool(ops)
                is_as_it_was = is_as_it_was and not ops
            try:
                cuda_session(form, 0, 4096)
                counts["accepted"] += is_as_it_was
            except Exception as error:  # noqa: BLE001 -- the runtime's exceptions have no common type
                counts["refused"] += 1
                found["refused"].add(f"{', '.join(sorted({n.op_type for n in form.model.graph.node}))}: {error}")
    return {"counts": counts, **{what: sorted(ops) for what, ops in found.items()}}


def steady(folder: str, gpus: str) -> Mapping[str, Any]:
    """Runs a plan's workers, and tells what an iteration calls after the first ones."""
    import cupy

    from planner.runtime.engine.core.exchange import Exchange
    from planner.runtime.engine.core.interface import InProcessEngine
    from planner.runtime.engine.gpu.cuda import CudaBackend, devices_of
    from planner.runtime.engine.gpu.cuda_sessions import sessions_on
    from planner.runtime.plan_files import load_plan

    plan = load_plan(Path(folder))
    workers = len(plan.program.workers)
    devices = devices_of(workers, None, int(gpus))
    make_session = sessions_on(devices)
    made: list[Any] = []

    def backend(exchange: Exchange) -> CudaBackend:
        made.append(CudaBackend(plan.program.workers, exchange, devices, cupy, make_session))
        return made[0]

    with InProcessEngine(plan.models, plan.program.state, make_backend=backend) as engine:
        engine.push()
        for step in range(3):
            engine.iterate(advances=step > 0)
        warm = cuda_stand_in.calls()
        cuda_stand_in.forget()
        engine.iterate(advances=True)
        found = cuda_stand_in.calls()
    return {
        "workers": workers,
        "segments": sum(type(step).__name__ == "Segment" for one in plan.program.workers for step in one.steps),
        "streams": [stream.ptr for stream in made[0]._streams.values()],
        "launches": [[stream, count] for stream, count in found.streams("launch").items()],
        "copies": [[stream, count] for stream, count in found.streams("copy, device to device").items()],
        "calls": found.names(),
        "sessions": made[0].session_count,
        "allocations": warm.count("cudaMalloc"),
        "allocated_bytes": warm.bytes("cudaMalloc"),
    }


_TRUSTING: Final = (
    "from planner.runtime.engine.gpu import child, devices; devices._trial = lambda cupy, device: ''; child.main()"
)
"""A child that does not hold it against a GPU that it computes nothing."""


def supervised(folder: str) -> Mapping[str, Any]:
    """Runs a plan in a supervised child, on GPUs in turn."""
    from planner.runtime.engine.process.supervisor import SupervisedEngine
    from planner.runtime.plan_files import load_plan

    plan = load_plan(Path(folder))
    workers = plan.program.workers
    doing: list[str] = []
    with SupervisedEngine(
        plan.paths,
        workers,
        plan.program.state,
        device_map=(),
        progress=lambda what, **_: doing.append(what),
        command=(sys.executable, "-c", _TRUSTING),
    ) as engine:
        engine.push()
        iterations = [engine.iterate(advances=step > 0) for step in range(2)]
        engine.pull(plan.program.outputs)
        assert engine.on_gpus is not None
        return {
            "doing": doing,
            "moved": [sum(map(sum, one.moved_bytes)) for one in iterations],
            "predicted": plan.program.predicted_bytes,
            "sessions": engine.session_count,
            "on_cpu": engine.on_gpus.changes.on_cpu,
            "beside": engine.on_gpus.beside_bytes,
            "is_cuda_here": "cupy" in sys.modules,
        }


def node_cases() -> Iterator[tuple[Any, Any, Mapping[str, int]]]:
    """ONNX's own cases of single ops of the opsets that ONNX Runtime has, with their models and the models' opsets."""
    import onnx
    from onnx.backend.test.loader import load_model_tests

    for case in load_model_tests(kind="node"):
        model = onnx.load(str(Path(case.model_dir) / "model.onnx")) if case.model_dir else case.model
        opsets = {one.domain: one.version for one in model.opset_import}
        if opsets.get("", 99) <= _NEWEST and not model.functions and not any(node.domain for node in model.graph.node):
            yield case, model, opsets


def onnx_cases() -> Mapping[str, Any]:
    """Tries ONNX's own cases of single ops: what the table of kernels says and what the provider does."""
    import warnings

    import numpy as np
    import onnxruntime
    from onnx import defs, shape_inference

    from planner.runtime.engine.core.halves import kinds_of
    from planner.runtime.engine.gpu.cuda_form import cuda_form
    from planner.runtime.engine.gpu.cuda_kernels import has_cuda_kernel
    from planner.runtime.engine.gpu.cuda_sessions import cuda_session

    def sessions_of(model: Any) -> Any:
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 4
        options.intra_op_num_threads = 1
        return onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])

    def alike(found: Any, right: Any) -> bool:
        return found.dtype == right.dtype and np.allclose(
            found.astype(np.float64), right.astype(np.float64), rtol=2e-3, atol=1e-5, equal_nan=True
        )

    def plain_cuda(model: Any) -> bool:
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 4
        options.intra_op_num_threads = 1
        options.add_session_config_entry("session.disable_cpu_ep_fallback", "1")
        provider = [("CUDAExecutionProvider", {"user_compute_stream": "4096"})]
        try:
            onnxruntime.InferenceSession(model.SerializeToString(), options, providers=provider, enable_fallback=0)
        except Exception:  # noqa: BLE001 -- the runtime's exceptions have no common type
            return False
        return True

    warnings.simplefilter("ignore")
    onnxruntime.set_default_logger_severity(4)
    table = {"alike": 0, "unlike": []}
    forms: dict[str, Any] = {"as it is": 0, "compared": 0, "changed": 0, "refused": [], "other numbers": []}
    for case, model, opsets in node_cases():
        nodes = model.graph.node
        if any(attribute.HasField("g") for node in nodes for attribute in node.attribute):
            continue
        values = (*model.graph.input, *model.graph.output)
        if any(value.type.tensor_type.elem_type not in _PLAIN for value in values):
            continue
        try:
            mine = sessions_of(model)
        except Exception:  # noqa: BLE001 -- the runtime's exceptions have no common type
            mine = None
        if len(nodes) == 1 and nodes[0].op_type != "Constant":
            schema = defs.get_schema(nodes[0].op_type, opsets[""])
            told = has_cuda_kernel(nodes[0], kinds_of(shape_inference.infer_shapes(model)), opsets)
            has_body = schema.has_function or schema.has_context_dependent_function
            if not has_body or told:  # ONNX Runtime itself expands an op without a kernel
                if told == plain_cuda(model):
                    table["alike"] += 1
                else:
                    table["unlike"].append(case.name)
        form = cuda_form(model)
        if not (form.widened or form.expanded or form.on_cpu):
            forms["as it is"] += 1
            continue
        if mine is None:
            continue  # no session on a CPU either
        forms["changed"] += 1
        try:
            cuda_session(form, 0, 4096)
        except Exception:  # noqa: BLE001 -- the runtime's exceptions have no common type
            forms["refused"].append(case.name)
            continue
        for inputs, outputs in case.data_sets or ():
            given = {value.name: np.asarray(array) for value, array in zip(model.graph.input, inputs, strict=False)}
            if any(array.dtype.kind not in "biuf" for array in given.values()):
                continue  # bfloat16, which the wrapper does not take
            try:
                before = mine.run(None, given)
            except Exception:  # noqa: BLE001 -- the runtime's exceptions have no common type
                continue  # ONNX Runtime cannot run it
            after = sessions_of(form.model).run(None, given)
            forms["compared"] += 1
            if any(not isinstance(one, np.ndarray) for one in before):
                continue
            for one, other, stated in zip(before, after, outputs, strict=False):
                # ONNX Runtime writes masked scores as the lowest number where ONNX says minus infinity.
                if not any(alike(other, right) for right in (one, np.asarray(stated))):
                    forms["other numbers"].append(case.name)
    return {"table": table, "forms": forms}


_NEWEST: Final = 25
_PLAIN: Final = frozenset({1, 2, 3, 4, 5, 6, 7, 9, 10, 11, 12, 13, 16})
"""Types that NumPy, or ml_dtypes for bfloat16, has whole."""


def on_cpu() -> Mapping[str, Any]:
    """Runs a model with an op on the CPU, its input changed between runs."""
    import ctypes

    import cupy
    import numpy as np
    from onnx import TensorProto, helper

    from planner.runtime.engine.gpu.cuda_form import cuda_form
    from planner.runtime.engine.gpu.cuda_sessions import cuda_session

    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [8]) for name in ("x", "y")]
    nodes = [helper.make_node("Cosh", ["x"], ["z"]), helper.make_node("Sinh", ["z"], ["y"])]
    graph = helper.make_graph(nodes, "g", values[:1], values[1:])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    stream = cupy.cuda.Stream(non_blocking=True)
    form = cuda_form(model)
    session, options = cuda_session(form, 0, stream.ptr)
    binding = session.io_binding()
    x, y = cupy.empty(8, np.float32), cupy.empty(8, np.float32)
    binding.bind_input("x", "cuda", 0, TensorProto.FLOAT, [8], x.data.ptr)
    binding.bind_output("y", "cuda", 0, TensorProto.FLOAT, [8], y.data.ptr)
    found, wanted = [], []
    for number in range(3):
        host = np.full(8, number / 4, np.float32)
        ctypes.memmove(x.data.ptr, host.ctypes.data, host.nbytes)
        cuda_stand_in.forget()
        session.run_with_iobinding(binding, options)
        ctypes.memmove(host.ctypes.data, y.data.ptr, host.nbytes)
        found.append(float(host[0]))
        wanted.append(float(np.sinh(np.cosh(np.float32(number / 4)))))
    calls = cuda_stand_in.calls()
    return {
        "on_cpu": sorted(form.on_cpu),
        "found": found,
        "wanted": wanted,
        "stream": stream.ptr,
        "copies": [[place, count] for place, count in calls.streams("copy*").items()],
        "device": [calls.count("copy, device to host"), calls.count("copy, host to device")],
    }


_CHECKS: Final[Mapping[str, Callable[..., Mapping[str, Any]]]] = {
    "functions": functions,
    "on-cpu": on_cpu,
    "onnx-cases": onnx_cases,
    "steady": steady,
    "supervised": supervised,
}


def main(arguments: Sequence[str]) -> None:
    """Does a check and prints what it found."""
    print(json.dumps(_CHECKS[arguments[0]](*arguments[1:])))


if __name__ == "__main__":
    main(sys.argv[1:])
