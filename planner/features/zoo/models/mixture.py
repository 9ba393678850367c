"""Mixtral: a decoder whose inner layers are mixtures of experts, with the routing of GShard."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from planner.features.zoo.models.forward import Forward
from planner.features.zoo.models.llama import DecoderShape, decoder
from planner.features.zoo.models.network import Network
from planner.graph.core.model import DType


@dataclass(frozen=True, slots=True)
class Experts:
    """The routing of tokens to experts."""

    count: int
    chosen: int
    """Experts of a token."""
    capacity_factor: float
    """How many tokens an expert takes of a sample, as a multiple of an even share."""

    def capacity(self, tokens: int) -> int:
        """Places of each expert for the tokens of one sample."""
        return max(1, min(tokens, round(tokens * self.chosen * self.capacity_factor / self.count)))


MIXTRAL: Final = DecoderShape(32, 4096, 14336, 32, 8, 32000, 1e6, 4096)
MIXTRAL_EXPERTS: Final = Experts(8, 2, 1.25)
"""Jiang et al. 2024, table 1; the capacity is that of Switch Transformers (Fedus et al. 2022, table 1)."""


def mixture(name: str, shape: DecoderShape, experts: Experts, *, batch: int) -> Network:
    """Mixtral 8x7B (Jiang et al. 2024): each token goes to the two experts of the highest probability.

    The published model drops no token, and so has shapes that depend on its data. Here each expert has a fixed number
    of places for the tokens of a sample, and who finds none passes by on the residual alone (Lepikhin et al. 2021,
    GShard, section 2.2 and algorithm 1). Experts are a dim of the tensors between the products that hand tokens out and
    take them back: where samples are divided before and experts after, the delivery between is an all-to-all. The loss
    is the language model's alone, without the one that balances the experts.

    Args:
        name: of the graph.
        shape: its sizes.
        experts: how many, and how tokens find them.
        batch: samples.
    """

    def inner(model: Forward, layer: str, x: str) -> str:
        rows, width = model.shape(x)
        gates, dispatch = routed(model, f"{layer}.router", x, experts, batch)
        _, tokens, count, places = model.shape(dispatch)
        seats = (batch, tokens, count * places)
        to = model.transpose(f"{layer}.to", model.reshape(f"{layer}.seats", dispatch, *seats), 0, 2, 1)
        samples = model.reshape(f"{layer}.samples", x, batch, tokens, width)
        queues = model.op(f"{layer}.dispatch", "MatMul", [to, samples], (batch, count * places, width))
        queues = model.reshape(f"{layer}.given", queues, batch, count, places, width)
        queues = model.transpose(f"{layer}.by_expert", queues, 1, 0, 2, 3)
        queues = model.reshape(f"{layer}.queues", queues, count, batch * places, width)
        outputs = _expert(model, f"{layer}.expert", queues, shape.inner)
        outputs = model.reshape(f"{layer}.made", outputs, count, batch, places, width)
        outputs = model.transpose(f"{layer}.by_sample", outputs, 1, 0, 2, 3)
        outputs = model.reshape(f"{layer}.back", outputs, batch, count * places, width)
        weights = model.reshape(f"{layer}.from", model.each(f"{layer}.weights", "Mul", dispatch, gates), *seats)
        mixed = model.op(f"{layer}.combine", "MatMul", [weights, outputs], (batch, tokens, width))
        return model.reshape(f"{layer}.rows", mixed, rows, width)

    return decoder(name, shape, inner, batch=batch)


def _expert(model: Forward, layer: str, x: str, inner: int) -> str:
    """SwiGLU of every expert on its places, [experts, batch * places, width]."""

    def product(name: str, operand: str, columns: int) -> str:
        count, rows, features = model.shape(operand)
        weight = model.parameter(f"{layer}.{name}.weight", count, features, columns)
        return model.op(f"{layer}.{name}", "MatMul", [operand, weight], (count, rows, columns))

    gate = model.silu(layer, product("gate", x, inner))
    return product("down", model.each(f"{layer}.gated", "Mul", gate, product("up", x, inner)), model.shape(x)[-1])


def routed(model: Forward, layer: str, x: str, experts: Experts, batch: int) -> tuple[str, str]:
    """Of each token the weight of each expert, [batch, tokens, experts, 1]; and who has which place, by ones.

    The second, [batch, tokens, experts, places], has no gradient: tokens are sent by it whole. Places are given in the
    order of the tokens, to first choices before second ones.
    """
    tokens, count, picks = model.shape(x)[0] // batch, experts.count, experts.chosen
    probabilities = model.op(
        f"{layer}.softmax", "Softmax", [model.project(layer, x, count)], (batch * tokens, count), axis=-1
    )
    picked = [probabilities, model.known("experts.chosen", np.array([picks], np.int64))]
    shapes, dtypes = [(batch * tokens, picks)] * 2, [DType.FLOAT32, DType.INT64]
    _, best = model.ops(f"{layer}.best", "TopK", picked, shapes, dtypes=dtypes, axis=-1)
    best = model.reshape(f"{layer}.picks", best, batch, tokens, picks, 1)
    numbers = model.known("experts.numbers", np.arange(count, dtype=np.int64))
    is_chosen = model.each(f"{layer}.is_chosen", "Equal", best, numbers, dtype=DType.BOOL)
    place = _places(model, layer, is_chosen)
    seats = model.known("experts.places", np.arange(experts.capacity(tokens), dtype=np.int64))
    has_place = model.each(f"{layer}.has_place", "Equal", place, seats, dtype=DType.BOOL)
    chosen, placed = model.cast(f"{layer}.chosen", is_chosen, _FLOAT), model.cast(f"{layer}.placed", has_place, _FLOAT)
    shape = (batch, tokens, count, experts.capacity(tokens))
    turned = model.transpose(f"{layer}.by_expert", chosen, 0, 1, 3, 2)
    dispatch = model.op(f"{layer}.taken", "MatMul", [turned, placed], shape)
    by_sample = model.reshape(f"{layer}.probabilities", probabilities, batch, tokens, 1, count)
    shares = model.each(f"{layer}.own", "Mul", by_sample, model.sum(f"{layer}.mask", chosen, 2))
    gates = model.each(f"{layer}.gates", "Div", shares, model.sum(f"{layer}.total", shares, 3))
    return model.reshape(f"{layer}.weights", gates, batch, tokens, count, 1), dispatch


_FLOAT = DType.FLOAT32


def _places(model: Forward, layer: str, is_chosen: str) -> str:
    """Of each choice how many came before it to the same expert: [batch, tokens, choices, 1], in whole numbers."""
    batch, tokens, picks, count = model.shape(is_chosen)
    choices = model.transpose(f"{layer}.turned", model.cast(f"{layer}.counted", is_chosen, DType.INT64), 0, 2, 1, 3)
    queue = model.reshape(f"{layer}.queue", choices, batch, picks * tokens, count)
    axis = model.known("experts.queue", np.array(1, np.int64))
    before = model.op(f"{layer}.before", "CumSum", [queue, axis], model.shape(queue), dtype=DType.INT64, exclusive=1)
    mine = model.each(f"{layer}.mine", "Mul", before, queue, dtype=DType.INT64)
    place = model.sum(f"{layer}.place", mine, 2, dtype=DType.INT64)
    place = model.reshape(f"{layer}.by_choice", place, batch, picks, tokens, 1)
    return model.transpose(f"{layer}.by_token", place, 0, 2, 1, 3)
