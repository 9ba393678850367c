"""Gradient of ai.onnx.preview.training, which no runtime executes, written out on the graph that it stands in.

Optimizers of the domain are written out when the graph is read.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np

from planner.graph.core.attributes import refuse, text
from planner.graph.core.builder import Builder
from planner.graph.core.model import Graph, Op
from planner.training import rules
from planner.training.gradients.autodiff import gradients_for
from planner.training.gradients.expand import expanded
from planner.training.gradients.lowering import lower_op

DOMAIN: Final = "ai.onnx.preview.training"


def written_out(graph: Graph, outputs: Mapping[str, str]) -> Graph:
    """A training step in standard operators.

    Args:
        graph: of a training step's opset, with Gradient ops; the ``y`` of each Gradient is an output.
        outputs: by the name that each output is to have, a tensor of the graph.

    Raises:
        UnsupportedError: a Gradient whose ``y`` is not made before it, or ops on its way that have no gradient: all of
            them; forms that cannot be part of a training step.
    """
    wanted = [name for op in graph.ops for name in _wanted(op)]
    graph = expanded(graph, wanted, rules.standard())
    builder = Builder(graph)
    path: list[Op] = []
    saved: dict[str, Mapping[str, str]] = {}
    sources: dict[str, str] = {}
    for op in graph.ops:
        op = op.renamed(sources)
        first = len(builder.ops)
        with builder.scope(op.name):
            if op.domain == DOMAIN:
                results = _gradient(builder, op, path, saved, sources)
                sources.update((output, result) for output, result in zip(op.outputs, results, strict=False) if output)
                path.extend(builder.ops[first:])
                continue
            # A gradient passes the op itself, and would end at what stands for it.
            with builder.apart():
                trains = bool(op.attribute("training_mode", 0))
                lower_op(builder, op, batch_statistics=trains, saved=saved, updates={})
            path.append(op)
    names = [name if name == tensor else builder.output(sources.get(tensor, tensor), name)
             for name, tensor in outputs.items()]  # fmt: skip
    for name in names:
        if name in sources:
            builder.define(name, sources[name])
    return builder.finish(
        inputs=graph.inputs, outputs=names, state=(), initial=graph.initial, opset=graph.opset, notes=graph.notes
    )


def _wanted(op: Op) -> tuple[str, ...]:
    """The tensors with respect to which a Gradient is taken; () of other ops."""
    xs = op.attribute("xs", ()) if op.domain == DOMAIN else ()
    assert isinstance(xs, tuple), "the schema says strings"
    return op.inputs[: len(xs)]


def _gradient(
    builder: Builder, op: Op, path: Sequence[Op], saved: Mapping[str, Mapping[str, str]], sources: Mapping[str, str]
) -> tuple[str, ...]:
    """The gradient of ``y`` with respect to each of ``xs``; ``zs`` are what else it depends on.

    A ``y`` that is no scalar is summed. ``xs`` may be inner tensors.
    """
    y = text(op, "y", "")
    y = sources.get(y, y)
    if y not in builder.tensors:
        raise refuse(op, f"its y {y!r} is not made before it")
    ones = builder.constant(np.ones(builder.shape(y), builder.dtype(y).array_dtype), "ones")
    return gradients_for(builder, op, path, {y: ones}, _wanted(op), rules=rules.standard(), saved=saved)
