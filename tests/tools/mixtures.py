"""A mixture of experts in its spellings: a loop over experts, stacked weights, the capacity form of GShard.

The first two compute the same, and the last two: each token's two experts of the highest probability, weighted by it.
"""

from __future__ import annotations

from dataclasses import dataclass

from planner.features.zoo.models.forward import Forward
from planner.features.zoo.models.mixture import Experts, routed
from planner.features.zoo.models.step import training_step
from planner.graph.core.model import Graph

SPELLINGS = ("loop", "stacked", "loop with capacities", "capacity form")


@dataclass(frozen=True, slots=True)
class Sizes:
    """Of a mixture of experts."""

    groups: int
    """Of tokens, each with capacities of its own."""
    tokens: int
    """Of a group."""
    width: int
    inner: int
    experts: Experts


SMALL = Sizes(4, 32, 64, 128, Experts(4, 2, 1.0))
LARGE = Sizes(8, 512, 1024, 4096, Experts(8, 2, 1.0))
"""4,096 tokens, 8 experts, each token to two of them."""


def mixture(spelling: str, sizes: Sizes) -> Graph:
    """A training step.

    Args:
        spelling: one of ``SPELLINGS``. The first two take all tokens to all experts, whose results have weights of
            zero where a token has not chosen them; the others have places for as many as ``sizes`` says.
        sizes: of it.
    """
    model = Forward(spelling)
    rows = sizes.groups * sizes.tokens
    x = model.input("x", rows, sizes.width)
    gates, taken = routed(model, "router", x, sizes.experts, sizes.groups)
    write = {
        "loop": _loop,
        "stacked": _stacked,
        "loop with capacities": _loop_with_capacities,
        "capacity form": _capacity_form,
    }[spelling]
    y = write(model, x, gates, taken, sizes)
    return training_step(model, y, loss="mse", optimizer="sgd")


def _expert(model: Forward, name: str, x: str, inner: int) -> str:
    """Two layers of each row."""
    hidden = model.relu(f"{name}.relu", model.project(f"{name}.up", x, inner))
    return model.project(f"{name}.down", hidden, model.shape(x)[1])


def _experts(model: Forward, x: str, sizes: Sizes) -> str:
    """The same of every expert, of [experts, rows, width]; or of [rows, width], which all have."""
    *_, rows, width = model.shape(x)
    count, inner = sizes.experts.count, sizes.inner
    up = model.parameter("experts.up.weight", count, width, inner)
    down = model.parameter("experts.down.weight", count, inner, width)
    hidden = model.relu("experts.relu", model.op("experts.up", "MatMul", [x, up], (count, rows, inner)))
    return model.op("experts.down", "MatMul", [hidden, down], (count, rows, width))


def _loop(model: Forward, x: str, gates: str, taken: str, sizes: Sizes) -> str:
    count, rows = sizes.experts.count, sizes.groups * sizes.tokens
    of_each = model.split("gates", model.reshape("gates.rows", gates, rows, count), count, axis=1)
    total = ""
    for number, gate in enumerate(of_each):
        part = model.each(f"mixed{number}", "Mul", _expert(model, f"expert{number}", x, sizes.inner), gate)
        total = model.each(f"total{number}", "Add", total, part) if total else part
    return total


def _stacked(model: Forward, x: str, gates: str, taken: str, sizes: Sizes) -> str:
    count, rows = sizes.experts.count, sizes.groups * sizes.tokens
    made = _experts(model, x, sizes)
    turned = model.transpose("gates.turned", model.reshape("gates.rows", gates, rows, count), 1, 0)
    weights = model.reshape("gates.of_each", turned, count, rows, 1)
    mixed = model.sum("total", model.each("mixed", "Mul", made, weights), 0)
    return model.reshape("total.rows", mixed, rows, sizes.width)


def _loop_with_capacities(model: Forward, x: str, gates: str, taken: str, sizes: Sizes) -> str:
    groups, tokens, width, count = sizes.groups, sizes.tokens, sizes.width, sizes.experts.count
    places = model.shape(taken)[-1]
    samples = model.reshape("samples", x, groups, tokens, width)
    weights = model.each("weights", "Mul", taken, gates)
    total = ""
    sent = model.split("taken", taken, count, axis=2)
    for number, (to, back) in enumerate(zip(sent, model.split("weights.split", weights, count, axis=2), strict=True)):
        name = f"expert{number}"
        seats = model.transpose(f"{name}.to", model.reshape(f"{name}.seats", to, groups, tokens, places), 0, 2, 1)
        given = model.op(f"{name}.dispatch", "MatMul", [seats, samples], (groups, places, width))
        made = _expert(model, name, model.reshape(f"{name}.given", given, groups * places, width), sizes.inner)
        made = model.reshape(f"{name}.made", made, groups, places, width)
        back = model.reshape(f"{name}.back", back, groups, tokens, places)
        part = model.op(f"{name}.combine", "MatMul", [back, made], (groups, tokens, width))
        total = model.each(f"total{number}", "Add", total, part) if total else part
    return model.reshape("total.rows", total, groups * tokens, width)


def _capacity_form(model: Forward, x: str, gates: str, taken: str, sizes: Sizes) -> str:
    groups, tokens, width, count = sizes.groups, sizes.tokens, sizes.width, sizes.experts.count
    places = model.shape(taken)[-1]
    samples = model.reshape("samples", x, groups, tokens, width)
    seats = (groups, tokens, count * places)
    to = model.transpose("to", model.reshape("seats", taken, *seats), 0, 2, 1)
    given = model.op("dispatch", "MatMul", [to, samples], (groups, count * places, width))
    given = model.reshape("given", given, groups, count, places, width)
    given = model.reshape("queues", model.transpose("by_expert", given, 1, 0, 2, 3), count, groups * places, width)
    made = _experts(model, given, sizes)
    made = model.transpose("by_group", model.reshape("made", made, count, groups, places, width), 1, 0, 2, 3)
    made = model.reshape("back", made, groups, count * places, width)
    weights = model.reshape("from", model.each("weights", "Mul", taken, gates), *seats)
    mixed = model.op("combine", "MatMul", [weights, made], (groups, tokens, width))
    return model.reshape("total.rows", mixed, groups * tokens, width)
