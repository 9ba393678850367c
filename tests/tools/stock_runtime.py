"""What ONNX Runtime itself makes of a model: the judge of the models that are read, built and written here."""

from __future__ import annotations

import os
from collections.abc import Mapping

import numpy as np
from onnx import ModelProto

from planner.graph.core.model import Graph
from planner.graph.files.to_onnx import to_model

os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
import onnxruntime

NO_ERRORS = 4
"""Level of a log that tells of nothing but what ends the process: for models that may be refused."""


def session(model: Graph | ModelProto | bytes, *, threads: int = 0, log_level: int = 3) -> onnxruntime.InferenceSession:
    """A session on the CPU, without the optimizer that crashes on some valid backward graphs.

    Args:
        model: as a graph, a message or a file's content.
        threads: of one op; 0 for as many as there are cores.
        log_level: from here on the runtime prints; 3 is errors.
    """
    if isinstance(model, Graph):
        model = to_model(model)
    options = onnxruntime.SessionOptions()
    options.log_severity_level = log_level
    options.intra_op_num_threads = threads
    return onnxruntime.InferenceSession(
        model if isinstance(model, bytes) else model.SerializeToString(), options, providers=["CPUExecutionProvider"],
        disabled_optimizers=["NchwcTransformer"],
    )  # fmt: skip


def run(model: Graph | ModelProto | bytes, feeds: Mapping[str, np.ndarray], **options: int) -> dict[str, np.ndarray]:
    """The outputs by name; what a graph's state begins with is fed unless ``feeds`` has it.

    Args:
        model: as ``session`` takes it.
        feeds: by name of an input. A name that is no input is refused by the runtime.
        **options: those of ``session``.
    """
    initial = model.initial if isinstance(model, Graph) else {}
    values = {name: value for name, value in initial.items() if value is not None}
    made = session(model, **options)
    names = [output.name for output in made.get_outputs()]
    return dict(zip(names, made.run(names, {**values, **feeds}), strict=True))
