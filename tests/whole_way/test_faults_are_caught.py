"""The verification can fail: each of these faults, put into the transport of a right plan, is found.

All of them move as many bytes as predicted (but for the last), so it is the numbers that give them away.
"""

import itertools
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from fast_suite import chosen
from planner import api
from planner.algebra.tiling import Reducer
from planner.artifacts.program import Fetch, Segment
from planner.errors import DifferenceError
from planner.graph.core.model import Graph
from planner.graph.files.to_onnx import write_model
from planner.runtime.engine.core.transport import BoundFetch, Locate, NumpyTransport, Part
from planner.runtime.judge import references as judge
from planner.runtime.judge.reference import NoReferenceError
from planner.runtime.plan_files import LoadedPlan, load_plan
from planner.runtime.run_report import RunResult
from run_plan import run_plan


class Sound(NumpyTransport):
    """No fault: what the others differ from."""

    def __init__(self) -> None:
        self.faults = 0


class WrongHalo(Sound):
    """A halo is taken one row off."""

    def assemble(self, target: np.ndarray, parts: tuple[Part, ...], reducer: Reducer | None) -> int:
        return super().assemble(target, tuple(self._shift(part) for part in parts), reducer)

    def _shift(self, part: Part) -> Part:
        for dim in range(2, len(part.box)):
            lo, hi, size = part.box[dim].start, part.box[dim].stop, part.array.shape[dim]
            if part.is_remote and hi - lo < size:
                step = 1 if hi < size else -1
                self.faults += 1
                box = (*part.box[:dim], slice(lo + step, hi + step), *part.box[dim + 1 :])
                return replace(part, box=box)
        return part


class DroppedContributor(Sound):
    """The last partial result of a reduction is left out."""

    def assemble(self, target: np.ndarray, parts: tuple[Part, ...], reducer: Reducer | None) -> int:
        moved = super().assemble(target, parts, reducer)
        if len(parts) > 1:
            self.faults += 1
            super().assemble(target, parts[:-1], reducer)
        return moved


class SwappedTiles(Sound):
    """Two tiles of equal shape, fetched from two workers, change places."""

    def bind(self, fetch: Fetch, worker: int, locate: Locate) -> BoundFetch:
        pieces = list(fetch.pieces)
        remote = [number for number, piece in enumerate(pieces) if piece.sources[0].worker != worker]
        for one, other in itertools.pairwise(remote):
            if pieces[one].region.shape == pieces[other].region.shape and len(pieces[one].sources) == 1:
                self.faults += 1
                return _Swapped(super().bind(fetch, worker, locate), one, other)
        return super().bind(fetch, worker, locate)


class _Swapped(BoundFetch):
    def __init__(self, inner: Any, one: int, other: int) -> None:
        pieces = list(inner.pieces)
        (first, taken), (second, given) = pieces[one], pieces[other]
        pieces[one], pieces[other] = (first, given), (second, taken)
        self._inner = replace(inner, pieces=tuple(pieces))

    def run(self) -> int:
        return int(self._inner.run())


class OneElementMore(Sound):
    """One element more than planned is read from another worker."""

    def assemble(self, target: np.ndarray, parts: tuple[Part, ...], reducer: Reducer | None) -> int:
        moved = super().assemble(target, parts, reducer)
        if any(part.is_remote for part in parts) and not self.faults:
            self.faults += 1
            moved += target.flat[:1].nbytes
        return moved


def in_memory(plan: LoadedPlan) -> LoadedPlan:
    return replace(plan, paths=())


@pytest.fixture(scope="session")
def spatial_plan(
    tmp_path_factory: pytest.TempPathFactory, cnn_step: Graph, spatial_pins: Callable[[Graph, str], Mapping[str, str]]
) -> LoadedPlan:
    folder = tmp_path_factory.mktemp("spatial")
    write_model(cnn_step, folder / "train.onnx")
    api.plan(folder / "train.onnx", gpus=3, pin=spatial_pins(cnn_step, "S(2)"), out=folder / "plan")
    return in_memory(load_plan(folder / "plan"))


def is_caught(run: Callable[[], RunResult]) -> bool:
    """True if the run differs from the whole model, or workers that should own the same values do not."""
    try:
        result = run()
    except DifferenceError:
        return True
    return result.verified is False and result.difference() is not None


@pytest.mark.parametrize("fault", [WrongHalo, DroppedContributor, SwappedTiles])
def test_a_fault_is_caught(spatial_plan: LoadedPlan, fault: type[Sound]) -> None:
    assert run_plan(spatial_plan, steps=1, verify=True, transport=Sound()).verified
    transport = fault()
    assert is_caught(lambda: run_plan(spatial_plan, steps=1, verify=True, transport=transport))
    assert transport.faults > 0


class ScaledGradient(Sound):
    """What is joined from partial results is a hundredth too large."""

    def assemble(self, target: np.ndarray, parts: tuple[Part, ...], reducer: Reducer | None) -> int:
        moved = super().assemble(target, parts, reducer)
        if len(parts) > 1:
            self.faults += 1
            target *= target.dtype.type(1.01)
        return moved


class ZeroedTile(Sound):
    """One tile that is fetched from another worker comes out as zeros."""

    def assemble(self, target: np.ndarray, parts: tuple[Part, ...], reducer: Reducer | None) -> int:
        moved = super().assemble(target, parts, reducer)
        if any(part.is_remote for part in parts) and target.size > 1:
            self.faults += 1
            target[...] = 0
        return moved


@pytest.mark.parametrize("has_reference", chosen([True, False], fast=[False]))
def test_every_fault_is_caught_where_gradients_are_small(
    plan_of: Callable[..., Any],
    tiny_step: Graph,
    spatial_pins: Callable[[Graph, str], Mapping[str, str]],
    monkeypatch: pytest.MonkeyPatch,
    has_reference: bool,
) -> None:
    """The weights change by some 1e-6 of themselves, and nothing else but the loss tells of them."""
    if not has_reference:
        monkeypatch.setattr(judge, "Reference", _no_reference)
    plan = in_memory(plan_of(tiny_step, 3, pin=spatial_pins(tiny_step, "S(2)")).load())
    assert run_plan(plan, verify=True, transport=Sound()).verified
    for fault in (WrongHalo, DroppedContributor, SwappedTiles, ScaledGradient, ZeroedTile):
        transport = fault()
        assert is_caught(lambda: run_plan(plan, verify=True, transport=transport)), fault.__name__  # noqa: B023 -- called at once
        assert transport.faults > 0


def _no_reference(*_args: object, **_options: object) -> None:
    raise NoReferenceError("there is none")


def test_one_element_more_is_caught_and_its_fetch_is_named(spatial_plan: LoadedPlan) -> None:
    with pytest.raises(DifferenceError) as caught:
        run_plan(spatial_plan, steps=1, transport=OneElementMore())
    assert "fetch" in str(caught.value)
    assert "predicted" in str(caught.value)


def test_no_weight_is_owned_twice_unless_the_plan_says_so(
    spatial_plan: LoadedPlan, plan_of: Callable[..., Any]
) -> None:
    """Elements of a state's tiles, over all workers: the tensor once, or once for each replica."""
    assert spatial_plan.program.state
    for pair in spatial_plan.program.state:
        tiles = [
            worker.buffers[pair.current].region
            for worker in spatial_plan.program.workers
            if pair.current in worker.buffers
        ]
        distinct = set(tiles)
        assert len(tiles) % len(distinct) == 0
        assert sum(tile.elements for tile in distinct) == spatial_plan.graph.tensors[pair.current].elements


def test_the_program_has_fetches_of_every_kind(spatial_plan: LoadedPlan) -> None:
    """So that the faults above have something to spoil."""
    steps = [step for worker in spatial_plan.program.workers for step in worker.steps]
    assert any(isinstance(step, Segment) for step in steps)
    fetches = [step for step in steps if isinstance(step, Fetch)]
    assert any(fetch.reducer is not None for fetch in fetches)
    assert any(fetch.reducer is None and fetch.predicted_bytes for fetch in fetches)
