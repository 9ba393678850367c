"""Attention cut along its keys: partial maxima, sums and weighted sums are joined, and nothing else moves."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from attentions import DRAWN, graph_of
from fast_suite import chosen
from planner import api, opdefs
from planner.artifacts.worker_model import WorkerModel
from planner.features.zoo import models as zoo
from planner.graph.core.check import check_graph
from planner.graph.core.model import DType, Graph, Op, Tensor
from planner.graph.decompositions import expand
from planner.graph.files.to_onnx import write_model
from planner.graph.rewriting.canonical import canonical
from planner.partition.build import partition
from planner.planning.bodies import decide_with_bodies
from planner.runtime.judge.whole import WholeModel
from planner.runtime.plan_files import LoadedPlan
from planner.search.decide import decide
from planner.search.decision import Decision
from planner.search.request import SearchRequest
from planner.search.user_rules.rules import Rules
from planner.training.doors.read import read_step
from run_plan import run_plan

STANDARD = opdefs.standard()
WIDTH = 128
"""Elements of a head."""
FLOAT = DType.FLOAT32


def of_shapes(shapes: Mapping[str, tuple[int, ...]], ops: tuple[Op, ...], known: Mapping[str, np.ndarray]) -> Graph:
    made = {name for op in ops for name in op.outputs}
    read = {name for op in ops for name in op.inputs}
    tensors = {name: Tensor(name, shape, FLOAT) for name, shape in shapes.items()}
    tensors |= {name: Tensor(name, value.shape, DType(value.dtype.name)) for name, value in known.items()}
    given = tuple(name for name in shapes if name not in made)
    results = tuple(name for name in shapes if name in made - read)
    return Graph("one", tensors, ops, given, results, dict(known), frozenset(known), opset=23)


def decode(keys: int, heads: int, own: int) -> Graph:
    """One query of each head, and as many keys and values."""
    shapes = {
        "q": (1, heads, 1, WIDTH),
        "k": (1, own, keys, WIDTH),
        "v": (1, own, keys, WIDTH),
        "y": (1, heads, 1, WIDTH),
    }
    return of_shapes(shapes, (Op("attention", "Attention", ("q", "k", "v"), ("y",)),), {})


def spelled(keys: int, heads: int, own: int, queries: int = 1) -> Graph:
    """The same in a product, a scale, a softmax and a product; of so many queries."""
    rows = heads // own * queries
    scores = (1, own, rows, keys)
    shapes = {
        "q": (1, own, rows, WIDTH), "k": (1, own, WIDTH, keys), "v": (1, own, keys, WIDTH),
        "scores": scores, "scaled": scores, "weights": scores, "y": (1, own, rows, WIDTH),
    }  # fmt: skip
    ops = (
        Op("scores.op", "MatMul", ("q", "k"), ("scores",)),
        Op("scaled.op", "Mul", ("scores", "factor"), ("scaled",)),
        Op("weights.op", "Softmax", ("scaled",), ("weights",), (("axis", -1),)),
        Op("y.op", "MatMul", ("weights", "v"), ("y",)),
    )
    return of_shapes(shapes, ops, {"factor": np.array(WIDTH**-0.5, np.float32)})


def cached_step(rows: int, heads: int, own: int) -> Graph:
    """A decoder's step of one sample with a cache that has room."""
    of_keys, cache = (1, 1, own * WIDTH), (1, own, rows, WIDTH)
    shapes = {
        "q": (1, 1, heads * WIDTH), "k": of_keys, "v": of_keys, "past_key": cache, "past_value": cache,
        "y": (1, 1, heads * WIDTH), "key": cache, "value": cache,
    }  # fmt: skip
    inputs = ("q", "k", "v", "past_key", "past_value", "lengths", "total")
    stated = (("kv_num_heads", own), ("num_heads", heads))
    op = Op("attention", "GroupQueryAttention", inputs, ("y", "key", "value"), stated, "com.microsoft")
    known = {"lengths": np.array([rows - 1], np.int32), "total": np.array(rows, np.int32)}
    return of_shapes(shapes, (op,), known)


def most_joined(workers: int, heads: int) -> int:
    """Bytes of all-reduces of a maximum, a sum and a weighted sum of each head."""
    return (workers - 1) * heads * (WIDTH + 2) * 4 * 2


def test_one_query_of_many_keys_costs_the_same_in_both_spellings() -> None:
    costs = {}
    for graph in (decode(131_072, 16, 2), spelled(131_072, 16, 2)):
        found = decide_with_bodies(graph, STANDARD, SearchRequest(8))
        assert found.moved_bytes <= most_joined(8, 16)
        assert partition(found.graph, found.ops, found).program.predicted_bytes == found.moved_bytes
        assert found.excess_bytes < 0.05 * 2 * 131_072 * 2 * WIDTH * 4 / 8
        costs[graph.ops[0].op_type] = found.moved_bytes
    assert costs["Attention"] <= 1.05 * costs["MatMul"]
    assert costs["MatMul"] <= 1.05 * costs["Attention"]


@pytest.mark.parametrize("workers", chosen([2, 4, 8], fast=[4]))
def test_a_step_with_a_cache_moves_no_more_than_what_is_joined(workers: int) -> None:
    found = decide_with_bodies(cached_step(32_768, 8, 2), STANDARD, SearchRequest(workers))
    assert found.moved_bytes <= most_joined(workers, 8)
    assert found.excess_bytes < 0.05 * 2 * 32_768 * 2 * WIDTH * 4 / 8, "both caches are read"


@pytest.mark.parametrize(
    "graph", [decode(8192, 8, 2), spelled(8192, 8, 2), cached_step(8192, 8, 2)], ids=["op", "spelled", "cache"]
)
def test_context_parallelism_joins_all_keys_and_costs_no_less(graph: Graph) -> None:
    """Every worker has some keys of all heads: what is joined is the formula's, to the byte."""
    context, found = (
        decide_with_bodies(graph, STANDARD, SearchRequest(4, strategy=strategy)) for strategy in ("context", "tofu")
    )
    assert context.moved_bytes == most_joined(4, 8)
    assert str(context.tilings["v" if "past_value" not in graph.tensors else "past_value"]) == "S(2)/2 S(2)/2"
    assert found.cost <= context.cost
    assert partition(context.graph, context.ops, context).program.predicted_bytes == context.moved_bytes


def test_context_parallelism_of_a_network_in_its_canonical_form() -> None:
    """The product with the values is an Einsum there; weights everybody has."""
    graph = canonical(zoo.build("gpt-1x64-4h", batch=2)).graph
    found = decide_with_bodies(graph, STANDARD, SearchRequest(2, strategy="context"))
    assert {str(found.tilings[name]) for name in graph.inputs if name.endswith(".qkv.weight")} == {"R/2"}
    assert "S(2)/2" in {str(tiling) for name, tiling in found.tilings.items() if "attention" in name}


def cut_along_keys(graph: Graph, workers: int) -> Decision | None:
    """A plan in which every worker has some keys of an op's; None where there are fewer of them."""
    expanded = expand(graph)
    check_graph(expanded.graph)
    assert [body.op.name for body in expanded.bodies] == ["attention"]
    *_, keys = shape = expanded.graph.tensors["attention/exp"].shape
    if keys < workers:
        return None
    pins = Rules({f"attention/{part}": f"S({len(shape) - 1})" for part in ("exp", "shifted")})
    request = SearchRequest(workers, effort="quick", rules=pins)
    return decide(expanded.graph, STANDARD.bind_all(expanded.graph), request)


def results_of(decided: Decision, values: Mapping[str, np.ndarray]) -> Mapping[str, np.ndarray]:
    """What a plan makes, run in this process; moves what is predicted."""
    made = partition(decided.graph, decided.ops, decided)
    assert made.program.predicted_bytes == decided.moved_bytes
    models = tuple(
        WorkerModel(worker, made.bodies, fixed, "")
        for worker, fixed in zip(made.program.workers, made.fixed, strict=True)
    )
    ran = run_plan(LoadedPlan(decided.graph, made.program, models), inputs=values)
    assert ran.moved_bytes == decided.moved_bytes
    return ran.results


def assert_near(wanted: Mapping[str, np.ndarray], found: Mapping[str, np.ndarray], about: str) -> None:
    for name, whole in wanted.items():
        most = 5e-6 if whole.dtype == np.float32 else 8e-3
        atol = most * max(1.0, float(np.abs(whole).max()))
        np.testing.assert_allclose(found[name].astype(float), whole.astype(float), rtol=0, atol=atol, err_msg=about)


def held_to_the_kernel(op_type: str, seeds: range) -> int:
    """How many ops, of those drawn by these seeds, were cut along keys and gave what the runtime's kernel gives."""
    cut = 0
    for seed in seeds:
        random = np.random.default_rng(seed)
        graph, values = DRAWN[op_type](random)
        decided = cut_along_keys(graph, int(random.choice([2, 3, 4, 6])))
        if decided is not None:
            assert_near(WholeModel(graph).step(values), results_of(decided, values), f"{op_type}, seed {seed}")
            cut += 1
    return cut


@pytest.mark.parametrize(("op_type", "cut"), [("Attention", 2), ("MultiHeadAttention", 2), ("GroupQueryAttention", 1)])
def test_some_attentions_cut_along_keys_are_the_kernel(op_type: str, cut: int) -> None:
    assert held_to_the_kernel(op_type, range(3)) >= cut


@pytest.mark.slow
@pytest.mark.parametrize(
    ("op_type", "cut"), [("Attention", 20), ("MultiHeadAttention", 20), ("GroupQueryAttention", 20)]
)
def test_a_hundred_and_twenty_attentions_cut_along_keys_are_the_kernel(op_type: str, cut: int) -> None:
    assert held_to_the_kernel(op_type, range(100, 140)) >= cut


def test_a_body_is_the_kernel_uncut() -> None:
    held = 0
    for op_type, draw in DRAWN.items():
        for seed in range(20, 26):
            graph, values = draw(np.random.default_rng(seed))
            expanded = expand(graph)
            assert expanded.bodies
            assert_near(WholeModel(graph).step(values), WholeModel(expanded.graph).step(values), f"{op_type} {seed}")
            held += 1
    assert held == 18


def test_a_mask_that_ends_before_the_keys_hides_the_rest() -> None:
    normal = np.random.default_rng(0).normal
    q, k, v = (normal(size=(1, 2, many, 4)).astype(np.float32) for many in (3, 6, 6))
    given = {"q": q, "k": k, "v": v, "mask": np.zeros((3, 4), np.float32)}
    graph, values = graph_of("Attention", given, {"y": q.shape}, {})
    shorter, fewer = graph_of("Attention", {**given, "k": k[:, :, :4], "v": v[:, :, :4]}, {"y": q.shape}, {})
    assert_near(WholeModel(shorter).step(fewer), WholeModel(expand(graph).graph).step(values), "short")


def test_a_window_hides_keys_that_are_far() -> None:
    normal = np.random.default_rng(0).normal
    q, k, v = (normal(size=(1, 2, 5, 4)).astype(np.float32) for _ in range(3))
    graph, values = graph_of(
        "Attention", {"q": q, "k": k, "v": v}, {"y": q.shape}, {"left_window_size": 1, "right_window_size": 0}
    )
    distance = np.arange(5)[:, None] - np.arange(5)
    seen = (distance >= 0) & (distance <= 1)
    masked, given = graph_of("Attention", {"q": q, "k": k, "v": v, "mask": seen}, {"y": q.shape}, {})
    assert_near(WholeModel(masked).step(given), WholeModel(expand(graph).graph).step(values), "window")


@pytest.mark.parametrize(
    ("inputs", "outputs", "stated"),
    [
        ({}, {"y": (1, 2, 1, 4), "": (), "scores": (1, 2, 1, 5)}, {}),
        ({"mask": None, "past_key": (1, 2, 3, 4), "past_value": (1, 2, 3, 4)}, {"y": (1, 2, 1, 4)}, {"is_causal": 1}),
    ],
    ids=["scores", "one causal query"],
)
def test_forms_without_a_body(
    inputs: dict[str, tuple[int, ...] | None], outputs: dict[str, tuple[int, ...]], stated: dict[str, int]
) -> None:
    shapes = {"q": (1, 2, 1, 4), "k": (1, 2, 5, 4), "v": (1, 2, 5, 4), **inputs}
    given = {name: None if shape is None else np.zeros(shape, np.float32) for name, shape in shapes.items()}
    graph, _ = graph_of("Attention", given, outputs, stated)
    if "scores" in outputs:
        (op,) = graph.ops
        renamed = Op(op.name, op.op_type, op.inputs, ("y", "", "", "scores"), op.attributes)
        graph = Graph(graph.name, graph.tensors, (renamed,), graph.inputs, ("y", "scores"), {}, opset=24)
    assert expand(graph).bodies == ()


def trained(path: Path, keys: int) -> Path:
    """Four queries of two heads and as many keys of one, with products before and behind."""
    random, width = np.random.default_rng(0), 8
    shapes = {"wq": (width, width), "wk": (width, 4), "wv": (width, 4), "wo": (width, width)}
    weights = {name: (random.normal(size=shape) / shape[0] ** 0.5).astype(np.float32) for name, shape in shapes.items()}
    nodes = [
        helper.make_node("MatMul", ["x", "wq"], ["q"]),
        helper.make_node("MatMul", ["memory", "wk"], ["k"]),
        helper.make_node("MatMul", ["memory", "wv"], ["v"]),
        helper.make_node("Attention", ["q", "k", "v"], ["a"], "attention", q_num_heads=2, kv_num_heads=1),
        helper.make_node("MatMul", ["a", "wo"], ["y"]),
    ]
    value = helper.make_tensor_value_info
    graph = helper.make_graph(
        nodes, "trained",
        [value("x", TensorProto.FLOAT, [1, 4, width]), value("memory", TensorProto.FLOAT, [1, keys, width])],
        [value("y", TensorProto.FLOAT, [1, 4, width])],
        [numpy_helper.from_array(array, name) for name, array in weights.items()],
    )  # fmt: skip
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 23)], ir_version=10), path)
    return path


def loss_of(weights: Mapping[str, np.ndarray], given: Mapping[str, np.ndarray]) -> float:
    """The mean squared error, in float64."""
    q, k, v = (given[name] @ weights[weight] for name, weight in (("x", "wq"), ("memory", "wk"), ("memory", "wv")))
    scores = q.reshape(1, 4, 2, 4).transpose(0, 2, 1, 3) @ k[:, None].swapaxes(-1, -2) / 2
    raised = np.exp(scores)
    attended = (raised / raised.sum(axis=-1, keepdims=True) @ v[:, None]).transpose(0, 2, 1, 3).reshape(1, 4, 8)
    return float(((attended @ weights["wo"] - given["target"]) ** 2).mean())


def by_hand(name: str, path: Path) -> tuple[Graph, dict[str, dict[str, str]]]:
    """A graph, and pins by what somebody would write down for it; with two cuts of two where they name ways."""
    if name == "op":
        mixed = {"q": "S(1)", "k": "S(1)/2 S(2)/2", "v": "S(1)/2 S(2)/2"}
        heads = {"q": "S(1)", "k": "S(1)/2 R/2", "v": "S(1)/2 R/2", "y": "S(1)"}
        return decode(1024, 8, 2), {"keys": {"k": "S(2)", "v": "S(2)"}, "mixed": mixed, "heads": heads}
    if name == "spelled":
        mixed = {"k": "S(1)/2 S(3)/2", "v": "S(1)/2 S(2)/2"}
        queries = {"q": "S(2)", "y": "S(2)"}
        return spelled(1024, 8, 2), {"keys": {"k": "S(3)", "v": "S(2)"}, "mixed": mixed, "queries": queries}
    if name == "cache":
        caches = ("past_key", "past_value", "key", "value")
        tilings = {"keys": "S(2)", "mixed": "S(1)/2 S(2)/2", "heads": "S(1)/2 R/2"}
        return cached_step(1024, 8, 2), {how: dict.fromkeys(caches, tiling) for how, tiling in tilings.items()}
    api.grad(trained(path / "m.onnx", 64), loss="mse", optimizer="sgd", output=path / "step.onnx")
    return canonical(read_step(path / "step.onnx")).graph, {
        "keys": {"memory": "S(1)", "k": "S(1)", "v": "S(1)"},
        "queries": {"x": "S(1)", "target": "S(1)", "q": "S(1)"},
        "heads": {"wq": "S(1)/2 R/2", "wo": "S(0)/2 R/2"},
        "mixed": {"wq": "S(1)/2 R/2", "wo": "S(0)/2 R/2", "memory": "R/2 S(1)/2"},
    }


@pytest.mark.parametrize(
    ("name", "workers"),
    [
        pytest.param(name, workers, marks=() if (name, workers) == ("spelled", 4) else pytest.mark.slow)
        for name in ("op", "spelled", "cache", "training")
        for workers in (3, 4)
    ],
)
def test_no_plan_by_hand_costs_less(name: str, workers: int, tmp_path: Path) -> None:
    graph, plans = by_hand(name, tmp_path)
    found = decide_with_bodies(graph, STANDARD, SearchRequest(workers, effort="quick"))
    held = 0
    for how, pins in plans.items():
        if workers == 4 or not any("/" in tiling for tiling in pins.values()):
            ask = SearchRequest(workers, effort="quick", rules=Rules(pins))
            assert found.cost <= decide_with_bodies(graph, STANDARD, ask).cost, how
            held += 1
    assert held >= (3 if workers == 4 else 1)


@pytest.mark.slow
def test_gradients_along_keys_are_differences_and_the_uncut_step_s(tmp_path: Path) -> None:
    file, step = trained(tmp_path / "m.onnx", 64), tmp_path / "m.train.onnx"
    api.grad(file, loss="mse", optimizer="sgd", lr=1.0, output=step)
    planned = api.plan(step, gpus=3, out=tmp_path / "plan", pin={"memory": "S(1)"})
    assert {str(planned.plan.tilings[name]) for name in ("k", "v")} == {"S(1)/3"}
    assert str(planned.plan.tilings["attention.softmax"]) == "S(3)/3"
    random = np.random.default_rng(3)
    given = {"x": (1, 4, 8), "memory": (1, 64, 8), "target": (1, 4, 8)}
    data = {name: random.normal(size=shape).astype(np.float32) for name, shape in given.items()}
    np.savez(tmp_path / "data.npz", **data)
    ran = api.run(tmp_path / "plan", inputs=tmp_path / "data.npz", verify=True, result=tmp_path / "made.npz")
    assert ran.verified, ran.comparisons
    assert ran.moved_bytes == ran.predicted_bytes
    made = np.load(tmp_path / "made.npz")
    before = {one.name: numpy_helper.to_array(one).astype(float) for one in onnx.load(file).graph.initializer}
    exact = {name: array.astype(float) for name, array in data.items()}
    for name, weight in before.items():
        direction = random.normal(size=weight.shape)
        near = [loss_of({**before, name: weight + pace * direction}, exact) for pace in (1e-5, -1e-5)]
        found = float(((weight - made[f"{name}.next"]) * direction).sum())
        assert found == pytest.approx((near[0] - near[1]) / 2e-5, rel=2e-4, abs=1e-6), name
    assert len(before) == 4


@pytest.mark.parametrize("workers", chosen([2, 3, 8], fast=[3]))
def test_a_step_with_a_long_cache_is_verified(workers: int, tmp_path: Path) -> None:
    write_model(cached_step(1024, 4, 1), tmp_path / "m.onnx")
    planned = api.plan(tmp_path / "m.onnx", gpus=workers, out=tmp_path / "plan", effort="quick")
    assert "attention" not in planned.plan.strategies
    assert {str(planned.plan.tilings[name]).split("/")[0] for name in ("past_key", "past_value", "key", "value")} == {
        "S(2)"
    }
    ran = api.run(tmp_path / "plan", verify=True)
    assert ran.verified, ran.comparisons
    assert ran.moved_bytes == ran.predicted_bytes == planned.plan.moved_bytes <= most_joined(workers, 4)


@pytest.mark.slow
@pytest.mark.parametrize("workers", [3, 4])
def test_keys_and_values_go_around_in_steps(workers: int, tmp_path: Path) -> None:
    """Each worker has some queries and some keys: both products in steps along keys are a ring, and move no more."""
    write_model(spelled(512, 1, 1, queries=512), tmp_path / "m.onnx")
    pins = {"q": "S(2)", "k": "S(3)", "v": "S(2)", "y": "S(2)", "scores": "S(2)", "weights": "S(2)"}
    whole, stepped = (
        api.plan(
            tmp_path / "m.onnx", gpus=workers, effort="quick", pin=pins, inputs="partitioned", op_schedule=how,
            out=tmp_path / how,
        ).plan
        for how in ("whole", "stepped")
    )  # fmt: skip
    assert whole.moved_bytes == stepped.moved_bytes == 2 * (workers - 1) * 512 * WIDTH * 4
    steps = {name: strategy.steps for name, strategy in stepped.strategies.items() if strategy.steps is not None}
    keys = {name: stepped.strategies[name].variables[one.variable] for name, one in steps.items()}
    assert keys == {"scores.op": "n", "y.op": "k"}
    assert {one.count for one in steps.values()} == {workers}
    ran = api.run(tmp_path / "stepped", verify=True)
    assert ran.verified, ran.comparisons
    assert ran.moved_bytes == ran.predicted_bytes == stepped.moved_bytes


@pytest.mark.slow
def test_decoding_of_many_keys_moves_what_is_predicted() -> None:
    graph = decode(131_072, 8, 2)
    decided = decide_with_bodies(graph, STANDARD, SearchRequest(8))
    normal = np.random.default_rng(0).standard_normal
    values = {name: normal(graph.tensors[name].shape, np.float32) for name in graph.inputs}
    assert decided.moved_bytes <= most_joined(8, 8)
    assert_near(WholeModel(graph).step(values), results_of(decided, values), "many keys")


def test_bits_repeat() -> None:
    graph, values = DRAWN["Attention"](np.random.default_rng(102))
    decided = cut_along_keys(graph, 3)
    assert decided is not None
    first, second = (results_of(decided, values) for _ in range(2))
    assert all(np.array_equal(first[name], second[name]) for name in graph.outputs)
