"""From a forward model of the zoo to its training step."""

from __future__ import annotations

import json
from dataclasses import replace

from planner.graph.model import Graph
from planner.zoo.forward import Forward

_INPUTS = "tofu.inputs"
LEARNING_RATE = 0.01


def training_step(forward: Forward, output: str, *, loss: str, optimizer: str) -> Graph:
    """The graph of one iteration: forward, backward and weight update (Tofu, section 7.1).

    Args:
        forward: the model.
        output: what the loss looks at.
        loss: its name, see ``planner.training.update.losses``.
        optimizer: its name, see ``planner.training.update.optimizers``.

    Raises:
        UsageError: there is no such loss or optimizer.
    """
    # Imported here: the gradient rules read ONNX's schemas, and who wants only ``mlp`` needs none of them.
    from planner.training.build import build_training_graph

    graph = build_training_graph(forward.graph(output), loss=loss, optimizer=optimizer, learning_rate=LEARNING_RATE)
    samples = json.loads(graph.notes.get(_INPUTS, "{}"))
    states = {pair.current for pair in graph.state}
    samples.update((name, {"value": value}) for name, value in forward.first_values.items() if name in states)
    return replace(graph, notes={**graph.notes, _INPUTS: json.dumps(samples)})


def trained(graph: Graph) -> tuple[str, ...]:
    """The weights of a training step: states X that become X - step, unlike histories and running statistics."""
    maker = graph.producer
    return tuple(
        pair.current
        for pair in graph.state
        if maker[pair.following].op_type == "Sub" and maker[pair.following].inputs[0] == pair.current
    )
