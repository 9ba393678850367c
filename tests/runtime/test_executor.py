"""Worker threads: order, failures, and programs that must not start."""

from __future__ import annotations

import threading
import time
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from onnx import helper

from planner.artifacts.program import Fetch, Piece, Source
from planner.artifacts.worker_model import make_body
from planner.errors import ModelError, WorkerError
from planner.runtime.engine.core.backend import BodyDigests
from planner.runtime.engine.core.interface import InProcessEngine
from planner.runtime.engine.core.transport import BoundFetch, NumpyTransport
from planner.runtime.values.state import starting_values
from planner.runtime.values.tiles import load_tiles


def test_nothing_is_copied_by_the_runtime(training: Any) -> None:
    """What a session writes is where the buffers are: sessions are bound to them once, and nothing else is read."""
    with InProcessEngine(training.models, training.program.state) as engine:
        load_tiles(engine, starting_values(training.graph))
        engine.iterate()
        first = engine.array(0, "W_next").copy()
        engine.array(0, "W")[...] += 1
        engine.array(1, "W")[...] += 1
        engine.array(2, "W")[...] += 1
        engine.iterate()
        assert not np.array_equal(engine.array(0, "W_next"), first)


def test_equal_functions_share_a_session(training: Any) -> None:
    with InProcessEngine(training.models, training.program.state) as engine:
        assert isinstance(engine, InProcessEngine)
        assert engine.executor.session_count == 2


@pytest.mark.parametrize("name", ["update", "a name of its own"])
def test_a_worker_executes_its_own_function_and_not_another_of_its_name(training: Any, name: str) -> None:
    """Worker 1 adds the update that the others subtract."""
    models = list(training.models)
    node = helper.make_node
    other = [node("Mul", ["g", "rate"], ["u"]), node("Add", ["w", "u"], ["next"])]
    steps = [replace(s, function=name) if s.name == "update" else s for s in models[1].program.steps]
    models[1] = replace(
        models[1],
        program=replace(models[1].program, steps=tuple(steps)),
        bodies={**models[1].bodies, name: make_body(name, ["w", "g", "rate"], ["next"], other, 21)},
    )
    with InProcessEngine(models, training.program.state) as engine:
        load_tiles(engine, starting_values(training.graph))
        engine.iterate()
        before = engine.array(0, "W")
        moved = [engine.array(worker, "W_next") - before for worker in range(3)]
        assert engine.executor.session_count == 3
    np.testing.assert_array_equal(moved[2], moved[0])
    assert np.abs(moved[0]).min() > 0
    np.testing.assert_allclose(moved[1], -moved[0], rtol=1e-5)


def test_what_a_function_computes_is_more_than_its_nodes(training: Any) -> None:
    """Versions of operators, attributes, and the shapes it is bound to; a name is nothing."""
    model = training.models[0]
    segment = next(step for step in model.program.steps if step.name == "update")

    def digest(name: str = "update", opset: int = 21, last: str = "Sub", rows: int = 3, **attributes: object) -> str:
        nodes = [helper.make_node("Mul", ["g", "rate"], ["u"], **attributes), helper.make_node(last, ["w", "u"], ["n"])]
        body = make_body(name, ["w", "g", "rate"], ["n"], nodes, opset)
        buffers = {**model.program.buffers, "W": replace(model.program.buffers["W"], shape=(rows, 2))}
        changed = replace(model, program=replace(model.program, buffers=buffers), bodies={name: body})
        return BodyDigests().of(replace(segment, function=name), changed)

    others = [digest(opset=20), digest(last="Add"), digest(rows=4), digest(axis=1)]
    assert digest("f2") == digest()
    assert len({digest(), *others}) == 5


class Slow(NumpyTransport):
    """Worker 1 takes its time over every fetch, so that a missing wait shows."""

    def bind(self, fetch: Fetch, worker: int, locate: Any) -> BoundFetch:
        bound = super().bind(fetch, worker, locate)

        class Later(BoundFetch):
            def run(self) -> int:
                time.sleep(0.002 * worker)
                return bound.run()

        return Later()


def test_fetches_wait_for_what_they_read(training: Any) -> None:
    values = starting_values(training.graph)
    results = []
    for transport in (None, Slow()):
        with InProcessEngine(training.models, training.program.state, transport=transport) as engine:
            load_tiles(engine, values)
            for step in range(5):
                engine.iterate(advances=step > 0)
            results.append([engine.array(worker, "W_next").tobytes() for worker in range(3)])
    assert results[0] == results[1]
    assert len(set(results[0])) == 1


class Failing(NumpyTransport):
    """Worker 2's second fetch raises."""

    def bind(self, fetch: Fetch, worker: int, locate: Any) -> BoundFetch:
        bound = super().bind(fetch, worker, locate)
        if (worker, fetch.target) != (2, "G"):
            return bound

        class Broken(BoundFetch):
            def run(self) -> int:
                raise OSError("the link is down")

        return Broken()


def test_a_failing_worker_is_named_and_the_others_stop(training: Any) -> None:
    before = threading.active_count()
    with InProcessEngine(training.models, training.program.state, transport=Failing()) as engine:
        load_tiles(engine, starting_values(training.graph))
        with pytest.raises(WorkerError, match=r"^worker 2 failed in fetch 'fetch G'") as caught:
            engine.iterate()
        assert caught.value.facts == ("OSError: the link is down",)
        assert caught.value.exit_code == 3
        with pytest.raises(WorkerError, match="worker 2"):
            engine.iterate()
    assert threading.active_count() == before


def test_a_worker_that_fails_in_a_segment_is_named_with_its_ops(reduction: Any) -> None:
    """A Gather out of range: the runtime raises while the other worker waits for this one's partial sum."""
    nodes = [
        helper.make_node("Constant", [], ["index"], value_int=99),
        helper.make_node("Gather", ["a", "index"], ["row"]),
        helper.make_node("MatMul", ["a", "b"], ["ab"]),
        helper.make_node("Add", ["ab", "row0"], ["c"]),
    ]
    nodes.insert(2, helper.make_node("ReduceSum", ["row"], ["row0"], keepdims=0))
    bodies = {**reduction.bodies, "broken": make_body("broken", ["a", "b"], ["c"], nodes, 21)}
    first, *rest = reduction.program.workers[1].steps
    wrong = replace(reduction, bodies=bodies).with_worker(1, steps=(replace(first, function="broken"), *rest))
    with InProcessEngine(wrong.models) as engine:
        load_tiles(engine, starting_values(reduction.graph))
        with pytest.raises(WorkerError, match=r"^worker 1 failed in segment 'product' \(ops op of product, matmul\)"):
            engine.iterate()


def test_a_body_that_the_runtime_refuses_is_named(reduction: Any) -> None:
    broken = make_body("matmul", ["a", "b"], ["c"], [helper.make_node("NoSuchOp", ["a", "b"], ["c"])], 21)
    wrong = replace(reduction, bodies={**reduction.bodies, "matmul": broken})
    with pytest.raises(WorkerError, match="worker 0 failed in segment 'product'") as caught:
        InProcessEngine(wrong.models)
    assert "NoSuchOp" in caught.value.facts[0]


def refusal(case: Any) -> str:
    with pytest.raises(ModelError, match="the partitioned program is inconsistent") as caught:
        InProcessEngine(case.models)
    return "\n".join(caught.value.facts)


def test_a_program_that_waits_for_itself_is_refused(reduction: Any) -> None:
    """Each worker fetches before it computes what the other one fetches."""
    wrong = reduction
    for number in (0, 1):
        product, fetch, rectify = wrong.program.workers[number].steps
        (piece,) = fetch.pieces
        other = replace(fetch, pieces=(Piece(piece.region, (Source(1 - number, "Y.partial"),)),))
        wrong = wrong.with_worker(number, steps=(other, product, rectify))
    assert "worker 0, fetch 'fetch Y': waits for ever" in refusal(wrong)


def test_names_that_do_not_exist_are_refused(reduction: Any) -> None:
    wrong = reduction.with_fetch(
        1, "Y", lambda fetch: replace(fetch, pieces=(Piece(fetch.pieces[0].region, (Source(7, "Y.partial"),)),))
    )
    assert "worker 1, fetch 'fetch Y': there is no buffer 'Y.partial' of worker 7" in refusal(wrong)


def test_reading_early_and_writing_twice_are_refused(reduction: Any) -> None:
    product, fetch, rectify = reduction.program.workers[0].steps
    assert "reads 'Y.partial' before it is written" in refusal(
        reduction.with_worker(0, steps=(fetch, product, rectify))
    )
    assert "writes 'Z' again" in refusal(reduction.with_worker(0, steps=(product, fetch, rectify, rectify)))
    assert "'Z' is collected and never written" in refusal(reduction.with_worker(0, steps=(product, fetch)))


def test_pieces_that_do_not_cover_are_refused(halo: Any) -> None:
    assert "do not cover [0:1, 0:1, 0:6] exactly once" in refusal(
        halo.with_fetch(0, "H.wide", lambda fetch: replace(fetch, pieces=fetch.pieces[:1]))
    )
    assert "do not cover" in refusal(
        halo.with_fetch(0, "H.wide", lambda fetch: replace(fetch, pieces=(fetch.pieces[0],) * 2))
    )


def test_several_sources_want_a_reducer(reduction: Any) -> None:
    assert "has 2 sources and no reducer" in refusal(
        reduction.with_fetch(0, "Y", lambda fetch: replace(fetch, reducer=None))
    )
