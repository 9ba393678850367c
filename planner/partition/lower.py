"""From a plan to each worker's local ops and fetches (Tofu, section 6).

Every op becomes a local op on each worker, in the original order. What an op needs and does not have is fetched,
one fetch for what would be split, copy and concatenate. Fetches are delayed until somebody needs them; a round of
fetches and the run of ops behind it are an *epoch*, the same on all workers. Fetches that free memory are not delayed
that long: partial results are joined, and next states brought over their states, when the next epoch begins.

Equal ops are divided once, and what is brought to them and from them is found once (``planner.partition.fetches``);
for each op of a network only names are put in. Workers that do the same share one object that says so.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from planner.algebra.delivery import contributors, reduced_boxes, reducer_of
from planner.algebra.partial import holders, partial_cuts, settled
from planner.algebra.region import Region, index_space
from planner.algebra.tiling import Reducer, Tiling
from planner.artifacts.plan import Decision, Steps
from planner.artifacts.program import Fetch
from planner.counted import counted
from planner.graph.deliveries import is_delivery
from planner.graph.fills import is_fill
from planner.graph.model import DType, Graph, Shape, Tensor, is_used
from planner.partition.division import Division
from planner.partition.fetches import (
    BROUGHT,
    NOTHING,
    Box,
    Contributions,
    Holders,
    Layout,
    Layouts,
    Need,
    Round,
    copied,
    nearest_first,
    need,
)
from planner.partition.local_work import LocalWork, added, cut_out, named, told_apart
from planner.partition.lowered import Buffers, Epoch, Lowered
from planner.partition.stepping import Parts, SteppedDivision, TileWork
from planner.tdl.bind import BoundOp

_MUCH = 32
"""A fetch gets an epoch of its own if it frees more than 1/32 of the bytes that a worker holds before the first op."""
_ORDERS_KEPT = 1024
"""Of so many workers it is kept which others are near: of all of some thousands that would be a gigabyte."""
SMALL_CONSTANT_BYTES = 1024
"""Constants up to this size stand in the code; larger ones are arrays of the worker."""
_OWN, _MADE, _REDUCED = range(3)
"""Numbers of the names of a tensor's buffers: of its tiles, of what an op makes, of what is joined on the way."""


@dataclass(frozen=True, slots=True)
class _Way:
    """How an output comes from where it is made to where it is owned; names are numbered as above."""

    made: tuple[int, ...]
    """By worker: the number of the name of the buffer that its op fills, ``NOTHING`` where it makes no part."""
    filled: tuple[tuple[int, int, Region], ...] = ()
    """Workers, and numbers and regions of the buffers that fetches fill."""
    rounds: tuple[tuple[Round, Reducer | None], ...] = ()
    owned: Layout | None = None
    """None: nobody reads it, and it is never brought anywhere."""
    freed_elements: int = 0
    """By how many the largest part that is made is larger than the largest tile."""


@dataclass(frozen=True, slots=True)
class _Home:
    """How a result that is made in parts comes to where it is owned."""

    joins: Mapping[int, list[tuple[int, Fetch]]]
    """By chunk, the fetches that join the part that it makes."""
    last: list[tuple[int, Fetch]]
    """The fetches behind the last chunk."""


class Lowering:
    """Builds the program op by op.

    Args:
        graph: that was planned.
        plan: what was decided.
        apart: see ``partition``.
    """

    def __init__(self, graph: Graph, plan: Decision, apart: Sequence[Sequence[float]] = ()) -> None:
        self._graph = graph
        self._plan = plan
        self._workers = plan.workers
        every = range(self._workers)
        self._nearest_first = lru_cache(maxsize=_ORDERS_KEPT)(
            lambda worker: nearest_first(worker, plan.cuts, apart[worker] if apart else ())
        )
        self._replaced = _replaced(graph)
        self._following = {pair.following for pair in graph.state}
        self._much = 0
        """A fetch that frees more bytes than this gets an epoch of its own (``_MUCH``)."""
        self._returning: list[str] = []
        """Tensors that are brought to where they are owned as soon as an epoch begins, since that frees memory."""
        self._epochs: list[Epoch] = []
        self._start_epoch()
        self._regions: list[dict[str, Region]] = [{} for _ in every]
        """By worker, what each of its buffers holds."""
        self._tensors: dict[str, Tensor] = {}
        """By buffer, the tensor of which it holds a part."""
        self._fixed: list[dict[str, np.ndarray]] = [{} for _ in every]
        self._absent: list[dict[str, None]] = [{} for _ in every]
        self._owned: dict[str, tuple[Layout, tuple[str, ...]]] = {}
        """How each tensor lies, and the names of its buffers."""
        self._pending: dict[str, list[tuple[int, Fetch]]] = {}
        """Fetches that bring an op's results to where they are owned, until somebody needs them."""
        self._layouts = Layouts()
        self._tiles: dict[tuple[Tiling, Shape], Layout] = {}
        self._divisions: dict[object, Division] = {}
        self._needs: dict[object, Need] = {}
        self._ways: dict[object, _Way] = {}
        self._stepped: dict[object, SteppedDivision] = {}

    def run(self, ops: Sequence[BoundOp]) -> Lowered:
        """Lowers every op."""
        for name in self._graph.inputs:
            self._own(name)
        self._much = max(sum(one.size_bytes for one in buffers.values()) for buffers in self._buffers()) // _MUCH
        for bound in counted(ops, "making programs: op", self._workers):
            self._lower(bound)
            self._returning += [name for name in self._replaced.get(bound.op.name, ()) if name in self._pending]
        self._place([fetch for name in self._graph.outputs for fetch in self._pending.pop(name, [])])
        absent = tuple(tuple(names) for names in self._absent)
        made = [name for name in self._graph.outputs if self._graph.tensors[name].elements]
        collected = tuple(tuple(name for name in made if name in regions) for regions in self._regions)
        return Lowered(tuple(self._epochs), self._buffers(), tuple(self._fixed), absent, collected)

    def _buffers(self) -> tuple[Buffers, ...]:
        return tuple(Buffers(regions, self._tensors) for regions in self._regions)

    def _lower(self, bound: BoundOp) -> None:
        op, strategy = bound.op, self._plan.strategies[bound.op.name].tiling
        if is_delivery(op) and strategy == self._plan.tilings[op.outputs[0]]:
            self._deliver(bound)
            return
        steps = self._plan.strategies[op.name].steps
        if steps is not None:
            self._lower_in_steps(bound, strategy, steps)
            return
        division = self._divided(bound, strategy)
        arriving = [fetch for name in dict.fromkeys(op.inputs) for fetch in self._pending.pop(name, [])]
        inputs: dict[int, list[str | None]] = {}
        sliced: list[tuple[int, LocalWork]] = []
        for slot, shared in bound.delivered_slots.items():
            name = op.inputs[slot]
            if name in self._graph.constants:
                continue
            if shared != slot:
                inputs[slot] = inputs[shared]
                continue
            held = self._plan.tilings[name]
            assert partial_cuts(held) == partial_cuts(strategy), f"{op.name} cannot read {name}, which is {held}"
            layout, names = self._owned[name]
            partial = held if held.has_partial else None
            key = (division, slot, layout, partial)
            if key not in self._needs:
                self._needs[key] = need(division.reads[slot], layout, self._givers(partial))
            needed = self._needs[key]
            target = self._derived(f"{name}@{op.name}.{slot}") if needed.brought else ""
            inputs[slot] = _input_names(needed.buffers, names, target)
            cuttings, fetches = self._bring(op.name, needed, names, target, name)
            sliced += cuttings
            arriving += fetches
        # Fetches may begin a new epoch, and what is cut out for an op belongs to the epoch of that op: in this order.
        self._place(arriving)
        epoch = self._epochs[-1]
        for worker, work in sliced:
            epoch.work[worker].append(work)
        self._work(bound, division, inputs)
        for position, name in enumerate(op.outputs):
            if name:
                self._bring_home(name, division, position)

    def _lower_in_steps(self, bound: BoundOp, strategy: Tiling, steps: Steps) -> None:
        """Lowers an op chunk by chunk: what circulates is fetched for each chunk, what stays once."""
        op = bound.op
        division = self._divided_in_steps(bound, strategy, steps)
        arriving = [fetch for name in dict.fromkeys(op.inputs) for fetch in self._pending.pop(name, [])]
        inputs: dict[int, tuple[Sequence[Region], list[str | None]]] = {}
        sliced: list[tuple[int, LocalWork]] = []

        def bring(slot: int, regions: Sequence[Region], part: str) -> None:
            name = op.inputs[slot]
            layout, names = self._owned[name]
            held = self._plan.tilings[name]
            partial = held if held.has_partial else None
            key = (division, slot, part, layout, partial)
            if key not in self._needs:
                self._needs[key] = need(regions, layout, self._givers(partial))
            needed = self._needs[key]
            target = self._derived(f"{name}@{op.name}.{slot}{part}") if needed.brought else ""
            inputs[slot] = regions, _input_names(needed.buffers, names, target)
            cuttings, fetches = self._bring(op.name, needed, names, target, name)
            sliced.extend(cuttings)
            arriving.extend(fetches)

        for slot, regions in division.stays.items():
            bring(slot, regions, "")
        result, parts = op.outputs[0], division.parts.regions
        names_of = self._part_names(result, division)
        home = self._home_of_parts(result, division, names_of)
        before: dict[tuple[int, int], str] = {}
        """By part and worker, the buffer of the sum so far."""
        for number, chunk in enumerate(division.chunks):
            for slot, regions in chunk.reads.items():
                bring(slot, regions, f".{number}")
            self._place(arriving)
            arriving.clear()
            is_last = not division.is_summed or number + 1 == len(division.chunks)
            for part, work in chunk.work.items():
                if any(self._epochs[-1].work):
                    self._start_epoch()
                epoch = self._epochs[-1]
                for worker, cut in sliced:
                    epoch.work[worker].append(cut)
                sliced.clear()
                for worker, todo in work.items():
                    if not parts[part][worker].is_empty:
                        made = names_of[part] if is_last else self._derived(f"{names_of[part]}.{number}")
                        self._add_buffer(worker, made, result, parts[part][worker])
                        label = f"{op.name}.{number}.{part}"
                        total = (before[part, worker], made) if (part, worker) in before else (made,)
                        epoch.work[worker].append(self._step(worker, op.name, label, todo, inputs, total))
                        before[part, worker] = made
            # The chunk's contributions are joined beside the fetches for the next chunk: in no epoch of their own.
            arriving += home.joins.get(number, [])
        self._take_home(result, [*arriving, *home.last])

    def _step(
        self,
        worker: int,
        op: str,
        label: str,
        todo: TileWork,
        inputs: Mapping[int, tuple[Sequence[Region], list[str | None]]],
        total: tuple[str, ...],
    ) -> LocalWork:
        """What a worker does for a part of a result with one chunk.

        Args:
            worker: which.
            op: the op's name.
            label: tells this work from all other of the op.
            todo: the work.
            inputs: by position what workers hold of each input, and the buffers.
            total: the sum before and after; the part alone where there is no sum before.
        """
        cuts: list[LocalWork] = []
        names: dict[str, str] = {}
        for slot, region in todo.reads.items():
            held, buffers = inputs[slot]
            source = buffers[worker]
            assert source is not None, "what a worker reads is brought to it"
            names[f"in{slot}"] = source
            if held[worker] != region:
                names[f"in{slot}"] = self._derived(f"{label}.in{slot}")
                cuts.append(cut_out(op, source, held[worker], names[f"in{slot}"], region).work)
                self._add_buffer(worker, names[f"in{slot}"], self._tensors[source].name, region)
        names["out0"] = total[0] if len(total) == 1 else self._derived(f"{label}.part")
        if len(total) > 1:  # inside of a segment, or in the arena where all results are
            self._add_buffer(worker, names["out0"], self._tensors[total[1]].name, self._regions[worker][total[1]])
        done = named(label, todo.local, names, {}, self._derived, SMALL_CONSTANT_BYTES)
        for large, value in done.large.items():
            self._fix(worker, large, value)
        return added(op, cuts, done, None if len(total) == 1 else (total[0], names["out0"], total[1]))

    def _divided_in_steps(self, bound: BoundOp, strategy: Tiling, steps: Steps) -> SteppedDivision:
        op = bound.op
        key = (op.domain, op.op_type, told_apart(dict(op.attributes)), bound.content, strategy, steps)
        if key not in self._stepped:
            self._stepped[key] = SteppedDivision.of(bound, strategy, steps)
        return self._stepped[key]

    def _part_names(self, name: str, division: SteppedDivision) -> list[str]:
        """What the parts of a result are called; the owned tile's own name where the one part is just that."""
        made, count = division.made_as, len(division.parts.regions)
        is_own = not made.has_partial and count == 1 and made == self._plan.tilings[name]
        return [name if is_own else self._derived(f"{name}@part.{part}") for part in range(count)]

    def _home_of_parts(self, name: str, division: SteppedDivision, parts: Sequence[str]) -> _Home:
        """How a result that is made in parts comes to where it is owned.

        Args:
            name: of the tensor.
            division: of the op that makes it.
            parts: names of the parts' buffers.
        """
        if not is_used(self._graph, name) or list(parts) == [name]:
            return _Home({}, [])
        owned, tiles, made = self._plan.tilings[name], self._layout(name), division.made_as
        inside = settled(made, owned)
        assert inside is not None, f"{name} is made as {made}, and owned as {owned}"
        item_bytes = self._graph.tensors[name].dtype.item_bytes
        there, joins, last = division.parts, dict[int, list[tuple[int, Fetch]]](), list[tuple[int, Fetch]]()
        names = list(parts)
        if inside.has_partial:
            middle = tuple(reduced_boxes(inside, owned, index_space(self._graph.tensors[name].shape)))
            joined, reducer, every = contributors(inside), reducer_of(inside), range(self._workers)
            sources = [[other for other in every if joined[worker, other]] for worker in every]

            def joined_of(group: int | None) -> list[list[Box]]:
                return [there.joined(region, sources[worker], group) for worker, region in enumerate(middle)]

            # What chunks are added to is joined when all of them are, each part of its own as soon as it is made;
            # unless a worker joins parts of several chunks, which lie apart.
            groups: list[int | None] = [None]
            if not division.is_summed and all(_are_boxes(joined_of(part)) for part in range(len(parts))):
                groups = list(range(len(parts)))
            regions = []
            for group in groups:
                boxes = joined_of(group)
                regions.append(tuple(_hull(found, region) for found, region in zip(boxes, middle, strict=True)))
                is_own = group is None and middle == tiles.regions
                target = name if is_own else self._derived(f"{name}@reduced" + ("" if group is None else f".{group}"))
                taken = [(worker, 0, found) for worker, found in enumerate(boxes) if found]
                assert _are_boxes(boxes), f"what workers join of {name} are no boxes"
                for worker, _, _ in taken:
                    self._add_buffer(worker, target, name, regions[-1][worker])
                fetches = Round.of(taken, there.of).fetches(parts, (target,), reducer, item_bytes)
                if is_own:
                    return _Home({}, fetches)
                if group is None:
                    last += fetches
                else:
                    joins[group] = fetches
                names = [target] if group is None else [*names[:group], target, *names[group + 1 :]]
            there = Parts(tuple(regions))
        givers = self._givers(owned if owned.has_partial else None)
        copies = [
            (worker, 0, there.copied(region, givers(worker)))
            for worker, region in enumerate(tiles.regions)
            if not region.is_empty
        ]
        for worker, _, _ in copies:
            self._add_buffer(worker, name, name, tiles.regions[worker])
        last += Round.of(copies, there.of).fetches(names, (name,), None, item_bytes)
        return _Home(joins, last)

    def _take_home(self, name: str, fetches: list[tuple[int, Fetch]]) -> None:
        """Notes that a result lies where it is owned once these fetches are done."""
        if not is_used(self._graph, name):
            self._place(fetches)
            return
        self._owned[name] = (self._layout(name), (name,))
        if fetches:
            self._pending[name] = fetches
            if name not in self._following:
                self._returning.append(name)
                self._start_epoch()

    def _divided(self, bound: BoundOp, strategy: Tiling) -> Division:
        """An op's work, divided once for all equal ops: of the same type, attributes, content and constants."""
        constants = tuple(map(self._constant_key, bound.op.inputs))
        op, attributes = bound.op, told_apart(dict(bound.op.attributes))
        key = (op.domain, op.op_type, attributes, bound.content, strategy, constants if any(constants) else ())
        if key not in self._divisions:
            self._divisions[key] = Division.of(bound, strategy)
        return self._divisions[key]

    def _constant_key(self, name: str) -> Hashable:
        """Equal for equal constants; None for what is none."""
        if name not in self._graph.constants:
            return None
        value = self._graph.constants[name]
        if value is None or value.nbytes > SMALL_CONSTANT_BYTES:
            return name
        return str(value.dtype), value.shape, value.tobytes()

    def _bring(
        self, op: str, needed: Need, names: Sequence[str], target: str, tensor: str
    ) -> tuple[list[tuple[int, LocalWork]], list[tuple[int, Fetch]]]:
        """What is cut out of what workers hold, and the fetches that bring the rest.

        Args:
            op: for which it is done.
            needed: how workers come by what they need.
            names: of the buffers that hold it, by number.
            target: the buffer for it.
            tensor: of which it is a part.
        """
        for worker, region in needed.brought:
            self._add_buffer(worker, target, tensor, region)
        known: dict[object, LocalWork] = {}
        sliced = []
        for worker, number, frame, region in needed.sliced:
            cut = cut_out(op, names[number], frame, target, region)
            sliced.append((worker, known.setdefault(cut.key, cut.work)))
        if needed.taken is None:
            return sliced, []
        item_bytes = self._graph.tensors[tensor].dtype.item_bytes
        return sliced, needed.taken.fetches(names, (target,), None, item_bytes)

    def _deliver(self, bound: BoundOp) -> None:
        """Brings a tensor into the tiling of a shared delivery: by a fetch, and not at all where a worker has it so."""
        source, name = bound.op.inputs[0], bound.op.outputs[0]
        arriving = self._pending.pop(source, [])
        layout, names = self._owned[source]
        tiles = self._layout(name)
        key = (tiles, layout)
        if key not in self._needs:
            self._needs[key] = need(tiles.regions, layout, self._nearest_first)
        needed = self._needs[key]
        delivered = tuple(len(names) if number == BROUGHT else number for number in needed.buffers)
        self._owned[name] = (self._layouts.of(tiles.regions, delivered), (*names, name))
        sliced, fetches = self._bring(bound.op.name, needed, names, name, source)
        self._place([*arriving, *fetches])
        for worker, work in sliced:
            self._epochs[-1].work[worker].append(work)

    def _work(self, bound: BoundOp, division: Division, inputs: Mapping[int, Sequence[str | None]]) -> None:
        """Adds an op's local ops to the current epoch, their names replaced by buffers."""
        op = bound.op
        columns: list[Sequence[str | None]] = list(inputs.values())
        variables = [f"in{slot}" for slot in inputs]
        for position, name in enumerate(op.outputs):
            if name:
                variables.append(f"out{position}")
                columns.append(self._output_buffers(name, division, position))
        small: dict[str, np.ndarray] = {}
        for slot, name in enumerate(op.inputs):
            if name in self._graph.constants:
                variables.append(f"in{slot}")
                columns.append(self._constant_names(bound, division, slot, small))
        rows = list(zip(division.local, *columns, strict=True))
        known: dict[tuple[object, ...], LocalWork] = {}
        work = self._epochs[-1].work
        for worker in division.busy:
            row = rows[worker]
            done = known.get(row)
            if done is None:
                local = division.local_ops[division.local[worker]]
                names = {key: value for key, value in zip(variables, row[1:], strict=True) if value is not None}
                done = known[row] = named(op.name, local, names, small, self._derived, SMALL_CONSTANT_BYTES)
            for label, value in done.large.items():
                self._fix(worker, label, value)
            work[worker].append(done)

    def _output_buffers(self, name: str, division: Division, position: int) -> list[str | None]:
        """The buffers that workers' local ops fill: the owned tile itself where one makes just that."""
        way = self._way(name, division, position)
        names = (name, self._derived(f"{name}@made") if _MADE in way.made else "")
        made, regions = division.made[position], self._regions
        for worker in division.busy:
            regions[worker][names[way.made[worker]]] = made[worker]
        self._tensors.update(dict.fromkeys([one for one in names if one], self._graph.tensors[name]))
        return [None if number == NOTHING else names[number] for number in way.made]

    def _constant_names(
        self, bound: BoundOp, division: Division, slot: int, small: dict[str, np.ndarray]
    ) -> list[str | None]:
        """Where each worker has the part of a constant that it reads; None where it reads none."""
        found: list[str | None] = [None] * self._workers
        wanted = [any(f"in{slot}" in node.inputs for node in local.nodes) for local in division.local_ops]
        known: dict[Region | None, str] = {}
        for worker in division.busy:
            if wanted[division.local[worker]]:
                region = division.parts[worker].inputs[slot] if slot in bound.delivered_slots else None
                if known.get(region) not in small:
                    known[region] = self._constant(worker, bound.op.inputs[slot], region, small)
                found[worker] = known[region]
        return found

    def _constant(self, worker: int, name: str, region: Region | None, small: dict[str, np.ndarray]) -> str:
        """The part of a constant that a worker reads; all of it where the op's description does not read it.

        Where the model does not hold the value, that part is loaded before a run, as a state is.
        """
        value = self._graph.constants[name]
        whole = Region.whole(self._graph.tensors[name].shape)
        region = whole if region is None else region
        label = name if region == whole else self._derived(f"{name}{region}")
        if value is None:
            self._absent[worker][label] = None
            self._add_buffer(worker, label, name, region)
            return label
        part = value if region == whole else value[region.within(whole)]
        if not is_fill(part):
            part = np.ascontiguousarray(part)
        if part.nbytes <= SMALL_CONSTANT_BYTES:
            small[label] = part
        else:
            self._fix(worker, label, part, name, region)
        return label

    def _fix(self, worker: int, label: str, value: np.ndarray, tensor: str = "", region: Region | None = None) -> None:
        """Notes an array of a worker's own, unless it has that."""
        if label not in self._fixed[worker]:
            self._fixed[worker][label] = value
            self._regions[worker][label] = region or Region.whole(value.shape)
            self._tensors[label] = (
                self._graph.tensors[tensor] if tensor else Tensor(label, value.shape, DType(str(value.dtype)))
            )

    def _givers(self, partial: Tiling | None) -> Callable[[int], Sequence[int]]:
        """From whom a worker may copy a tensor as it is owned, the nearest first: not other contributions.

        Args:
            partial: the tensor's tiling, if it is partial.
        """
        if partial is None:
            return self._nearest_first
        same = holders(partial)
        return lambda worker: [other for other in self._nearest_first(worker) if same[worker][other]]

    def _way(self, name: str, division: Division, position: int) -> _Way:
        """How an output comes from where it is made to where it is owned."""
        owned, is_read = self._plan.tilings[name], is_used(self._graph, name)
        key = (division, position, owned, is_read)
        if key not in self._ways:
            self._ways[key] = self._found_way(name, division, position, owned, is_read=is_read)
        return self._ways[key]

    def _found_way(self, name: str, division: Division, position: int, owned: Tiling, *, is_read: bool) -> _Way:
        made = division.made_as[position]
        assert made is not None, "an absent output is never made"
        if is_read:
            inside = settled(made, owned)
            assert inside is not None, f"{name} is made as {made}, and owned as {owned}"
            made = inside
        regions, tiles = division.made[position], self._layout(name)
        busy = set(division.busy)
        numbers = [
            (_OWN if not made.has_partial and tiles.regions[worker] == region else _MADE) if worker in busy else NOTHING
            for worker, region in enumerate(regions)
        ]
        if not is_read:
            return _Way(tuple(numbers))
        filled: list[tuple[int, int, Region]] = []
        rounds: list[tuple[Round, Reducer | None]] = []
        makers = self._layouts.of(
            regions, [NOTHING if region.is_empty else number for number, region in zip(numbers, regions, strict=True)]
        )
        if made.has_partial:
            shape = index_space(self._graph.tensors[name].shape)
            makers = self._joined(made, owned, shape, makers, tiles, filled, rounds)
        givers = self._givers(owned if owned.has_partial else None)
        taken = []
        holders = Holders(makers)
        for worker in counted(range(self._workers), "making programs: sources of worker", self._workers):
            region = tiles.regions[worker]
            if region.is_empty or (makers.buffers[worker] == _OWN and makers.regions[worker] == region):
                continue
            filled.append((worker, _OWN, region))
            taken.append((worker, _OWN, copied(region, holders.of(region), givers(worker))))
        if taken:
            rounds.append((Round.of(taken, makers.buffers), None))
        freed = max(region.elements for region in regions) - max((one.elements for one in tiles.regions), default=0)
        return _Way(tuple(numbers), tuple(filled), tuple(rounds), tiles, freed)

    def _joined(
        self,
        made: Tiling,
        owned: Tiling,
        shape: Shape,
        makers: Layout,
        tiles: Layout,
        filled: list[tuple[int, int, Region]],
        rounds: list[tuple[Round, Reducer | None]],
    ) -> Layout:
        """Adds the round that joins partial results, spread over the workers; returns who then has what."""
        middle = tuple(reduced_boxes(made, owned, shape))
        joined = contributors(made)
        numbers, taken, held = [], [], makers.held
        partial: dict[bytes, Contributions] = {}
        """By which workers are joined: most have the same."""
        for worker in counted(range(self._workers), "making programs: sums of worker", self._workers):
            region = middle[worker]
            if region.is_empty:
                numbers.append(NOTHING)
                continue
            numbers.append(_OWN if region == tiles.regions[worker] else _REDUCED)
            filled.append((worker, numbers[-1], region))
            key = joined[worker].tobytes()
            if key not in partial:
                partial[key] = Contributions(held, np.flatnonzero(joined[worker]).tolist())
            taken.append((worker, numbers[-1], partial[key].to(region)))
        rounds.append((Round.of(taken, makers.buffers), reducer_of(made)))
        return self._layouts.of(middle, numbers)

    def _bring_home(self, name: str, division: Division, position: int) -> None:
        """Prepares the fetches that bring an output from where it was made to where it is owned."""
        way = self._way(name, division, position)
        if way.owned is None:
            return
        self._owned[name] = (way.owned, (name,))
        names = (name, self._derived(f"{name}@made"), self._derived(f"{name}@reduced"))
        for worker, number, region in way.filled:
            self._add_buffer(worker, names[number], name, region)
        item_bytes = self._graph.tensors[name].dtype.item_bytes
        self._pending[name] = [
            fetch for taken, reducer in way.rounds for fetch in taken.fetches(names, names, reducer, item_bytes)
        ]
        if name not in self._following:
            if way.freed_elements > 0:
                self._returning.append(name)
            if way.freed_elements * item_bytes > self._much:
                self._start_epoch()

    def _derived(self, name: str) -> str:
        """A name for a buffer or value of our own: the one given, unless the model has a tensor of that name."""
        while name in self._graph.tensors:
            name += "'"
        return name

    def _place(self, fetches: Sequence[tuple[int, Fetch]]) -> None:
        """Puts fetches behind all work so far: at the front of the current epoch, or of a new one if it has some."""
        if not fetches:
            return
        if any(self._epochs[-1].work):
            self._start_epoch()
        for worker, fetch in fetches:
            self._epochs[-1].fetches[worker].append(fetch)

    def _start_epoch(self) -> None:
        every = range(self._workers)
        self._epochs.append(Epoch([[] for _ in every], [[] for _ in every]))
        for name in self._returning:
            for worker, fetch in self._pending.pop(name, []):
                self._epochs[-1].fetches[worker].append(fetch)
        self._returning.clear()

    def _own(self, name: str) -> None:
        """Notes who owns an input of the graph."""
        layout = self._layout(name)
        self._owned[name] = (layout, (name,))
        for worker, region in layout.held.items():
            self._add_buffer(worker, name, name, region)

    def _layout(self, name: str) -> Layout:
        """The tiles of a tensor as it is owned."""
        key = self._plan.tilings[name], self._graph.tensors[name].shape
        if key not in self._tiles:
            regions = tuple(key[0].boxes(key[1]))
            self._tiles[key] = self._layouts.of(regions, [NOTHING if one.is_empty else _OWN for one in regions])
        return self._tiles[key]

    def _add_buffer(self, worker: int, name: str, tensor: str, region: Region) -> None:
        self._regions[worker][name] = region
        self._tensors[name] = self._graph.tensors[tensor]


def _are_boxes(every: Sequence[Sequence[Box]]) -> bool:
    """Whether of each worker's boxes all together are one box."""
    return all(sum(box.elements for box, _ in boxes) == _hull(boxes, boxes[0][0]).elements for boxes in every if boxes)


def _hull(boxes: Sequence[Box], like: Region) -> Region:
    """The smallest box around boxes; an empty one where there are none."""
    found = Region(like.lo, like.lo)
    for box, _ in boxes:
        found = found.hull(box)
    return found


def _input_names(numbers: Sequence[int], names: Sequence[str], target: str) -> list[str | None]:
    """By worker, the buffer that has what it needs of an input; None where it needs nothing."""
    return [None if one == NOTHING else target if one == BROUGHT else names[one] for one in numbers]


def _replaced(graph: Graph) -> dict[str, list[str]]:
    """By op: the next states that nothing keeps from being written over their states once the op is done."""
    last: dict[str, str] = {}
    for op in graph.ops:
        last.update(dict.fromkeys((*op.inputs, *op.outputs), op.name))
    number = {op.name: position for position, op in enumerate(graph.ops)}
    found: dict[str, list[str]] = {}
    for pair in graph.state:
        if pair.following in graph.producer and pair.current not in graph.outputs:
            ops = [last[name] for name in (pair.current, pair.following) if name in last]
            found.setdefault(max(ops, key=number.__getitem__), []).append(pair.following)
    return found
