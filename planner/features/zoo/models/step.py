"""The training step of a forward model of the zoo."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING

from planner.features.zoo.models.forward import Forward
from planner.graph.core.model import Graph, StatePair

if TYPE_CHECKING:
    from planner.training.update.optimizers import Hyper
    from planner.training.update.precision import Precision

_INPUTS = "tofu.inputs"
LEARNING_RATE = 0.01


def training_step(
    forward: Forward,
    output: str,
    *,
    loss: str,
    optimizer: str,
    learning_rate: float = LEARNING_RATE,
    precision: Precision = "float32",
    hyper: Hyper | None = None,
) -> Graph:
    """The graph of one iteration: forward, backward and weight update (Tofu, section 7.1).

    Args:
        forward: the model.
        output: what the loss looks at.
        loss: its name, see ``planner.training.update.losses``.
        optimizer: its name, see ``planner.training.update.optimizers``.
        learning_rate: of the optimizer.
        precision: what the model computes in, see ``planner.training.update.precision``.
        hyper: the optimizer's numbers; None: its defaults.

    Raises:
        UsageError: there is no such loss or optimizer.
    """
    # Imported here: the gradient rules read ONNX's schemas, and who wants only ``mlp`` needs none of them.
    from planner.training.build import build_training_graph
    from planner.training.update.optimizers import Hyper

    graph = build_training_graph(
        forward.graph(output),
        loss=loss,
        optimizer=optimizer,
        learning_rate=learning_rate,
        hyper=hyper or Hyper(),
        precision=precision,
    )
    samples = json.loads(graph.notes.get(_INPUTS, "{}"))
    states = {pair.current for pair in graph.state}
    samples.update((name, {"value": value}) for name, value in forward.first_values.items() if name in states)
    return replace(graph, notes={**graph.notes, _INPUTS: json.dumps(samples)})


def trained(graph: Graph) -> tuple[str, ...]:
    """The weights of a training step: states X that become X - step, unlike histories and running statistics."""
    return tuple(pair.current for pair in graph.state if _is_stepped(graph, pair))


def _is_stepped(graph: Graph, pair: StatePair) -> bool:
    """Whether a state becomes X - step, or, where it decays, (1 - R decay) X - step."""
    update = graph.made_by(pair.following, "Sub")
    if update is None:
        return False
    decayed = graph.made_by(update.inputs[0], "Mul")
    return pair.current in (update.inputs[0], decayed and decayed.inputs[1])
