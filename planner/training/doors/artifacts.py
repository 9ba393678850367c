"""onnxruntime-training's artifacts: a training model of com.microsoft operators, and an optimizer model beside it.

The training model reads its parameters and gives ``W_grad`` to an accumulator for each; the optimizer model is one
op over sequences of all parameters. Both become one graph: the gradients, lowered, and the optimizer's step.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import numpy as np
from onnx import ModelProto

from planner.errors import ModelError, UnsupportedError
from planner.graph.core.attributes import integer, number
from planner.graph.core.model import Graph, StatePair
from planner.graph.core.wellformed import fresh_name
from planner.graph.files.protos import op_of
from planner.graph.files.to_onnx import to_model
from planner.graph.reading.from_onnx import graph_from_proto
from planner.graph.reading.load import load_model
from planner.training.doors.microsoft import DOMAIN, TABLE
from planner.training.doors.walk import graph_of, walk
from planner.training.update.optimizers import Group, Hyper
from planner.training.update.updates import Schedule

TRAINING_MODEL: Final = "training_model.onnx"
OPTIMIZER_MODEL: Final = "optimizer_model.onnx"
_ACCUMULATORS: Final = frozenset({"InPlaceAccumulator", "InPlaceAccumulatorV2"})


@dataclass(frozen=True, slots=True)
class Stated:
    """The optimizer that an optimizer model holds."""

    name: str
    hyper: Hyper
    schedule: Schedule


@dataclass(frozen=True, slots=True)
class Gradients:
    """A training model in standard operators."""

    graph: Graph
    """Its outputs are the model's results (the loss), the gradients, and what follows the running statistics."""
    pairs: tuple[tuple[str, str], ...]
    """(parameter, gradient)."""
    running: tuple[StatePair, ...] = ()
    """Running statistics of normalisations: the runtime writes them in place, so that no output of the model tells."""


def is_artifact(model: ModelProto) -> bool:
    """Whether a model has the accumulators with which generated training models end."""
    return any(node.domain == DOMAIN and node.op_type in _ACCUMULATORS for node in model.graph.node)


def read_gradients(model: ModelProto) -> Gradients:
    """A training model as a gradient-only graph of standard operators.

    Raises:
        ModelError, UnsupportedError: an operator without a standard form, or a model that is malformed.
    """
    accumulators = [node for node in model.graph.node if node.domain == DOMAIN and node.op_type in _ACCUMULATORS]
    short = tuple(f"op {node.name!r} ({node.op_type})" for node in accumulators if len(node.input) < 2)
    if short:
        raise ModelError("accumulators without a gradient", facts=short)
    state, source = walk(model, TABLE)
    internal = {name for node in accumulators for name in (node.input[0], *node.input[2:])}
    flags = {name for node in accumulators for name in node.output}
    gradients = [node.input[1] for node in accumulators]
    inputs = tuple(name for name in source.inputs if name not in internal)
    results = [value.name for value in model.graph.output if value.name not in flags]
    outputs = {name: name for name in (*results, *gradients)}
    following = {fresh_name(f"{name}.next", outputs): statistic for name, statistic in state.running.items()}
    graph = graph_of(state, source, inputs=inputs, outputs={**outputs, **following})
    # Reading it again folds what shape arithmetic is left, and infers every shape anew.
    graph = graph_from_proto(to_model(graph), state_pairs=[])
    pairs = [(name.removesuffix("_grad"), name) for name in gradients]
    missing = [f"{gradient!r}" for parameter, gradient in pairs if parameter not in graph.tensors]
    if missing:
        raise UnsupportedError("gradients whose parameter is not in the training model", facts=tuple(missing))
    named = graph.outputs[len(outputs) :]
    running = tuple(StatePair(*names) for names in zip(state.running, named, strict=True))
    return Gradients(graph, tuple(pairs), running)


def read_optimizer(path: Path) -> Stated:
    """The optimizer of an optimizer model.

    Raises:
        UnsupportedError: an optimizer other than AdamW and SGD, or without bias correction.
    """
    stated: Stated | None = None
    max_norm: float | None = None
    for index, node in enumerate(load_model(path).graph.node):
        op = op_of(node, node.name or f"{node.op_type}.{index}")
        match op.op_type:
            case "AdamWOptimizer":
                if not integer(op, "correct_bias", 1):
                    raise UnsupportedError(f"{path}: AdamWOptimizer without bias correction")
                hyper = Hyper(
                    beta1=_clean(number(op, "alpha", 0.9)),
                    beta2=_clean(number(op, "beta", 0.999)),
                    epsilon=_clean(number(op, "epsilon", 1e-8)),
                    groups=(Group("*", decay=_clean(number(op, "weight_decay", 1e-2))),),  # vectors, too
                )
                stated = Stated("adamw" if integer(op, "adam_mode", 0) == 0 else "adamw_after", hyper, Schedule())
            case "SGDOptimizerV2":
                stated = Stated("sgd", Hyper(), Schedule())
            case "InplaceClipGradNorm":
                max_norm = _clean(number(op, "max_norm", 1.0))
            case _:
                raise UnsupportedError(f"{path}: op {op.name!r}: the optimizer {op.op_type} is not known")
    if stated is None:
        raise UnsupportedError(f"{path}: holds no optimizer")
    return replace(stated, schedule=Schedule(clip_norm=max_norm))


def _clean(value: float) -> float:
    """0.9 for the float32 that is nearest to it."""
    return float(str(np.float32(value)))
