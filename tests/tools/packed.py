"""Networks with several weights in one matrix, in each form that exporters write, and the same with weights apart."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from planner.algebra.region import Region
from planner.features.zoo.models.forward import Forward
from planner.features.zoo.models.step import training_step
from planner.graph.core.builder import Builder
from planner.graph.core.model import Graph
from planner.graph.rewriting.packing import InParts

FORMS = ("Split", "Slice", "parts outermost", "experts", "nested", "turned")
CONVOLVED = "convolved"
"""A depthwise convolution over the rows between the product and the Split, as in Mamba; in one matrix alone."""
_ROWS, _WIDTH, _PART = 16, 24, 48


def step(form: str, *, is_packed: bool, optimizer: str = "sgd", has_bias: bool = False, layers: int = 2) -> Graph:
    """The training step of a network of packed layers, or of the same layers with weights apart.

    Args:
        form: one of ``FORMS``, or ``CONVOLVED``: how parts are taken from the product.
        is_packed: the weights lie in one matrix.
        optimizer: of the step.
        has_bias: something is added to the products, packed as they are.
        layers: how many, at most two.
    """
    model = Forward(f"packed by {form}" if is_packed else f"apart, as by {form}")
    x = model.input("x", _ROWS, _WIDTH)
    for layer in ("first", "second")[:layers]:
        sizes = (2 * _PART, _PART, _PART) if form in ("Slice", "nested") else (_PART, _PART, _PART)
        if form == "experts":
            q, k, v = _experts(model, layer, x, is_packed=is_packed)
        elif is_packed:
            product = _product(model, layer, x, sum(sizes), form, has_bias=has_bias)
            q, k, v = _taken(model, layer, product, sizes, form)
        else:
            q, k, v = (model.project(f"{layer}.{n}", x, size, bias=has_bias) for n, size in enumerate(sizes))
        x = _layer(model, layer, q, k, v)
    return training_step(model, x, loss="mse", optimizer=optimizer)


def _product(model: Forward, layer: str, x: str, size: int, form: str, *, has_bias: bool) -> str:
    """Turned, as PyTorch's exporter writes a Linear: a Transpose, a MatMul, and an Add."""
    if form != "turned":
        return model.project(layer, x, size, bias=has_bias)
    weight = model.transpose(f"{layer}.turn", model.parameter(f"{layer}.weight", size, _WIDTH), 1, 0)
    y = model.op(f"{layer}.product", "MatMul", [x, weight], (_ROWS, size))
    return model.each(f"{layer}.biased", "Add", y, model.parameter(f"{layer}.bias", size)) if has_bias else y


def _taken(model: Forward, layer: str, product: str, sizes: Sequence[int], form: str) -> Sequence[str]:
    rows, wide = model.shape(product)
    if form == CONVOLVED:
        planes = model.transpose(f"{layer}.planes", model.reshape(f"{layer}.one", product, 1, rows, wide), 0, 2, 1)
        operands = [planes, model.parameter(f"{layer}.kernel", wide, 1, 3), model.parameter(f"{layer}.shift", wide)]
        made = model.op(f"{layer}.conv", "Conv", operands, model.shape(planes), group=wide, pads=(1, 1))
        back = model.transpose(f"{layer}.turned", made, 0, 2, 1)
        return model.parted(f"{layer}.split", model.reshape(f"{layer}.flat", back, rows, wide), sizes, axis=1)
    if form in ("Split", "turned"):
        return model.parted(f"{layer}.split", product, sizes, axis=1)
    if form == "nested":
        q, both = model.parted(f"{layer}.split", product, (sizes[0], sum(sizes[1:])), axis=1)
        return q, *model.parted(f"{layer}.again", both, sizes[1:], axis=1)
    if form == "Slice":
        ends = np.cumsum([0, *sizes])
        axis = model.known("one", np.array([1], np.int64))
        return [
            model.op(
                f"{layer}.slice{n}",
                "Slice",
                [product, *(model.known(f"end.{end}", np.array([end], np.int64)) for end in ends[n : n + 2]), axis],
                (rows, size),
            )
            for n, size in enumerate(sizes)
        ]
    apart = model.reshape(f"{layer}.parts", product, rows, len(sizes), sizes[0])
    outer = model.transpose(f"{layer}.outer", apart, 1, 0, 2)
    return [
        model.op(f"{layer}.part{n}", "Gather", [outer, model.known(f"number.{n}", np.array(n))], (rows, size), axis=0)
        for n, size in enumerate(sizes)
    ]


def _experts(model: Forward, layer: str, x: str, *, is_packed: bool) -> Sequence[str]:
    """Three products with each of two stacked matrices."""
    experts = 2
    wide = model.op(f"{layer}.wide", "Expand", [x, model.known("shape.wide", np.array([experts, _ROWS, _WIDTH]))],
                    (experts, _ROWS, _WIDTH))  # fmt: skip
    made = []
    for name, size in [("", 3 * _PART)] if is_packed else [(f".{n}", _PART) for n in range(3)]:
        weight = model.parameter(f"{layer}{name}.weight", experts, _WIDTH, size)
        made.append(model.op(f"{layer}{name}", "MatMul", [wide, weight], (experts, _ROWS, size)))
    parts = model.split(f"{layer}.split", made[0], 3) if is_packed else made
    return [
        model.reshape(f"{layer}.rows{n}", model.sum(f"{layer}.sum{n}", part, 0), _ROWS, _PART)
        for n, part in enumerate(parts)
    ]


def _layer(model: Forward, layer: str, q: str, k: str, v: str) -> str:
    """sigmoid(q) k + v for each group of q as wide as k and v, and a product that leads back to the width."""
    rows, width = model.shape(q)
    groups = (rows, width // _PART, _PART)
    q, k, v = (
        model.reshape(f"{layer}.groups{n}", one, rows, model.shape(one)[1] // _PART, _PART)
        for n, one in enumerate((q, k, v))
    )
    gated = model.each(f"{layer}.gated", "Mul", model.each(f"{layer}.gate", "Sigmoid", q), k)
    y = model.each(f"{layer}.add", "Add", gated, v)
    assert model.shape(y) == groups
    return model.project(f"{layer}.down", model.reshape(f"{layer}.back", y, rows, width), _WIDTH)


def with_wholes(graph: Graph, model: Graph, in_parts: InParts) -> Graph:
    """A graph by parts that takes and makes wholes: it cuts its inputs apart, and puts its outputs together.

    Args:
        graph: by parts.
        model: of which it was made.
        in_parts: of the graph.
    """
    ends = replace(graph, inputs=model.inputs, outputs=model.outputs, initial=model.initial, state=model.state)
    emit = Builder(replace(ends, tensors={**model.tensors, **graph.tensors}))
    emit.tensors.update(graph.tensors)
    for name in filter(in_parts.__contains__, model.inputs):
        for part, box in in_parts[name].items():
            emit.define(part, emit.slice(name, box.lo, box.hi))
    for op in graph.ops:
        emit.replay(op)
    for name in filter(in_parts.__contains__, model.outputs):
        emit.define(name, _joined(emit, in_parts[name]))
    return replace(emit.rewritten(), domains=graph.domains)


def _joined(emit: Builder, boxes: Mapping[str, Region]) -> str:
    """Boxes beside each other along one dim, as one."""
    (axis,) = {dim for box in boxes.values() for dim, at in enumerate(box.lo) if at}
    return emit.concat(list(boxes), axis)
