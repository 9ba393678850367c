"""Whether Dropout drops: a model that was exported to infer has its Dropouts, if at all, in inference mode."""

from __future__ import annotations

from dataclasses import replace
from typing import Final, Literal, TypeAlias

import numpy as np

from planner.errors import UsageError
from planner.graph.core.model import DType, Graph, Op, Tensor
from planner.graph.core.wellformed import fresh_name

DropoutMode: TypeAlias = Literal["train", "off"]
MODES: Final = ("off", "train")


def with_dropout(forward: Graph, mode: DropoutMode | None) -> Graph:
    """The model with every Dropout in training mode ("train") or in inference mode ("off"), whatever it says itself.

    Without a third input, ``training_mode``, a Dropout hands on what it reads (ONNX Dropout); so exporters leave it
    in models that infer, if they leave it at all.

    Args:
        forward: the model.
        mode: None leaves every Dropout as it is.

    Raises:
        UsageError: an unknown mode, or "train" for a model that has no Dropout.
    """
    if mode is None:
        return forward
    if mode not in MODES:
        raise UsageError(f"dropout is {mode!r}", facts=("known: off, train",))
    dropouts = {op.name for op in forward.ops_of("Dropout")}
    if not dropouts:
        if mode == "off":
            return forward
        raise UsageError(
            "dropout is to train, and the model has no Dropout",
            hint="exporters drop it from models that infer: export the model in training mode",
        )
    trains = fresh_name("dropout.training_mode", forward.tensors)
    ops = tuple(_switched(op, trains if mode == "train" else "") if op.name in dropouts else op for op in forward.ops)
    if mode == "off":
        return replace(forward, ops=ops)
    return replace(
        forward,
        ops=ops,
        tensors={**forward.tensors, trains: Tensor(trains, (), DType.BOOL)},
        constants={**forward.constants, trains: np.array(True)},
        folded=forward.folded | {trains},
    )


def _switched(op: Op, training_mode: str) -> Op:
    operands = [*op.inputs[:2]]
    if training_mode:
        operands += [""] * (2 - len(operands)) + [training_mode]
    return replace(op, inputs=tuple(operands))
