"""``tofu profile``: what a model's ops, and parts of them, take on this machine (ICML'18, section 5.1).

What is measured, each op of other content once, and each part of other shapes once:

1. every op, whole;
2. for k workers, every op by every basic strategy: along one index variable, in as many ways as the first cuts of a
   plan have together, for every number of cuts; in blocks of one, and as the description proposes;
3. the parts that the plan for the least cost in bytes has;
4. for a topology, the parts that the plan for the least time has, by what has been measured so far, and those of the
   search's own where that is another one; and again, until they have no part that is new, three times at most. (Where
   an op cannot be measured, and the topology does not say how fast its devices are, there is no such plan.)

Ops inside of the bodies of composite ops are among them: a plan may cut through bodies.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from math import prod
from pathlib import Path
from typing import Literal

from planner.algebra.tiling import Tiling
from planner.api.arguments import bytes_text, takes
from planner.artifacts.place import is_plan
from planner.cost.roofline import says_speed
from planner.cost.seconds.measured import refuse_several_speeds
from planner.cost.seconds.parts import different_parts
from planner.cost.tables import CostTables
from planner.errors import UsageError
from planner.features.ops.strategies import enumerate_strategies
from planner.features.profile.measuring import PartTimes
from planner.features.profile.options import ProfileOptions
from planner.features.profile.result import ProfileResult
from planner.graph.core.model import Graph
from planner.graph.decompositions import expand
from planner.graph.rewriting.canonical import canonical
from planner.installed import require_runtime, runtime_notes
from planner.machine.device_profile import DeviceProfile
from planner.machine.topology_file import Machine
from planner.options import ReadOptions
from planner.planning.bodies import decide_with_bodies, only_through_bodies
from planner.planning.limit.trial import Trial
from planner.planning.machines import Target
from planner.planning.objective import LITERATURE, Times, of_the_literature, timed
from planner.planning.request import source_of, target_for
from planner.progress import Progress
from planner.runtime.engine.core.sessions import threads_of
from planner.runtime.engine.gpu.devices import require_cuda
from planner.runtime.measure.ops import CpuStopwatch, CudaStopwatch, Stopwatch
from planner.runtime.values.results import write_bytes
from planner.search.decision import Decision
from planner.search.request import SearchRequest
from planner.tdl.bind import BoundOp
from planner.tdl.descriptions import Descriptions
from planner.units import parse_bytes
from planner.whole import try_file

_ROUNDS = 3
_SUFFIXES = (".yaml", ".yml")


@takes(ProfileOptions)
def profile(options: ProfileOptions) -> ProfileResult:  # noqa: D417 - those are the fields of the options
    """Measures what the ops of a training graph, and parts of them, take on this machine, and writes a profile.

    Args:
        model: an ONNX file, or a model in memory without external data; a name of the zoo; or the folder of a plan,
            which stands for its model and machine.
        gpus: how many workers the parts are for; may be left out with a topology or a plan. With none of them, ops are
            measured whole.
        topology: a topology file, or the name of one that ships, for whose levels and links plans are made.
        device: ``cpu``: this machine's processor, with as many threads for an op as a worker of a run here has;
            ``cuda``: its first GPU.
        memory: what the tensors of one op may take, such as ``4GiB``, or in bytes; None: half of what is free.
        dim: sizes of symbolic dims.
        custom_ops: libraries of custom operators for ONNX Runtime; for the CPU.
        out: the file to write, ``.yaml``; MODEL.profile.yaml in the working directory if None.
        progress: told what is being done.
        notice: told, before anything is measured, that ONNX Runtime is another one.

    Raises:
        TofuError: the model cannot be read or planned, the device is not there, or the file cannot be written.

    Example:
        ::

            planner.profile("train.onnx", gpus=4, out="train.yaml")
    """
    started = time.perf_counter()
    path, gpus, topology, progress = options.model, options.gpus, options.topology, options.progress
    target = options.out or Path(f"{path.stem}.profile.yaml")
    _check_target(target)
    require_runtime()
    for line in runtime_notes():
        options.notice(line)
    is_whole = gpus is None and topology is None and not is_plan(path)
    on = Target(1) if is_whole else target_for(path, gpus, topology)
    machine, workers, cuts = on.machine, on.workers, on.cuts
    if machine is not None:
        refuse_several_speeds(machine.devices)
    stopwatch = _stopwatch(options.device, workers, tuple(options.custom_ops))
    stated = bytes_text(options.memory)
    limit = stopwatch.free_bytes // 2 if stated is None else parse_bytes(stated, "--memory")
    progress(f"reading {path}")
    source = source_of(path, ReadOptions(dim=options.dim))
    graph, descriptions = canonical(source.read()).graph, source.descriptions
    times = PartTimes(stopwatch, limit, progress)
    flags = f" --topology {topology}" if topology is not None else f" --gpus {gpus}" if gpus is not None else ""
    so_far = partial(times.profile, graph.name, f"tofu profile {path.name}{flags} --device {options.device}")
    # Which composites a plan takes through their bodies is known after a search: composites and bodies are measured.
    least = expand(graph, only_through_bodies(graph, descriptions)).graph
    ops = descriptions.bind_all(least)
    times.measure("ops", least, _basic_strategies(ops, cuts))
    if workers > 1:
        inner_graph = expand(graph, workers=workers).graph
        inner = descriptions.bind_all(inner_graph)
        times.measure("ops inside of composite ops", inner_graph, _basic_strategies(inner, cuts))
        _measure_plans(times, graph, descriptions, workers, cuts, machine, so_far, progress)
    device_profile = so_far()
    write_bytes(target, device_profile.to_text().encode())
    op_seconds = [times.whole_seconds(bound) for bound in ops]
    return ProfileResult(
        profile=device_profile,
        output=target,
        workers=workers,
        ops=len(ops),
        model_seconds=sum(seconds for seconds in op_seconds if seconds is not None),
        model_unmeasured=sum(seconds is None for seconds in op_seconds),
        total_seconds=time.perf_counter() - started,
    )


def _check_target(target: Path) -> None:
    """Refuses what cannot be written before anything is measured."""
    if target.suffix not in _SUFFIXES:
        raise UsageError(f"-o {target}: a profile is written as {', '.join(_SUFFIXES)}")
    try_file(target)


def _stopwatch(device: Literal["cpu", "cuda"], workers: int, custom_ops: Sequence[Path]) -> Stopwatch:
    if device == "cpu":
        return CpuStopwatch(threads_of(workers), libraries=custom_ops)
    if custom_ops:
        raise UsageError("--custom-ops: libraries are for --device cpu")
    cupy, _ = require_cuda([0])
    return CudaStopwatch(0, cupy)


def _basic_strategies(ops: Sequence[BoundOp], cuts: tuple[int, ...]) -> Iterator[tuple[BoundOp, Tiling]]:
    """Every op whole, and along each index variable in as many ways as the first cuts have together."""
    seen: set[object] = set()
    for bound in ops:
        unsplit = Tiling((), ())
        key = tuple((part.signature, part.shapes) for part in different_parts(bound, unsplit))
        if key in seen:
            continue
        seen.add(key)
        yield bound, unsplit
        for number in range(1, len(cuts) + 1):
            for candidate in enumerate_strategies(bound, prod(cuts[:number])):
                if not candidate.veto:
                    yield bound, candidate.strategy


def _measure_plans(
    times: PartTimes,
    graph: Graph,
    descriptions: Descriptions,
    workers: int,
    cuts: tuple[int, ...],
    machine: Machine | None,
    so_far: Callable[[], DeviceProfile],
    progress: Progress,
) -> None:
    """Measures the parts of the plan for the least cost in bytes and, on a machine, of that for the least time."""
    tables = CostTables()
    ask = SearchRequest(workers, cuts, effort="quick", tables=tables, progress=progress)
    search = partial(decide_with_bodies, graph, descriptions)

    def measured(label: str, decided: Decision) -> int:
        strategies = decided.strategies
        ops = ((bound, strategies[bound.op.name].tiling) for bound in decided.ops)
        return times.measure(label, decided.graph, ops)

    fewest = search(ask)
    measured("parts of the plan for the least cost in bytes", fewest)
    if machine is None:
        return
    if times.unheard_of and not says_speed(machine.devices[0]):
        unknown = ", ".join(times.unheard_of)
        progress(f"no plan for the least time: neither measured nor said by the topology is how fast {unknown} is")
        return
    outcomes = of_the_literature(LITERATURE, lambda name: search(replace(ask, strategy=name)))
    trials = [Trial(fewest), *(outcome for _, outcome in outcomes if isinstance(outcome, Trial))]
    # Each measurement may make another plan the fastest, whose parts are then measured, too.
    for _ in range(_ROUNDS):
        device_profile = so_far()
        plans = Times(machine, tables, device_profile)
        by_tables = timed(search(replace(ask, tables=plans.goal.tables)), tables)
        best = plans.fastest([*trials, by_tables], None).best
        counts = [measured("parts of the plan for the least time", trial.decided) for trial in (by_tables, best)]
        if not any(counts):
            break
