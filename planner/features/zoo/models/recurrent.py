"""Tofu's recurrent networks: LSTM layers, unrolled."""

from __future__ import annotations

from planner.features.zoo.models.forward import Forward
from planner.features.zoo.models.step import training_step
from planner.graph.core.model import Graph

STEPS = 20
"""Time steps that are unrolled (Tofu, section 7.1)."""
_GATES = 4


def rnn(layers: int, hidden: int, *, batch: int, steps: int = STEPS, optimizer: str = "adagrad") -> Graph:
    """LSTM layers above one another (Tofu, section 7.1, after Jozefowicz et al. 2016), without biases or projection.

    Weights are what Tofu's Table 2 counts: for each layer a recurrent matrix [hidden, 4 * hidden] and, but for the
    first layer, one of the layer below of the same size; no embedding and no softmax. The first layer is given
    its words already projected, [batch, 4 * hidden] at each step: the row of a table, where an embedding and the input
    matrix have been multiplied. The loss is the mean squared distance of all outputs from a target.

    The four gates of a unit stand beside each other, so that a piece of the units' dim has all their gates; with the
    gates one after the other, as in ONNX's LSTM, no box of the product does.

    Args:
        layers: how many.
        hidden: units of each.
        batch: samples.
        steps: of time.
        optimizer: its name; the paper's have one history for each weight (3 W bytes with weight and gradient).
    """
    size = f"{hidden // 1024}k" if hidden % 1024 == 0 else str(hidden)
    model = Forward(f"rnn-{layers}-{size}")
    below = [model.input(f"x{step}", batch, _GATES * hidden) for step in range(steps)]
    for number in range(1, layers + 1):
        below = _layer(model, f"layer{number}", below, hidden, projected=number == 1)
    outputs = [model.reshape(f"output.step{step}", h, 1, *model.shape(h)) for step, h in enumerate(below)]
    return training_step(model, model.concat("output", outputs, axis=0), loss="mse", optimizer=optimizer)


def _layer(model: Forward, layer: str, below: list[str], hidden: int, *, projected: bool) -> list[str]:
    """Its outputs, [batch, hidden], at every step; the state before the first step is data."""
    batch = model.shape(below[0])[0]
    h = model.input(f"{layer}.h", batch, hidden)
    c = model.input(f"{layer}.c", batch, hidden, 1)
    recurrent = model.parameter(f"{layer}.recurrent", hidden, _GATES * hidden)
    weight = "" if projected else model.parameter(f"{layer}.weight", hidden, _GATES * hidden)
    outputs: list[str] = []
    for step, x in enumerate(below):
        at = f"{layer}.step{step}"
        if not projected:
            x = model.gemm(f"{at}.input", x, weight)
        gates = model.gemm(f"{at}.recurrent", h, recurrent, x)
        h, c = _cell(model, at, model.reshape(f"{at}.gates", gates, batch, hidden, _GATES), c)
        outputs.append(h)
    return outputs


def _cell(model: Forward, at: str, gates: str, c: str) -> tuple[str, str]:
    """One cell: c' = σ(f) c + σ(i) tanh(g) and h' = σ(o) tanh(c') (Hochreiter and Schmidhuber 1997)."""
    i, f, g, o = model.split(f"{at}.split", gates, _GATES)
    memory = model.each(f"{at}.kept", "Mul", model.each(f"{at}.f", "Sigmoid", f), c)
    added = model.each(f"{at}.added", "Mul", model.each(f"{at}.i", "Sigmoid", i), model.each(f"{at}.g", "Tanh", g))
    c = model.each(f"{at}.c", "Add", memory, added)
    h = model.each(f"{at}.shown", "Mul", model.each(f"{at}.o", "Sigmoid", o), model.each(f"{at}.tanh", "Tanh", c))
    batch, hidden, _ = model.shape(h)
    return model.reshape(f"{at}.h", h, batch, hidden), c
