"""The second pass of an op: what each worker computes, on the buffers that it has."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence

import numpy as np

from planner.algebra.region import Region
from planner.algebra.tiling import Tiling
from planner.artifacts.plan import Steps
from planner.graph.files.fills import is_fill
from planner.partition.division import Division
from planner.partition.draft import Draft
from planner.partition.local_work import LocalWork, added, cut_out, named, told_apart
from planner.partition.stepping import SteppedDivision, TileWork
from planner.partition.ways import Regions
from planner.tdl.bind import BoundOp

SMALL_CONSTANT_BYTES = 1024
"""Constants up to this size stand in the code; larger ones are arrays of the worker."""


class Computation:
    """Divides ops, and adds their local ops to the program.

    Args:
        draft: the program.
    """

    def __init__(self, draft: Draft) -> None:
        self._draft = draft
        self._divisions: dict[object, Division] = {}
        self._stepped: dict[object, SteppedDivision] = {}

    def divided(self, described: BoundOp, strategy: Tiling) -> Division:
        """An op's work, divided once for all equal ops: of the same type, attributes, content and constants."""
        constants = tuple(map(self._constant_key, described.op.inputs))
        key = (_kind(described), strategy, constants if any(constants) else ())
        if key not in self._divisions:
            self._divisions[key] = Division.of(described, strategy)
        return self._divisions[key]

    def divided_in_steps(self, described: BoundOp, strategy: Tiling, steps: Steps) -> SteppedDivision:
        """An op's work in steps, divided once for all equal ops."""
        key = (_kind(described), strategy, steps)
        if key not in self._stepped:
            self._stepped[key] = SteppedDivision.of(described, strategy, steps)
        return self._stepped[key]

    def _constant_key(self, name: str) -> Hashable:
        """Equal for equal constants; None for what is none."""
        if name not in self._draft.graph.constants:
            return None
        value = self._draft.graph.constants[name]
        if value is None or value.nbytes > SMALL_CONSTANT_BYTES:
            return name
        return str(value.dtype), value.shape, value.tobytes()

    def work(self, described: BoundOp, division: Division, buffers: Mapping[str, Sequence[str | None]]) -> None:
        """Adds an op's local ops to the current epoch.

        Args:
            described: the op.
            division: of its work.
            buffers: by variable of the local ops, ``in0`` or ``out0``, and by worker.
        """
        op, draft = described.op, self._draft
        columns = dict(buffers)
        small: dict[str, np.ndarray] = {}
        for slot, name in enumerate(op.inputs):
            if name in draft.graph.constants:
                columns[f"in{slot}"] = self._constant_names(described, division, slot, small)
        rows = list(zip(division.local, *columns.values(), strict=True))
        work_by_row: dict[tuple[object, ...], LocalWork] = {}
        works: list[tuple[int, LocalWork]] = []
        for worker in division.busy:
            row = rows[worker]
            done = work_by_row.get(row)
            if done is None:
                local = division.local_ops[division.local[worker]]
                names = {key: value for key, value in zip(columns, row[1:], strict=True) if value is not None}
                done = work_by_row[row] = named(op.name, local, names, small, draft.derived, SMALL_CONSTANT_BYTES)
            for label, value in done.large.items():
                draft.fix(worker, label, value)
            works.append((worker, done))
        draft.add_work(works)

    def _constant_names(
        self, described: BoundOp, division: Division, slot: int, small: dict[str, np.ndarray]
    ) -> list[str | None]:
        """Where each worker has the part of a constant that it reads; None where it reads none."""
        labels: list[str | None] = [None] * self._draft.plan.workers
        wanted = [any(f"in{slot}" in node.inputs for node in local.nodes) for local in division.local_ops]
        label_of: dict[Region | None, str] = {}
        for worker in division.busy:
            if wanted[division.local[worker]]:
                region = division.parts[worker].inputs[slot] if slot in described.delivered_slots else None
                if label_of.get(region) not in small:
                    label_of[region] = self._constant(worker, described.op.inputs[slot], region, small)
                labels[worker] = label_of[region]
        return labels

    def _constant(self, worker: int, name: str, region: Region | None, small: dict[str, np.ndarray]) -> str:
        """The part of a constant that a worker reads; all of it where the op's description does not read it."""
        draft = self._draft
        value = draft.graph.constants[name]
        index_space = Region.whole(draft.graph.tensors[name].shape)
        region = index_space if region is None else region
        label = name if region == index_space else draft.derived(f"{name}{region}")
        if value is None:
            draft.await_value(worker, label, name, region)
            return label
        part = value if region == index_space else value[region.within(index_space)]
        if not is_fill(part):
            part = np.ascontiguousarray(part)
        if part.nbytes <= SMALL_CONSTANT_BYTES:
            small[label] = part
        else:
            draft.fix(worker, label, part, name, region)
        return label

    def step(
        self,
        worker: int,
        op: str,
        label: str,
        todo: TileWork,
        inputs: Mapping[int, tuple[Regions, Sequence[str | None]]],
        total: tuple[str, ...],
    ) -> None:
        """Adds the work of a worker for a part of a result with one chunk.

        Args:
            worker: which.
            op: the op's name.
            label: tells this work from all other of the op.
            todo: the work.
            inputs: by position what workers hold of each input, and the buffers.
            total: the sum before and after; the part alone where there is no sum before.
        """
        draft = self._draft
        cuts: list[LocalWork] = []
        names: dict[str, str] = {}
        for slot, region in todo.reads.items():
            held, buffers = inputs[slot]
            source = buffers[worker]
            assert source is not None, "what a worker reads is brought to it"
            names[f"in{slot}"] = source
            if held[worker] != region:
                names[f"in{slot}"] = draft.derived(f"{label}.in{slot}")
                cuts.append(cut_out(op, source, held[worker], names[f"in{slot}"], region).work)
                draft.add_buffer(names[f"in{slot}"], draft.tensor(source), [(worker, region)])
        names["out0"] = total[0] if len(total) == 1 else draft.derived(f"{label}.part")
        if len(total) > 1:  # inside of a segment, or in the arena where all results are
            draft.add_buffer(names["out0"], draft.tensor(total[1]), [(worker, draft.region(worker, total[1]))])
        done = named(label, todo.local, names, {}, draft.derived, SMALL_CONSTANT_BYTES)
        for large, value in done.large.items():
            draft.fix(worker, large, value)
        work = added(op, cuts, done, None if len(total) == 1 else (total[0], names["out0"], total[1]))
        draft.add_work([(worker, work)])


def _kind(described: BoundOp) -> Hashable:
    """Equal for ops that do the same to what they read, but for constants."""
    op = described.op
    return op.domain, op.op_type, told_apart(dict(op.attributes)), described.content
