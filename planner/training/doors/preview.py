"""Decompositions of the operators of ai.onnx.preview.training, which no runtime executes.

Optimizers are written out by ``planner.graph.decompositions.update``; a gradient takes the walk.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

import numpy as np

from planner.errors import UnsupportedError
from planner.graph.core.attributes import label, refuse, text
from planner.graph.core.model import Op
from planner.graph.decompositions.registry import Decomposition, Purpose, decompositions
from planner.training import rules
from planner.training.doors.walk import Lowering, Walk
from planner.training.gradients.autodiff import backward

DOMAIN: Final = "ai.onnx.preview.training"


def _names(op: Op, attribute: str) -> tuple[str, ...]:
    value = op.attribute(attribute, ())
    assert isinstance(value, tuple), "the schema says strings"
    return tuple(str(name) for name in value)


def gradient(walk: Walk, op: Op) -> tuple[str, ...]:
    """The gradient of ``y`` with respect to each of ``xs``; ``zs`` are what else it depends on.

    A ``y`` that is no scalar is summed. ``xs`` may be inner tensors.

    Raises:
        UnsupportedError: inputs other than ``xs`` and ``zs`` themselves (the gradient at other values), or ops on the
            way that have no gradient: all of them.
    """
    emit = walk.builder
    stated = tuple(walk.aliases.get(name, name) for name in (*_names(op, "xs"), *_names(op, "zs")))
    if stated != op.inputs:
        raise refuse(op, "it asks for the gradient at other values than those of the graph")
    xs = stated[: len(_names(op, "xs"))]
    y = walk.aliases.get(text(op, "y", ""), text(op, "y", ""))
    if y not in emit.tensors:
        raise refuse(op, f"its y {y!r} is not made before it")
    ones = emit.constant(np.ones(emit.shape(y), emit.dtype(y).array_dtype), "ones")
    gradients: dict[str, str] = {}
    try:
        backward(
            emit, tuple(walk.ops), {y: ones}, [*dict.fromkeys(xs)], rules=rules.standard(), saved=walk.saved,
            ready=gradients.__setitem__,
        )  # fmt: skip
    except UnsupportedError as error:
        raise UnsupportedError(f"{label(op)}: {error.what}: {'; '.join(error.facts)}") from None
    return tuple(gradients.get(name) or emit.zeros(emit.shape(name), name) for name in xs)


def _written_out(written: Decomposition) -> Lowering:
    def lowering(walk: Walk, op: Op) -> tuple[str, ...]:
        outputs = written(walk.builder, op)
        assert outputs is not None, "an optimizer is taken or refused"
        return outputs

    return lowering


TABLE: Final[Mapping[tuple[str, str], Lowering]] = MappingProxyType(
    {
        (DOMAIN, "Gradient"): gradient,
        **{
            (DOMAIN, name.removeprefix(f"{DOMAIN}.")): _written_out(body)
            for name, body in decompositions(Purpose.UPDATE).items()
        },
    }
)
"""By domain and operator."""
