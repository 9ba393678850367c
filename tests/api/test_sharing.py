"""Shared deliveries where there is memory for them, and what a user is told of them."""

from __future__ import annotations

import io
from functools import cache
from pathlib import Path

import onnx
import pytest

from planner import api, opdefs
from planner.features.zoo.models import build
from planner.graph.files.to_onnx import write_model
from planner.planning.goal import least_cost
from planner.planning.limit.room import shared_where_room
from planner.planning.limit.trial import Trial
from planner.records import plain_record
from planner.search.decide import decide
from planner.search.request import SearchRequest
from planner.search.user_rules.rules import Rules

WORKERS = 2


@cache
def gathering() -> tuple[Trial, Trial]:
    """A plan that gathers weights in both passes, and the same sharing all that it can, with no limit on memory."""
    graph, descriptions = build("gpt-2x64", batch=1), opdefs.standard()
    ops = descriptions.bind_all(graph)
    ask = SearchRequest(WORKERS, rules=Rules(replicate="none"), effort="quick")
    first = Trial(decide(graph, ops, ask))
    return first, shared_where_room(first, least_cost(ask.tables), ask, descriptions, None)


def peak(candidate: Trial) -> int:
    return max(candidate.partitioned.program.peak_bytes)


def moved(candidate: Trial) -> int:
    return candidate.decided.moved_bytes


def within(limit: int) -> Trial:
    ask = SearchRequest(WORKERS)
    return shared_where_room(gathering()[0], least_cost(ask.tables), ask, opdefs.standard(), [limit] * WORKERS)


def test_what_is_held_is_counted() -> None:
    first, everything = gathering()
    assert moved(everything) == everything.partitioned.program.predicted_bytes < moved(first)
    assert peak(everything) > peak(first)


@pytest.mark.slow
def test_less_memory_means_less_sharing() -> None:
    first, everything = gathering()
    limits = (peak(first), (peak(first) + peak(everything)) // 2, peak(everything))
    found = [within(limit) for limit in limits]
    assert all(peak(one) <= limit for one, limit in zip(found, limits, strict=True))
    assert all(one.fits([limit] * WORKERS) for one, limit in zip(found, limits, strict=True))
    assert not everything.fits([limits[1]] * WORKERS)
    assert moved(first) > moved(found[0]) > moved(found[1]) > moved(found[2]) == moved(everything)


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    write_model(build("mlp-3x24", batch=12), tmp_path / "m.onnx")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_plan_and_explain_name_shared_deliveries(here: Path) -> None:
    result = api.plan(Path("m.onnx"), gpus=3, replicate="none", out=Path("plan"))
    (first, *_) = result.plan.deliveries
    told = plain_record(result)["deliveries"]
    assert told[0] == {"name": first.name, "tensor": first.tensor, "readers": list(first.readers)}
    assert first.name in result.plan.tilings
    text = io.StringIO()
    api.show(result, text)
    assert f"shared transfers  {len(result.plan.deliveries)}, of " in text.getvalue()
    rows = {row.name: row for row in api.explain(Path("plan")).tensors}
    assert rows[first.name].delivers == first.tensor
    assert rows[first.name].read_by == first.readers
    assert rows[first.tensor].moved_bytes == result.plan.tensor_bytes[first.tensor] > 0
    about = api.explain(Path("plan"), subject=first.name)
    assert {row.name for row in about.ops} == {first.name, *first.readers}
    assert {row["name"]: row.get("delivers") for row in plain_record(about)["tensors"]}[first.name] == first.tensor


def test_a_limit_on_memory_is_kept_to_with_sharing(here: Path) -> None:
    free = api.plan(Path("m.onnx"), gpus=2, replicate="none", share="none", out=Path("free"))
    limit = max(free.plan.peak_bytes)
    shared = api.plan(Path("m.onnx"), gpus=2, replicate="none", memory=f"{limit}B", out=Path("shared"))
    assert max(shared.plan.peak_bytes) <= limit
    assert shared.plan.moved_bytes <= free.plan.moved_bytes


@pytest.mark.slow
def test_a_plan_for_the_least_time_shares_too(here: Path) -> None:
    write_model(build("mlp-3x2048", batch=64), here / "m.onnx")  # a small one is fastest on one device, by layer-wise
    options = {"topology": "p2.8xlarge", "objective": "time", "replicate": "none", "effort": "quick"}
    shared = api.plan(Path("m.onnx"), out=Path("shared"), **options)  # type: ignore[arg-type]
    alone = api.plan(Path("m.onnx"), out=Path("alone"), share="none", **options)  # type: ignore[arg-type]
    assert shared.plan.estimate is not None
    assert alone.plan.estimate is not None
    assert shared.plan.estimate.estimated_seconds <= alone.plan.estimate.estimated_seconds
    assert shared.plan.deliveries
    assert api.run(Path("shared"), verify=True).verified


def test_an_op_that_reads_a_tensor_at_two_places_is_delivered_to_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A step of Newton and Schulz: the Transpose is taken into the product, which then reads ``g`` twice."""
    text = """<ir_version: 10, opset_import: ["" : 20]>
    step (float[2, 8, 8] g) => (float[2, 8, 8] d) <float three = {3}> {
        t = Transpose <perm = [0, 2, 1]> (g)
        a = MatMul(g, t)
        b = MatMul(a, g)
        c = Mul(g, three)
        d = Add(b, c)
    }"""
    monkeypatch.chdir(tmp_path)
    Path("m.onnx").write_bytes(onnx.parser.parse_model(text).SerializeToString())
    result = api.plan(Path("m.onnx"), gpus=2, pin={"g": "S(1)"}, out=Path("plan"))
    # Half of g is on the other worker: it is brought once, to all three ops.
    assert result.plan.moved_bytes == 2 * 8 * 8 * 4 // 2
    run = api.run(Path("plan"), verify=True)
    assert run.verified
    assert run.moved_bytes == result.plan.moved_bytes
