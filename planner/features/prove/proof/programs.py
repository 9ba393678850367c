"""A partitioned program, followed worker by worker in an order that its data allow: what each buffer holds."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NoReturn

import numpy as np
from onnx import FunctionProto

from planner.algebra.region import Region, index_space, tile
from planner.algebra.tiling import Reducer
from planner.artifacts.program import Buffer, Fetch, Piece, Program, Segment, Step
from planner.features.prove.proof.calls import Array, Calls, is_at
from planner.features.prove.proof.claims import Claim, Partial, Symbol
from planner.features.prove.proof.expression import Num
from planner.features.prove.proof.pairing import Literal
from planner.features.prove.proof.result import Fault, Proof
from planner.features.prove.proof.whole import Whole, held


@dataclass(frozen=True, slots=True)
class WorkerFile:
    """The parts of a worker's file that a proof needs beside its steps."""

    bodies: Mapping[str, FunctionProto]
    constants: Mapping[str, np.ndarray]


class FaultError(Exception):
    """Ends a proof."""

    def __init__(self, fault: Fault) -> None:
        super().__init__(fault.holds)
        self.fault = fault


def prove(calls: Calls, program: Program, files: Sequence[WorkerFile]) -> Proof:
    """Follows a program.

    Args:
        calls: of the model's functions; those that programs before had are not followed again.
        program: of all workers; names, boxes and order were checked.
        files: by worker.
    """
    walk = _Walk(calls, program, files)
    fault = None
    try:
        walk.run()
    except FaultError as error:
        fault = error.fault
    return Proof(len(program.outputs), sum(map(len, walk.claims)), calls.functions, walk.fetches, fault)


class _Walk:
    """One proof.

    Attributes:
        claims: by worker and buffer.
        fetches: how many were followed.
    """

    def __init__(self, calls: Calls, program: Program, files: Sequence[WorkerFile]) -> None:
        self._calls = calls
        self._reference = calls.reference
        self._program = program
        self._files = files
        self.claims: list[dict[str, Claim]] = [{} for _ in program.workers]
        self._constants: list[dict[str, Num | Literal]] = [{} for _ in program.workers]
        self._pieces: dict[Hashable, Partial | None] = {}
        """What pieces bring, by identity: readers share them, and the program keeps them."""
        self._together: dict[tuple[int, ...], tuple[list[Partial], Partial | str | None]] = {}
        """What contributions are together, by identity: calls that are alike share theirs."""
        self.fetches = 0

    def run(self) -> None:
        for worker in self._program.workers:
            for name in worker.loaded:
                self._load(worker.worker, worker.buffers[name])
            for name in worker.fixed:
                self._constants[worker.worker][name] = held(self._files[worker.worker].constants[name])
        done = [0] * len(self._program.workers)
        moving = True
        while moving:
            moving = False
            for worker in self._program.workers:
                while done[worker.worker] < len(worker.steps) and self._try(
                    worker.worker, worker.steps[done[worker.worker]]
                ):
                    done[worker.worker] += 1
                    moving = True
        for worker in self._program.workers:
            if done[worker.worker] < len(worker.steps):
                step = worker.steps[done[worker.worker]]
                self._fail(worker.worker, step, "", "nothing: it waits for what is never written", "a value")
        self._collect()

    # What is given and what is given back.

    def _load(self, worker: int, buffer: Buffer) -> None:
        tensor = self._reference.graph.tensors.get(buffer.tensor)
        lacks_value = self._reference.graph.constants.get(buffer.tensor, 0) is None
        if tensor is None or not (buffer.tensor in self._reference.graph.inputs or lacks_value):
            self._fail(worker, None, buffer.name, f"a part of {buffer.tensor!r}", "a part of an input")
        space = Region.whole(tensor.shape)
        if not space.contains(buffer.region) or buffer.dtype not in (tensor.dtype, tensor.dtype.carrier):
            self._fail(worker, None, buffer.name, f"{buffer.region} of {buffer.dtype.value}", f"a part of {space}")
        self.claims[worker][buffer.name] = self._stated(buffer)

    def _stated(self, buffer: Buffer, partial: Partial | None = None) -> Claim:
        """What a buffer says that it holds."""
        lo = buffer.region.lo if buffer.shape else ()
        return Claim(self._reference.symbol(buffer.tensor), lo, buffer.shape, partial)

    def _collect(self) -> None:
        held_by: dict[str, list[Region]] = {name: [] for name in self._program.outputs}
        following = {pair.current: pair.following for pair in self._reference.graph.state}
        for worker in self._program.workers:
            collected = set()
            for name in worker.collected:
                buffer = worker.buffers[name]
                self._check_final(worker.worker, buffer)
                if buffer.tensor not in held_by:
                    self._fail(worker.worker, None, name, f"a part of {buffer.tensor!r}", "a part of an output")
                held_by[buffer.tensor].append(buffer.region)
                collected.add((buffer.tensor, buffer.region))
            for name in worker.loaded:
                buffer = worker.buffers[name]
                if buffer.tensor in following and (following[buffer.tensor], buffer.region) not in collected:
                    self._fail(
                        worker.worker, None, name, "a state whose next value is not made here", following[buffer.tensor]
                    )
        for name, regions in held_by.items():
            missing: tuple[Region, ...] = (Region.whole(index_space(self._reference.graph.tensors[name].shape)),)
            for region in dict.fromkeys(regions):
                missing = tuple(gap for box in missing for gap in box.subtract(region))
            if missing and self._reference.graph.tensors[name].elements:
                self._fail(0, None, name, f"nothing at {missing[0]}: no worker gives it back", "an output")

    def _check_final(self, worker: int, buffer: Buffer) -> None:
        """A buffer holds what it states, and final values."""
        claim = self.claims[worker].get(buffer.name)
        if claim is None:
            constant = self._constants[worker].get(buffer.name)
            content = self._reference.constant(buffer.tensor)
            if constant is None or constant != content:
                self._fail(worker, None, buffer.name, "nothing that is known", f"{buffer.tensor}{buffer.region}")
            return
        if claim.partial is not None:
            self._fail(worker, None, buffer.name, str(claim), f"all of {buffer.tensor}{buffer.region}")

    # Steps.

    def _try(self, worker: int, step: Step) -> bool:
        """Follows a step, if all that it reads is known."""
        if isinstance(step, Fetch):
            sources = (source for piece in step.pieces for source in piece.sources)
            if any(source.buffer not in self.claims[source.worker] for source in sources):
                return False
            self._fetch(worker, step)
        else:
            self._segment(worker, step)
        return True

    def _fetch(self, worker: int, step: Fetch) -> None:
        self.fetches += 1
        target = self._program.workers[worker].buffers[step.target]
        symbol = self._reference.symbol(target.tensor)
        regions = tuple([piece.region for piece in step.pieces])
        if not tile(regions, target.region):
            holds = f"pieces {', '.join(map(str, regions))}"
            self._fail(worker, step, target.name, holds, f"{target.region}, each element once")
        brought = [self._brought(worker, step, piece, symbol) for piece in step.pieces]
        partial = brought[0]
        if any(contribution is not partial and contribution != partial for contribution in brought):
            holds = "; ".join(
                f"from worker {', '.join(str(source.worker) for source in piece.sources)} "
                f"{'all of it' if contribution is None else self._stated(target, contribution)}"
                for contribution, piece in dict(zip(brought, step.pieces, strict=True)).items()
            )
            self._fail(worker, step, target.name, holds, "all of it, or the same part everywhere")
        moved_bytes = sum(size for giver, size in step.taken_bytes(target.dtype.item_bytes).items() if giver != worker)
        if moved_bytes != step.predicted_bytes:
            self._fail(
                worker, step, target.name, f"{moved_bytes} bytes from others", f"{step.predicted_bytes}, as stated"
            )
        self.claims[worker][target.name] = self._stated(target, partial)

    def _brought(self, worker: int, step: Fetch, piece: Piece, symbol: Symbol) -> Partial | None:
        """What a piece brings."""
        key = id(piece), symbol, step.reducer
        if key not in self._pieces:
            claims = [self.claims[source.worker][source.buffer] for source in piece.sources]
            for claim, source in zip(claims, piece.sources, strict=True):
                if claim.tensor != symbol or not claim.holds(piece.region):
                    holds = f"at {piece.region} what {source.buffer!r} of worker {source.worker} holds: {claim}"
                    # What ops make may be equal to what other ops make; two inputs are not.
                    is_wrong = {claim.tensor, symbol} <= set(self._reference.graph.inputs)
                    should = f"{self._program.workers[worker].buffers[step.target].tensor}{piece.region}"
                    self._fail(worker, step, step.target, holds, should, is_wrong=is_wrong)
            self._pieces[key] = self._joined(worker, step, piece.region, claims)
        return self._pieces[key]

    def _joined(self, worker: int, step: Fetch, region: Region, claims: Sequence[Claim]) -> Partial | None:
        first = claims[0].partial
        if len(claims) == 1:
            return first
        partials = [claim.partial for claim in claims[1:] if claim.partial is not None]
        if first is None or len(partials) + 1 != len(claims):
            if step.reducer in (Reducer.MAX, Reducer.MIN) and first is None and not partials:
                return None
            self._fail(worker, step, step.target, f"final values that are joined, at {region}", "each once")
        if first.reducer is not step.reducer:
            self._fail(worker, step, step.target, f"joined by {step.reducer}", f"by {first.reducer}")
        key = tuple(map(id, [first, *partials]))
        if key not in self._together:
            together = first.with_others(partials)
            is_all = isinstance(together, Partial) and together.is_whole
            self._together[key] = [first, *partials], None if is_all else together
        _, joined = self._together[key]
        if isinstance(joined, str):
            self._fail(worker, step, step.target, f"at {region}: {joined}", "each contribution once")
        return joined

    def _segment(self, worker: int, step: Segment) -> None:
        buffers = self._program.workers[worker].buffers
        unknown = [name for name in step.ops if name not in self._reference.ops]
        if unknown:
            self._fail(worker, step, step.outputs[0], f"a part of op {unknown[0]!r}", "a part of an op of the model")
        read: list[Array] = []
        for name in step.inputs:
            content = self.claims[worker].get(name) or self._constants[worker].get(name)
            if content is None:
                self._fail(worker, step, name, "nothing: it is read before it is written", "a value")
            read.append((buffers[name], content))
        stated = [self._stated(buffers[name]) for name in step.outputs]
        outputs: list[Array] = [(buffers[name], claim) for name, claim in zip(step.outputs, stated, strict=True)]
        effect = self._calls.effect(self._files[worker].bodies[step.function], step.ops, read, outputs)
        for name, claim, spot in zip(step.outputs, stated, effect.outputs, strict=True):
            if spot is None:
                op = ", ".join(map(self._reference.label, step.ops if effect.op is None else [step.ops[effect.op]]))
                holds = f"what is not seen to be it: {effect.reason}"
                self._fail(worker, step, name, holds, str(claim), op=op, is_wrong=False)
            lo, partial = spot
            self.claims[worker][name] = replace(claim, lo=lo, partial=partial)
            if not is_at(spot, claim):
                # A part of a constant that repeats may be told at the first of several places.
                self._fail(worker, step, name, f"another part: at {lo}", str(claim), is_wrong=False)

    def _fail(
        self,
        worker: int,
        step: Step | None,
        buffer: str,
        holds: str,
        should: str,
        *,
        op: str = "",
        is_wrong: bool = True,
    ) -> NoReturn:
        fault = fault_at(self._reference, self._program, worker, step, buffer, holds, should)
        raise FaultError(replace(fault, op=op or fault.op, is_counterexample=is_wrong))


def fault_at(
    reference: Whole, program: Program, worker: int | None, step: Step | None, buffer: str, holds: str, should: str
) -> Fault:
    """A counterexample, with the op of the model that it is of.

    Args:
        reference: the model.
        program: of all workers.
        worker: None: several, or all.
        step: None: no step alone.
        buffer: of that worker, or a tensor; "" where it is of several or none.
        holds: what is there.
        should: what should be.
    """
    title = "" if step is None else f"{'fetch' if isinstance(step, Fetch) else 'segment'} {step.name!r}"
    named = step.target if isinstance(step, Fetch) and not buffer else buffer
    held_in = None if worker is None else program.workers[worker].buffers.get(named)
    maker = reference.makers.get(held_in.tensor if held_in else named)
    ops = [maker] if maker is not None else step.ops if isinstance(step, Segment) else ()
    return Fault(worker, title, buffer, ", ".join(map(reference.label, ops)), holds, should, is_counterexample=True)
