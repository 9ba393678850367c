"""``tofu fit``: how many GPUs hold a model, and with which batch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from planner.api.arguments import takes
from planner.collection import without_collection
from planner.errors import UsageError
from planner.features.fit.answer import Query, answered
from planner.features.fit.counts import batches_of, counts_of
from planner.features.fit.options import FitOptions
from planner.features.fit.result import FitResult
from planner.features.fit.samples import batches_of_model
from planner.machine.topology_file import Machine, load_topology
from planner.options import ReadOptions
from planner.planning.machines import memory_of
from planner.planning.request import source_of
from planner.runtime.values.results import write_bytes
from planner.units import parse_duration
from planner.whole import try_file


@takes(FitOptions)
@without_collection()
def fit(options: FitOptions) -> FitResult:  # noqa: D417 - those are the fields of the options
    """Says how many GPUs hold a model, what plans for each number of them take, and with which batch.

    Args:
        model: a training graph, as an ONNX file or in memory; the folder of a plan; or a name of the zoo.
        memory: what the tensors of a worker may take, such as ``80GiB``, or in bytes; None: what the topologies'
            devices have.
        topology: topology files, or names of those that ship; each is answered for by itself, with estimates of time.
        gpus: numbers of GPUs: a list, or a range such as ``1..64``, of which the ends, the powers of two and what the
            topology's levels join are looked at; None: from 1 to all of the topology's, or to 64.
        batch: a number: that of the plans; a range such as ``1..512``: where the largest batch is looked for.
        within: an iteration must not be estimated to take longer, such as ``0.5s``, or in seconds.
        page: a file to write: the table and a chart, in HTML.
        dim: sizes of symbolic dims.
        progress: told what is being done.

    Raises:
        TofuError: nothing says how much memory there is; the model cannot be read or planned; the page cannot be
            written.

    Example:
        ::

            result = planner.fit("train.onnx", memory="80GiB")
            print(result.answers[0].workers, [row.least_bytes for row in result.answers[0].rows])
    """
    path, progress = options.model, options.progress
    ends, of_plans = batches_of(None if options.batch is None else str(options.batch))
    queries = _queries(options, ends)
    page = options.page
    if page is not None:
        try_file(page)
    progress(f"reading {path}")
    batches = batches_of_model(source_of(path, ReadOptions(dim=options.dim)), of_plans)
    answers = [answered(batches, query, progress) for query in queries]
    result = FitResult(
        batches.stated.graph.name,
        tuple(answers),
        None if batches.samples is None else batches.samples.given,
        None if batches.samples is None or of_plans is not None else ends,
        batches.why_fixed,
        queries[0].within_seconds,
    )
    if page is not None:
        from planner.features.fit.page import fit_page

        write_bytes(page, fit_page(result).encode())
        result = replace(result, page=page)
    return result


def _queries(options: FitOptions, ends: tuple[int, int]) -> list[Query]:
    """What is asked of each machine.

    Raises:
        UsageError: nothing says how much memory there is; a text cannot be read.
    """
    topology, gpus, within = options.topology, options.gpus, options.within
    memory_bytes = memory_of(options.memory)
    if memory_bytes is None and not topology:
        raise UsageError("fit: into how much memory?", hint="write --memory 80GiB, or --topology with a file or a name")
    seconds = (
        None if within is None else parse_duration(within if isinstance(within, str) else f"{within}s", "--within")
    )
    if seconds is not None and not topology:
        raise UsageError(f"--within {within}: times are estimated for a topology", hint="write --topology")
    counts = gpus if gpus is None or isinstance(gpus, str) else ",".join(map(str, _listed(gpus)))
    machines: list[Machine | None] = [load_topology(name) for name in topology]
    return [Query(machine, memory_bytes, counts_of(counts, machine), ends, seconds) for machine in machines or [None]]


def _listed(gpus: int | Sequence[int]) -> Sequence[int]:
    return gpus if isinstance(gpus, Sequence) else (gpus,)
