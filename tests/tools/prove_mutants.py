"""Mutants of partitioned programs: each is one mistake, such as a piece that is dropped or an all-reduce left out.

``mutants`` draws them from a program; a proof must not call any of them equal that changes a value. Run as a script it
plans small networks, draws many, proves each, executes those that were called equal and one in ten of all, and prints
by kind how many were called wrong, not proven and equal, and of those executed how many were *mistaken* (called equal,
and change a value) and how many *harmless* (called wrong, and change none on these numbers). Sums so far go to stderr
every 50 mutants; what is interrupted prints its table so far::

    python tests/tools/prove_mutants.py 10000 [SEED]
"""

from __future__ import annotations

import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import onnx.parser

from planner import api
from planner.algebra.region import Region
from planner.algebra.tiling import Reducer
from planner.api.opened import opened
from planner.artifacts.program import Fetch, Piece, Segment, Source, WorkerProgram
from planner.descriptions import in_force
from planner.errors import ModelError, TofuError
from planner.features.prove.proof.calls import Calls
from planner.features.prove.proof.programs import WorkerFile
from planner.features.prove.proof.programs import prove as follow
from planner.features.prove.proof.result import Proof
from planner.features.prove.proof.whole import Whole
from planner.graph.core.model import DType
from planner.graph.files.to_onnx import write_model
from planner.runtime.engine.core.check import check_overwriting, check_programs
from planner.runtime.plan_files import LoadedPlan, load_plan


@dataclass(frozen=True)
class Case:
    """A plan, and what a proof of it asks."""

    loaded: LoadedPlan
    calls: Calls
    """Those that the plan and its mutants have in common are followed once."""

    @classmethod
    def of(cls, folder: Path) -> Case:
        plan = opened(folder)
        return cls(load_plan(folder), Calls(Whole(plan.graph, plan.ops, in_force(None, "replicate")[0])))

    def proof(self, loaded: LoadedPlan | None = None) -> Proof | None:
        """What is proven of the plan, or of a mutant of it; None where it is refused before."""
        one = self.loaded if loaded is None else loaded
        try:
            check_programs(one.program.workers, one.program.state)
            for model in one.models:
                check_overwriting(model.program, model.bodies)
        except ModelError:
            return None
        return follow(self.calls, one.program, [WorkerFile(model.bodies, model.constants) for model in one.models])


POOLED = """<ir_version: 10, opset_import: ["": 21]>
net (float[4,4,9,9] x, float[4,1,1] b) => (float[4,4,9,9] p, float[4,4,4,4] q, float[4,4,5,5] c) {
  sh = Constant <value = int64[4] {4, 4, 9, 9}> ()  e = Expand(b, sh)  s = Add(x, e)
  low = Constant <value = float {0.25}> ()  l = Clip(s, low)
  p = AveragePool <kernel_shape = [3,3], pads = [1,1,1,1]> (l)
  q = AveragePool <kernel_shape = [3,3], strides = [2,2]> (l)
  c = AveragePool <kernel_shape = [2,2], strides = [2,2], ceil_mode = 1, count_include_pad = 1> (l)
}"""
"""Windows with padding, inside, and cut short; a bound that is absent; rows that are equal."""

HALO = """<ir_version: 10, opset_import: ["": 21]>
net (float[2,4,8,8] x, float[4,4,3,3] w, float[4] b, float[256,6] v) => (float[2,6] y, float[4] m) {
  axes = Constant <value = int64[3] {0, 2, 3}> ()
  h = Conv <pads = [1, 1, 1, 1]> (x, w, b)
  r = Relu(h)
  m = ReduceMean <keepdims = 0> (r, axes)
  f = Flatten(r)
  y = MatMul(f, v)
}"""
"""A convolution with a halo where it is cut along its height, a mean, and a product whose sum is split."""
HALO_PINS = {"x": "S(2)", "r": "S(2)", "w": "R"}

CELLS = """<ir_version: 10, opset_import: ["": 21]>
net (float[8,8] s, float[8,8] h, float[8,8] v, float[8,8] a, float[8] b)
  => (float[8,8] s_next, float[8,8] h_next, float[8,8] v_next) {
  s_next = MatMul(s, a)
  m = MatMul(h, a)  c = Add(m, b)  h_next = Tanh(c)
  g = Sigmoid(v)  v_next = Mul(v, g)
}"""
"""States that their updates read otherwise than element by element, or twice."""
CELL_STATES = {one: f"{one}_next" for one in "shv"}

Change = Callable[[LoadedPlan, np.random.Generator], LoadedPlan | None]
"""From a plan to a mutant; None where the plan has no place for it."""


def _with_worker(loaded: LoadedPlan, worker: WorkerProgram) -> LoadedPlan:
    workers = tuple(worker if one.worker == worker.worker else one for one in loaded.program.workers)
    models = tuple(
        replace(model, program=worker) if model.program.worker == worker.worker else model for model in loaded.models
    )
    return replace(loaded, program=replace(loaded.program, workers=workers), models=models)


def _changed_fetch(change: Callable[[Fetch, LoadedPlan, int, np.random.Generator], Fetch | None]) -> Change:
    def made(loaded: LoadedPlan, draw: np.random.Generator) -> LoadedPlan | None:
        places = [
            (worker, number)
            for worker in loaded.program.workers
            for number, step in enumerate(worker.steps)
            if isinstance(step, Fetch)
        ]
        if not places:
            return None
        worker, number = places[draw.integers(len(places))]
        step = worker.steps[number]
        assert isinstance(step, Fetch)
        new = change(step, loaded, worker.worker, draw)
        if new is None or new == step:
            return None
        # The bytes stay true, so that a mutant is not caught by its count alone.
        item = worker.buffers[step.target].dtype.item_bytes
        taken = sum(
            piece.region.elements * item
            for piece in new.pieces
            for source in piece.sources
            if source.worker != worker.worker
        )
        steps = (*worker.steps[:number], replace(new, predicted_bytes=taken), *worker.steps[number + 1 :])
        return _with_worker(loaded, replace(worker, steps=steps))

    return made


def _any_piece(
    change: Callable[[Piece, LoadedPlan, int, np.random.Generator], Piece | None],
) -> Callable[[Fetch, LoadedPlan, int, np.random.Generator], Fetch | None]:
    def made(step: Fetch, loaded: LoadedPlan, worker: int, draw: np.random.Generator) -> Fetch | None:
        number = int(draw.integers(len(step.pieces)))
        new = change(step.pieces[number], loaded, worker, draw)
        if new is None:
            return None
        return replace(step, pieces=(*step.pieces[:number], new, *step.pieces[number + 1 :]))

    return made


def _other_worker(piece: Piece, loaded: LoadedPlan, worker: int, draw: np.random.Generator) -> Piece | None:
    number = int(draw.integers(len(piece.sources)))
    source = piece.sources[number]
    others = [
        one.worker for one in loaded.program.workers if one.worker != source.worker and source.buffer in one.buffers
    ]
    if not others:
        return None
    new = Source(others[draw.integers(len(others))], source.buffer)
    return replace(piece, sources=(*piece.sources[:number], new, *piece.sources[number + 1 :]))


def _other_buffer(piece: Piece, loaded: LoadedPlan, worker: int, draw: np.random.Generator) -> Piece | None:
    number = int(draw.integers(len(piece.sources)))
    source = piece.sources[number]
    held = loaded.program.workers[source.worker].buffers
    names = [name for name, one in held.items() if name != source.buffer and one.shape == held[source.buffer].shape]
    if not names:
        return None
    new = Source(source.worker, names[draw.integers(len(names))])
    return replace(piece, sources=(*piece.sources[:number], new, *piece.sources[number + 1 :]))


def _shifted(piece: Piece, loaded: LoadedPlan, worker: int, draw: np.random.Generator) -> Piece | None:
    dim, by = int(draw.integers(piece.region.rank)), int(draw.choice([-1, 1]))
    lo, hi = list(piece.region.lo), list(piece.region.hi)
    lo[dim], hi[dim] = lo[dim] + by, hi[dim] + by
    return None if lo[dim] < 0 else replace(piece, region=Region(tuple(lo), tuple(hi)))


def _shorter(piece: Piece, loaded: LoadedPlan, worker: int, draw: np.random.Generator) -> Piece | None:
    dim = int(draw.integers(piece.region.rank))
    hi = list(piece.region.hi)
    hi[dim] -= 1
    return None if hi[dim] <= piece.region.lo[dim] else replace(piece, region=Region(piece.region.lo, tuple(hi)))


def _less(piece: Piece, loaded: LoadedPlan, worker: int, draw: np.random.Generator) -> Piece | None:
    if len(piece.sources) < 2:
        return None
    number = int(draw.integers(len(piece.sources)))
    return replace(piece, sources=(*piece.sources[:number], *piece.sources[number + 1 :]))


def _twice(piece: Piece, loaded: LoadedPlan, worker: int, draw: np.random.Generator) -> Piece | None:
    if len(piece.sources) < 2:
        return None
    return replace(piece, sources=(*piece.sources, piece.sources[draw.integers(len(piece.sources))]))


def _not_joined(step: Fetch, loaded: LoadedPlan, worker: int, draw: np.random.Generator) -> Fetch | None:
    if step.reducer is None:
        return None
    pieces = tuple(replace(piece, sources=piece.sources[:1]) for piece in step.pieces)
    return replace(step, pieces=pieces, reducer=None)


def _otherwise_joined(step: Fetch, loaded: LoadedPlan, worker: int, draw: np.random.Generator) -> Fetch | None:
    others = [one for one in Reducer if one is not step.reducer]
    return None if step.reducer is None else replace(step, reducer=others[draw.integers(len(others))])


def _changed_call(loaded: LoadedPlan, draw: np.random.Generator) -> LoadedPlan | None:
    """A segment reads another buffer of the same shape."""
    worker = loaded.program.workers[draw.integers(len(loaded.program.workers))]
    places = [number for number, step in enumerate(worker.steps) if isinstance(step, Segment) and step.inputs]
    if not places:
        return None
    number = places[draw.integers(len(places))]
    step = worker.steps[number]
    assert isinstance(step, Segment)
    slot = int(draw.integers(len(step.inputs)))
    mine = worker.buffers[step.inputs[slot]]
    written = {*worker.loaded, *(name for one in worker.steps[:number] for name in _made(one))}
    names = [
        name
        for name in sorted(written)
        if name != mine.name and (worker.buffers[name].shape, worker.buffers[name].dtype) == (mine.shape, mine.dtype)
    ]
    if not names:
        return None
    inputs = (*step.inputs[:slot], names[draw.integers(len(names))], *step.inputs[slot + 1 :])
    steps = (*worker.steps[:number], replace(step, inputs=inputs), *worker.steps[number + 1 :])
    return _with_worker(loaded, replace(worker, steps=steps))


def _made(step: Fetch | Segment) -> tuple[str, ...]:
    return (step.target,) if isinstance(step, Fetch) else step.outputs


def _changed_body(loaded: LoadedPlan, draw: np.random.Generator) -> LoadedPlan | None:
    """A number in a function of one worker is another one: an attribute, a divisor, a pad, a place."""
    number = int(draw.integers(len(loaded.models)))
    model = loaded.models[number]
    name = sorted(model.bodies)[draw.integers(len(model.bodies))]
    body = deepcopy(model.bodies[name])
    places: list[tuple[object, int | None]] = []
    for node in body.node:
        for attribute in node.attribute:
            if attribute.HasField("i"):
                places.append((attribute, None))
            places.extend((attribute.ints, place) for place in range(len(attribute.ints)))
            if attribute.HasField("t"):
                places.append((attribute.t, None))
    if not places:
        return None
    target, place = places[draw.integers(len(places))]
    by = int(draw.choice([-1, 1]))
    if place is not None:
        target[place] += by  # type: ignore[index]
    elif hasattr(target, "raw_data"):
        array = onnx.numpy_helper.to_array(target).copy()
        if array.dtype.kind not in "if" or not array.size:
            return None
        where = int(draw.integers(array.size))
        array.reshape(-1)[where] += by if array.dtype.kind == "i" else array.reshape(-1)[where] * 0.25 + 0.125
        target.CopyFrom(onnx.numpy_helper.from_array(array))
    else:
        target.i += by  # type: ignore[attr-defined]
    changed = replace(model, bodies={**model.bodies, name: body})
    return replace(loaded, models=(*loaded.models[:number], changed, *loaded.models[number + 1 :]))


def _changed_node(change: Callable[[onnx.NodeProto, np.random.Generator], bool]) -> Change:
    def made(loaded: LoadedPlan, draw: np.random.Generator) -> LoadedPlan | None:
        places = [(number, name) for number, model in enumerate(loaded.models) for name in sorted(model.bodies)]
        for place in draw.permutation(len(places)):
            number, name = places[place]
            model = loaded.models[number]
            body = deepcopy(model.bodies[name])
            if any(change(body.node[one], draw) for one in draw.permutation(len(body.node))):
                changed = replace(model, bodies={**model.bodies, name: body})
                return replace(loaded, models=(*loaded.models[:number], changed, *loaded.models[number + 1 :]))
        return None

    return made


def _other_slots(node: onnx.NodeProto, draw: np.random.Generator) -> bool:
    """Inputs in other slots: the first two change places, or the last is one later."""
    if len(node.input) < 2:
        return False
    if draw.integers(2):
        node.input.insert(len(node.input) - 1, "")
    else:
        node.input[0], node.input[1] = node.input[1], node.input[0]
    return True


def _padded_otherwise(node: onnx.NodeProto, draw: np.random.Generator) -> bool:
    """Pads before and after change places, along one dim."""
    for attribute in node.attribute:
        if attribute.name == "pads":
            half = len(attribute.ints) // 2
            uneven = [dim for dim in range(half) if attribute.ints[dim] != attribute.ints[dim + half]]
            if uneven:
                dim = uneven[draw.integers(len(uneven))]
                pads = attribute.ints[dim], attribute.ints[dim + half]
                attribute.ints[dim + half], attribute.ints[dim] = pads
                return True
    return False


def _old_state(loaded: LoadedPlan, draw: np.random.Generator) -> LoadedPlan | None:
    """A worker gives back a state as it was: what would make the next one copies it."""
    following = {pair.following: pair.current for pair in loaded.program.state}
    places = [
        (worker.worker, step.function, step.inputs.index(one), step.outputs.index(name))
        for worker in loaded.program.workers
        for step in worker.steps
        if isinstance(step, Segment)
        for name in step.outputs
        for one in step.inputs
        if following.get(worker.buffers[name].tensor) == worker.buffers[one].tensor
        and worker.buffers[name].region == worker.buffers[one].region
    ]
    if not places:
        return None
    number, name, read, made = places[draw.integers(len(places))]
    model = loaded.models[number]
    body = deepcopy(model.bodies[name])
    for node in body.node:
        for place, one in enumerate(node.output):
            if one == body.output[made]:
                node.output[place] = f"{one}.new"
    body.node.append(onnx.helper.make_node("Identity", [body.input[read]], [body.output[made]]))
    changed = replace(model, bodies={**model.bodies, name: body})
    return replace(loaded, models=(*loaded.models[:number], changed, *loaded.models[number + 1 :]))


def _scaled(loaded: LoadedPlan, draw: np.random.Generator) -> LoadedPlan | None:
    """What a function reads or makes goes through factors whose product is 1, perhaps out of range between."""
    places = [
        (worker.worker, step.function, is_read, position)
        for worker in loaded.program.workers
        for step in worker.steps
        if isinstance(step, Segment)
        for is_read, names in ((True, step.inputs), (False, step.outputs))
        for position, name in enumerate(names)
        if worker.buffers[name].dtype is DType.FLOAT32
    ]
    if not places:
        return None
    number, name, is_read, position = places[draw.integers(len(places))]
    model = loaded.models[number]
    body = deepcopy(model.bodies[name])
    first, count = int(draw.choice([-120, -96, -60, -12, 12, 60, 96, 120])), int(draw.integers(1, 4))
    parts = next(n for n in (2, 3, 4) if first * count % n == 0 and abs(first * count // n) <= 120)
    nodes, value = [], body.input[position] if is_read else body.output[position]
    before = value if is_read else f"{value}.scaled"
    for node in body.node:
        for names in (node.input, node.output):
            for place, one in enumerate(names):
                if one == value:
                    names[place] = f"{value}.scaled"
    for place, exponent in enumerate([first] * count + [-first * count // parts] * parts):
        op_type = str(draw.choice(["Mul", "Div"]))
        factor = np.array(2.0 ** (exponent if op_type == "Mul" else -exponent), np.float32)
        constant, after = f"{value}.factor{place}", f"{value}.by{place}"
        nodes.append(onnx.helper.make_node("Constant", [], [constant], value=onnx.numpy_helper.from_array(factor)))
        nodes.append(onnx.helper.make_node(op_type, [before, constant], [after]))
        before = after
    nodes[-1].output[0] = f"{value}.scaled" if is_read else value
    kept = list(body.node)
    del body.node[:]
    body.node.extend([*nodes, *kept] if is_read else [*kept, *nodes])
    changed = replace(model, bodies={**model.bodies, name: body})
    return replace(loaded, models=(*loaded.models[:number], changed, *loaded.models[number + 1 :]))


def _step_left_out(loaded: LoadedPlan, draw: np.random.Generator) -> LoadedPlan | None:
    worker = loaded.program.workers[draw.integers(len(loaded.program.workers))]
    number = int(draw.integers(len(worker.steps)))
    return _with_worker(loaded, replace(worker, steps=(*worker.steps[:number], *worker.steps[number + 1 :])))


def _steps_swapped(loaded: LoadedPlan, draw: np.random.Generator) -> LoadedPlan | None:
    worker = loaded.program.workers[draw.integers(len(loaded.program.workers))]
    if len(worker.steps) < 2:
        return None
    number = int(draw.integers(len(worker.steps) - 1))
    steps = list(worker.steps)
    steps[number], steps[number + 1] = steps[number + 1], steps[number]
    return _with_worker(loaded, replace(worker, steps=tuple(steps)))


def _place_moved(loaded: LoadedPlan, draw: np.random.Generator) -> LoadedPlan | None:
    """A buffer lies where another one lies."""
    worker = loaded.program.workers[draw.integers(len(loaded.program.workers))]
    if worker.arena is None:
        return None
    names = sorted(worker.buffers)
    one, two = (names[n] for n in draw.integers(len(names), size=2))
    offsets = {**worker.arena.offsets, one: worker.arena.offsets[two]}
    return None if one == two else _with_worker(loaded, replace(worker, arena=replace(worker.arena, offsets=offsets)))


def _state_written_over(loaded: LoadedPlan, draw: np.random.Generator) -> LoadedPlan | None:
    """A next state lies over its state, which its own segment reads."""
    places = [
        (worker, pair.current, pair.following)
        for worker in loaded.program.workers
        for pair in loaded.program.state
        if worker.arena is not None
        for step in worker.steps
        if isinstance(step, Segment) and pair.current in step.inputs and pair.following in step.outputs
        if worker.buffers[pair.current].region == worker.buffers[pair.following].region
        if worker.arena.offsets[pair.current] != worker.arena.offsets[pair.following]
    ]
    if not places:
        return None
    worker, now, then = places[draw.integers(len(places))]
    assert worker.arena is not None
    offsets = {**worker.arena.offsets, then: worker.arena.offsets[now]}
    return _with_worker(loaded, replace(worker, arena=replace(worker.arena, offsets=offsets)))


def _buffers_swapped(kind: str) -> Change:
    def made(loaded: LoadedPlan, draw: np.random.Generator) -> LoadedPlan | None:
        """Two tiles that are loaded, or collected, change places: their tensors do."""
        worker = loaded.program.workers[draw.integers(len(loaded.program.workers))]
        names = getattr(worker, kind)
        pairs = [
            (one, two)
            for one in names
            for two in names
            if one < two
            and worker.buffers[one].region == worker.buffers[two].region
            and worker.buffers[one].dtype is worker.buffers[two].dtype
        ]
        if not pairs:
            return None
        one, two = pairs[draw.integers(len(pairs))]
        buffers = dict(worker.buffers)
        buffers[one] = replace(buffers[one], tensor=worker.buffers[two].tensor)
        buffers[two] = replace(buffers[two], tensor=worker.buffers[one].tensor)
        return _with_worker(loaded, replace(worker, buffers=buffers))

    return made


KINDS: dict[str, Change] = {
    "piece dropped": _changed_fetch(
        lambda step, loaded, worker, draw: replace(step, pieces=step.pieces[1:]) if len(step.pieces) > 1 else None
    ),
    "piece doubled": _changed_fetch(
        lambda step, loaded, worker, draw: replace(step, pieces=(*step.pieces, step.pieces[0]))
    ),
    "piece shifted by one": _changed_fetch(_any_piece(_shifted)),
    "halo one short": _changed_fetch(_any_piece(_shorter)),
    "source of another worker": _changed_fetch(_any_piece(_other_worker)),
    "source of another buffer": _changed_fetch(_any_piece(_other_buffer)),
    "contribution left out": _changed_fetch(_any_piece(_less)),
    "contribution twice": _changed_fetch(_any_piece(_twice)),
    "all-reduce left out": _changed_fetch(_not_joined),
    "wrong reducer": _changed_fetch(_otherwise_joined),
    "call of another buffer": _changed_call,
    "number in a body": _changed_body,
    "input in another slot": _changed_node(_other_slots),
    "padding on the wrong side": _changed_node(_padded_otherwise),
    "next state from the old one": _old_state,
    "constants whose partial products leave float32": _scaled,
    "step left out": _step_left_out,
    "steps swapped": _steps_swapped,
    "place in the arena": _place_moved,
    "arena of a state that is no element-wise update": _state_written_over,
    "inputs or states swapped": _buffers_swapped("loaded"),
    "results or next states swapped": _buffers_swapped("collected"),
}


def mutants(case: Case, draw: np.random.Generator) -> Iterator[tuple[str, LoadedPlan]]:
    """Mutants without end, of every kind in turn."""
    while True:
        for kind, change in KINDS.items():
            made = change(case.loaded, draw)
            if made is not None:
                yield kind, made


def changes_a_value(case: Case, mutant: LoadedPlan) -> bool:
    """Whether a mutant, executed, gives other results or next states than the plan."""
    from planner.options.running import RunOptions
    from planner.runtime.run import run_with

    try:
        return not run_with(replace(mutant, paths=()), RunOptions(steps=1, verify=True)).verified
    except TofuError:
        return True


def paired(file: Path, states: Mapping[str, str]) -> Path | None:
    """A file of state pairs; None where there are none."""
    if not states:
        return None
    file.write_text("".join(f"{now}: {then}\n" for now, then in states.items()))
    return file


def main(count: int, seed: int = 20) -> None:
    """Draws mutants of small networks, and prints what became of each kind."""
    from planner.features.zoo.models import build

    draw = np.random.default_rng(seed)
    cases = []
    with tempfile.TemporaryDirectory() as scratch:
        by_hand = {"pooled": (POOLED, {}, {}), "halo": (HALO, HALO_PINS, {}), "cells": (CELLS, {}, CELL_STATES)}
        for name in ("mlp-3x12", "cnn-2x4-6", "lenet-5", "gpt-1x16-2h", *by_hand):
            text, pins, states = by_hand.get(name, ("", {}, {}))
            file = Path(scratch) / f"{name}.onnx"
            if text:
                onnx.save(onnx.parser.parse_model(text), file)
            else:
                write_model(build(name, batch=4), file)
            for gpus in (2, 3, 4):
                out = Path(scratch) / f"{name}.{gpus}"
                pairs = paired(Path(scratch) / f"{name}.yaml", states)
                plan = api.plan(file, gpus=gpus, effort="quick", pin=pins, state=pairs, out=out)
                cases.append(Case.of(plan.directory))
        told: Counter[tuple[str, str]] = Counter()
        try:
            _judge(cases, count, draw, told)
        except KeyboardInterrupt:
            print("interrupted", file=sys.stderr)
    print(f"{'kind':48}", *(f"{one:>10}" for one in COLUMNS))
    for kind in KINDS:
        print(f"{kind:48}", *(f"{told[kind, one]:10}" for one in COLUMNS))
    print(f"{'all':48}", *(f"{_total(told, one):10}" for one in COLUMNS))


COLUMNS = ("wrong", "not proven", "equal", "executed", "mistaken", "harmless")


def _total(told: Counter[tuple[str, str]], column: str) -> int:
    return sum(told[kind, column] for kind in KINDS)


def _judge(cases: Sequence[Case], count: int, draw: np.random.Generator, told: Counter[tuple[str, str]]) -> None:
    """Draws, proves and executes mutants, and counts what is told of them by kind and column."""
    streams = [mutants(case, draw) for case in cases]
    for number in range(count):
        case, stream = cases[number % len(cases)], streams[number % len(cases)]
        kind, mutant = next(stream)
        proof = case.proof(mutant)
        is_wrong = proof is None or (proof.fault is not None and proof.fault.is_counterexample)
        is_equal = proof is not None and proof.is_proven
        told[kind, "equal" if is_equal else "wrong" if is_wrong else "not proven"] += 1
        if is_equal or number % 10 == 0:
            is_other = changes_a_value(case, mutant)
            told[kind, "executed"] += 1
            told[kind, "mistaken"] += is_equal and is_other
            told[kind, "harmless"] += is_wrong and not is_other
            if is_equal and is_other:
                print("MISTAKEN", kind, number, flush=True)
            if is_wrong and not is_other and proof is not None:
                print("HARMLESS", kind, number, proof.fault, flush=True)
        if (number + 1) % 50 == 0:
            told_so_far = ", ".join(f"{_total(told, column)} {column}" for column in COLUMNS)
            print(f"{number + 1} of {count}: {told_so_far}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
