"""Runs an op split and whole: does every worker's local op, put together, give what the op gives?

Tofu (section 9) leaves open that nothing checks a description against its operator. Here each strategy that the
analysis derives is executed: every worker is given the regions that the description says it reads, runs its local op,
and what the workers make is concatenated or reduced as the description says.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np

from planner.algebra.region import Region
from planner.algebra.tiling import Reducer, Shard, Tiling, coordinates, ways_text
from planner.artifacts.plan import Steps
from planner.errors import TofuError
from planner.features.ops.execute import ExecutionError, execute
from planner.partition.stepping import SteppedDivision
from planner.planning.limit.in_steps import step_variables
from planner.tdl.bind import BoundOp
from planner.tdl.local import LocalNode, LocalOp, NotLocalError

JOIN = {Reducer.SUM: np.add, Reducer.MAX: np.maximum, Reducer.MIN: np.minimum, Reducer.PROD: np.multiply}
TOLERANCE_EPSILONS = 64.0
"""How far a result may be from the whole op's, in units of its dtype's epsilon, by norm: sums change their order."""


class Kind(enum.Enum):
    """The kind of a finding."""

    VETOED = "vetoed"
    """No local op computes a part (NotLocalError): the strategy is left out of the search, which is no mistake."""
    FAILED = "failed"
    """A local op cannot be executed."""
    SHAPE = "shape"
    """A local op makes an array of another shape than the part's region."""
    DISAGREE = "disagree"
    """Two workers that make the same elements make different ones."""
    UNMADE = "unmade"
    """Elements that no worker makes."""
    DIFFERENT = "different"
    """The result put together is not the whole op's."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is wrong with a strategy."""

    kind: Kind
    message: str
    """Names worker and output where there is one."""
    error: float = 0.0
    """Largest difference over the largest element of the whole result; 0 where no number says it."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """A strategy, executed."""

    strategy: Tiling
    text: str
    """The strategy by the names of index variables: ``co/2 y/3``."""
    findings: tuple[Finding, ...]
    """Empty if it is right."""
    bit_equal: bool = False
    """True if every output has the very bits of the whole op's."""
    largest_error: float = 0.0
    """Largest difference of an output, over the largest element of the whole result."""

    @property
    def is_wrong(self) -> bool:
        return any(finding.kind is not Kind.VETOED for finding in self.findings)


@dataclass(frozen=True, slots=True)
class Candidate:
    """A strategy that the analysis admits."""

    strategy: Tiling
    text: str
    """By the names of index variables: ``co/2 y/3``."""
    veto: str
    """Why some worker's part has no local op; "" if every part has one."""


def strategy_text(op: BoundOp, strategy: Tiling) -> str:
    """A strategy by the names of index variables, e.g. ``co/2 y0,block 16/3 R/2``."""
    parts = []
    for placement, ways in zip(strategy.placements, strategy.ways, strict=True):
        if isinstance(placement, Shard):
            block = f",block {placement.block}" if placement.block != 1 else ""
            nest = f"@{placement.nest}" if placement.nest else ""
            parts.append(f"{op.variables[placement.dim].name}{block}{nest}/{ways_text(placement, ways)}")
        else:
            parts.append(f"{placement}/{ways}")
    return " ".join(parts)


def enumerate_strategies(op: BoundOp, *ways: int) -> tuple[Candidate, ...]:
    """All strategies that the analysis admits, one cut for each number of ways, outermost first.

    Every variable without an obstacle, in blocks of 1 and as the description proposes; strategies that divide the
    iteration space alike are given once, and none leaves a worker idle.
    """
    choices = [
        Shard(number, block)
        for number, variable in enumerate(op.variables)
        if not variable.obstacle
        for block in (1, *variable.blocks)
    ]
    seen: set[tuple[bytes, bytes]] = set()
    candidates = []
    for placements in product(choices, repeat=len(ways)):
        strategy = Tiling(placements, ways)
        ranges = op.ranges(strategy)
        key = (ranges.lo.tobytes(), ranges.hi.tobytes())
        if key in seen or int(ranges.elements.min()) == 0:
            continue
        seen.add(key)
        candidates.append(Candidate(strategy, strategy_text(op, strategy), op.veto(ranges)))
    return tuple(candidates)


def run_whole(op: BoundOp, inputs: Mapping[str, np.ndarray]) -> dict[int, np.ndarray]:
    """The outputs of the unsplit op, by position.

    Args:
        op: the op.
        inputs: the arrays of its inputs by tensor name; constants may be left out.

    Raises:
        ExecutionError: it cannot be executed.
    """
    operands = {f"in{slot}": array for slot, array in _arrays(op, inputs).items()}
    slots = tuple(f"in{slot}" if name else "" for slot, name in enumerate(op.op.inputs))
    outputs = tuple(f"out{position}" if name else "" for position, name in enumerate(op.op.outputs))
    whole = LocalOp((LocalNode(op.op.op_type, slots, outputs, dict(op.op.attributes), op.op.domain),))
    results = execute(whole, operands, _outputs(op), op.node.opset, op.description)
    return {int(name.removeprefix("out")): array for name, array in results.items()}


def enumerate_steps(op: BoundOp, strategy: Tiling, *counts: int) -> Iterator[Steps]:
    """The steps that an op which sums products can run in: along each of its variables that allow it.

    Args:
        op: the op.
        strategy: how it is divided among workers.
        counts: how many steps; left out where a worker has not as much of the variable.
    """
    for number in step_variables(op):
        ranges = op.ranges(strategy)
        least = int((ranges.hi - ranges.lo)[list(strategy.busy), number].min())
        yield from (Steps(number, count) for count in counts if count <= least)


def verify_strategy(
    op: BoundOp,
    strategy: Tiling,
    inputs: Mapping[str, np.ndarray],
    *,
    whole: Mapping[int, np.ndarray] | None = None,
    steps: Steps | None = None,
) -> Verdict:
    """Executes one strategy and compares it with the whole op.

    Args:
        op: the op.
        strategy: one cut or several; a placement's dim is an index variable.
        inputs: the arrays of the op's inputs by tensor name; constants may be left out.
        whole: what ``run_whole`` returned, where it is known already.
        steps: run it so, chunk by chunk; None: at once.
    """
    expected = whole if whole is not None else run_whole(op, inputs)
    text = strategy_text(op, strategy)
    if steps is not None:
        text += f" in {steps.count} steps along {op.variables[steps.variable].name}"
    findings: list[Finding] = []
    try:
        arrays = _arrays(op, inputs)
        if steps is None:
            outputs = _run_workers(op, strategy, arrays, findings)
        else:
            outputs = _run_in_steps(op, strategy, steps, arrays)
    except NotLocalError as error:
        return Verdict(strategy, text, (Finding(Kind.VETOED, str(error)),))
    except ExecutionError as error:
        return Verdict(strategy, text, (Finding(Kind.FAILED, str(error)),))
    # Arrays of wrong shapes cannot be joined.
    if findings:
        return Verdict(strategy, text, tuple(findings))
    bit_equal, largest = True, 0.0
    for position, array in sorted(expected.items()):
        joined = _join(op, strategy, outputs, position, array, findings)
        difference = normwise_error(joined, array)
        bit_equal = bit_equal and joined.tobytes() == array.tobytes()
        largest = max(largest, difference)
        if difference > tolerance(array.dtype):
            message = f"output {position} differs from the whole op's by {difference:.2e} of its largest element"
            findings.append(Finding(Kind.DIFFERENT, message, difference))
    return Verdict(strategy, text, tuple(findings), bit_equal, largest)


def _outputs(op: BoundOp) -> tuple[str, ...]:
    """The names of an op's outputs in a local op."""
    return tuple(f"out{position}" for position, dtype in enumerate(op.node.output_dtypes) if dtype is not None)


def _arrays(op: BoundOp, inputs: Mapping[str, np.ndarray]) -> dict[int, np.ndarray]:
    arrays: dict[int, np.ndarray] = {}
    for slot, name in enumerate(op.op.inputs):
        constant = op.node.constants[slot]
        if name in inputs:
            arrays[slot] = inputs[name]
        elif constant is not None:
            arrays[slot] = constant
        elif name:
            raise TofuError(f"input {name} of op {op.op.name} is not given")
    return arrays


Outputs = dict[int, dict[int, tuple[Region, np.ndarray]]]
"""By worker and output position: the region and its array."""


def _run_workers(op: BoundOp, strategy: Tiling, arrays: Mapping[int, np.ndarray], findings: list[Finding]) -> Outputs:
    ranges = op.ranges(strategy)
    reads = op.reads(ranges)
    outputs: Outputs = {}
    for worker in range(ranges.workers):
        if ranges.elements[worker] == 0:
            continue
        part = op.part(ranges, reads, worker)
        local = op.local_op(part)
        inputs = {
            f"in{slot}": _sliced(arrays[slot], region) for slot, region in enumerate(part.inputs) if region is not None
        }
        results = execute(local, inputs, _outputs(op), op.node.opset, op.description)
        outputs[worker] = {}
        for position, region in enumerate(part.outputs):
            if region is None:
                continue
            array = results[f"out{position}"]
            shape = () if op.node.output_shapes[position] == () else region.shape
            if array.shape != shape:
                message = f"worker {worker}, output {position}: made {list(array.shape)}, not {list(shape)}"
                findings.append(Finding(Kind.SHAPE, message))
            outputs[worker][position] = (region, array)
    return outputs


def _run_in_steps(op: BoundOp, strategy: Tiling, steps: Steps, arrays: Mapping[int, np.ndarray]) -> Outputs:
    """What workers make of the one output of an op that sums products, a chunk after the other."""
    division = SteppedDivision.of(op, strategy, steps)
    parts: dict[int, dict[int, np.ndarray]] = {worker: {} for worker in division.busy}
    for chunk in division.chunks:
        for part, work in chunk.work.items():
            for worker, todo in work.items():
                inputs = {f"in{slot}": _sliced(arrays[slot], region) for slot, region in todo.reads.items()}
                result = execute(todo.local, inputs, _outputs(op), op.node.opset, op.description)["out0"]
                parts[worker][part] = parts[worker][part] + result if part in parts[worker] else result
    regions = tuple(op.makes(op.ranges(strategy), 0))
    outputs: Outputs = {}
    for worker, results in parts.items():
        array = np.zeros(regions[worker].shape, dtype=next(iter(results.values())).dtype)
        for part, result in results.items():
            where = division.parts[part][worker].within(regions[worker])
            array[where] = result.reshape(array[where].shape)
        outputs[worker] = {0: (regions[worker], array if op.node.output_shapes[0] else array.reshape(()))}
    return outputs


def _sliced(array: np.ndarray, region: Region) -> np.ndarray:
    if array.ndim == 0:
        return array
    part: np.ndarray = array[region.within(Region.whole(array.shape))]
    return part


def _join(
    op: BoundOp, strategy: Tiling, outputs: Outputs, position: int, expected: np.ndarray, findings: list[Finding]
) -> np.ndarray:
    """Reduces within each group that shares a reduction, then places what the groups have."""
    reducers = op.reducers(strategy)
    groups: dict[tuple[int, ...], tuple[Region, np.ndarray]] = {}
    for worker, place in enumerate(coordinates(strategy.ways)):
        if worker not in outputs:
            continue
        region, array = outputs[worker][position]
        key = tuple(int(at) for at, reducer in zip(place, reducers, strict=True) if reducer is None)
        if key in groups:
            reducer = next(reducer for reducer in reducers if reducer is not None)
            groups[key] = (region, JOIN[reducer](groups[key][1], array))
        else:
            groups[key] = (region, array)
    result = np.zeros_like(expected)
    covered = np.zeros(expected.shape, dtype=bool)
    for region, array in groups.values():
        where = () if expected.ndim == 0 else region.within(Region.whole(expected.shape))
        again = covered[where]
        if again.any() and normwise_error(array[again], result[where][again]) > tolerance(expected.dtype):
            findings.append(Finding(Kind.DISAGREE, f"output {position}: two workers differ on {region}"))
        result[where] = array
        covered[where] = True
    if not covered.all():
        count = int(covered.size - covered.sum())
        findings.append(Finding(Kind.UNMADE, f"output {position}: {count} elements that no worker makes"))
    return result


def tolerance(dtype: np.dtype[Any]) -> float:
    """The largest normwise error that is rounding; 0 for integers and booleans."""
    return TOLERANCE_EPSILONS * float(np.finfo(dtype.name).eps) if np.issubdtype(dtype, np.floating) else 0.0


def normwise_error(result: np.ndarray, expected: np.ndarray) -> float:
    """max|result - expected| / max|expected|, over the finite ones; infinite where what is not finite differs."""
    if result.size == 0:
        return 0.0
    if not np.issubdtype(expected.dtype, np.floating):
        return 0.0 if np.array_equal(result, expected) else float("inf")
    first, second = result.astype(np.float64), expected.astype(np.float64)
    finite = np.isfinite(second)
    if not np.array_equal(first[~finite], second[~finite], equal_nan=True) or not np.isfinite(first[finite]).all():
        return float("inf")
    if not finite.any():
        return 0.0
    largest = float(np.abs(second[finite]).max())
    difference = float(np.abs(first[finite] - second[finite]).max())
    return difference / largest if largest else (0.0 if difference == 0.0 else float("inf"))
