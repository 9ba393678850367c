"""onnxruntime-training's artifacts: a training model of com.microsoft operators, and an optimizer model beside it.

The training model reads its parameters and gives ``W_grad`` to an accumulator for each; the optimizer model is one
op over sequences of all parameters. Both become one graph: the gradients, lowered, and the optimizer's step.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import numpy as np
from onnx import ModelProto, NodeProto, helper

from planner.errors import ModelError, UnsupportedError
from planner.graph.core.attributes import integer, number
from planner.graph.core.model import Graph, StatePair
from planner.graph.core.wellformed import fresh_name
from planner.graph.decompositions.reading.form import DOMAIN
from planner.graph.files.protos import op_of
from planner.graph.reading.load import load_model
from planner.training.doors.rewriting import read_rewritten
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
    return any(map(_accumulates, model.graph.node))


def _accumulates(node: NodeProto) -> bool:
    return node.domain == DOMAIN and node.op_type in _ACCUMULATORS


def read_gradients(model: ModelProto) -> Gradients:
    """A training model as a gradient-only graph of standard operators.

    Raises:
        ModelError, UnsupportedError: an operator without a standard form, or a model that is malformed.
    """
    accumulators = [node for node in model.graph.node if _accumulates(node)]
    short = tuple(f"op {node.name!r} ({node.op_type})" for node in accumulators if len(node.input) < 2)
    if short:
        raise ModelError("accumulators without a gradient", facts=short)
    gradients = [node.input[1] for node in accumulators]
    internal = {name for node in accumulators for name in (node.input[0], *node.input[2:], *node.output)}
    bare = ModelProto()
    bare.CopyFrom(model)
    del bare.graph.node[:], bare.graph.input[:], bare.graph.output[:]
    bare.graph.node.extend(node for node in model.graph.node if not _accumulates(node))
    bare.graph.input.extend(value for value in model.graph.input if value.name not in internal)
    results = [value.name for value in model.graph.output if value.name not in internal]
    running = _running(bare.graph.node)
    outputs = dict.fromkeys((*results, *gradients, *running.values()))
    bare.graph.output.extend(map(helper.make_empty_tensor_value_info, outputs))
    graph = read_rewritten(bare)
    pairs = [(name.removesuffix("_grad"), name) for name in gradients]
    missing = [f"{gradient!r}" for parameter, gradient in pairs if parameter not in graph.tensors]
    if missing:
        raise UnsupportedError("gradients whose parameter is not in the training model", facts=tuple(missing))
    return Gradients(graph, tuple(pairs), tuple(map(StatePair, running.keys(), running.values())))


def _running(nodes: Sequence[NodeProto]) -> dict[str, str]:
    """Running statistics of normalisations and what follows them, which no output of the file tells.

    Of several ops with the same running statistics each follows the one before it.

    Args:
        nodes: of the model, which are changed.
    """
    following: dict[str, str] = {}
    for node in nodes:
        if node.domain == DOMAIN and node.op_type == "BatchNormInternal":
            for slot, output in zip(range(3, len(node.input)), node.output[1:3], strict=False):
                running = node.input[slot]
                node.input[slot] = following.get(running, running)
                if output:
                    following[running] = output
    reserved = {name for node in nodes for name in node.output}
    named = {output: fresh_name(f"{running}.next", reserved) for running, output in following.items()}
    for node in nodes:
        for field in (node.input, node.output):
            renamed = [named.get(name, name) for name in field]
            del field[:]
            field.extend(renamed)
    return {running: named[output] for running, output in following.items()}


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
