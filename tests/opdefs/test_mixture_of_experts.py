"""ONNX Runtime's mixture of experts: where there are few tokens, each worker has some experts."""

from __future__ import annotations

import pytest

from planner import opdefs
from planner.errors import UnsupportedError
from planner.graph.core.model import Attribute, DType, Graph, Op, Tensor
from planner.search.decide import decide
from planner.search.request import SearchRequest

STANDARD = opdefs.standard()


def mixture(tokens: int, *, gated: bool = False, **attributes: Attribute) -> Graph:
    shapes = {
        "x": (tokens, 64), "router": (tokens, 8), "w1": (8, 256, 64), "b1": (8, 256), "w2": (8, 64, 256), "b2": (8, 64),
        "y": (tokens, 64),
    }  # fmt: skip
    inputs = ["x", "router", "w1", "b1", "w2", "b2"]
    if gated:
        shapes["w3"] = (8, 256, 64)
        inputs.append("w3")
    stated = tuple(sorted({"k": 2, **attributes}.items()))
    op = Op("experts", "MoE", tuple(inputs), ("y",), stated, "com.microsoft")
    tensors = {name: Tensor(name, shape, DType.FLOAT32) for name, shape in shapes.items()}
    return Graph("mixture", tensors, (op,), tuple(inputs), ("y",), {}, opset=21)


def test_few_tokens_go_to_all_workers_and_each_has_some_experts() -> None:
    graph = mixture(1)
    plan = decide(graph, STANDARD.bind_all(graph), SearchRequest(8))
    assert {str(plan.tilings[name]) for name in ("w1", "b1", "w2", "b2")} == {"S(0)/2 S(0)/2 S(0)/2"}
    assert set(str(plan.strategies["experts"]).split()) == {"e/2"}
    assert 0 < plan.moved_bytes <= 2 * 7 * 64 * 4, "what each has of the token is added"


def test_many_tokens_are_divided() -> None:
    graph = mixture(4096)
    plan = decide(graph, STANDARD.bind_all(graph), SearchRequest(2))
    assert str(plan.tilings["y"]) == "S(0)/2"
    assert plan.moved_bytes == 0


@pytest.mark.parametrize(
    ("graph", "what"),
    [
        (mixture(4, gated=True), "a third product"),
        (mixture(4, use_sparse_mixer=1), "the sparse mixer's routing"),
        (mixture(4, activation_type="swiglu"), "gates that are not between"),
    ],
    ids=["fc3", "sparse", "swiglu"],
)
def test_forms_that_gpus_alone_have_are_refused(graph: Graph, what: str) -> None:
    with pytest.raises(UnsupportedError, match=what):
        STANDARD.bind_all(graph)
