"""An estimate laid out over time adds up to the estimate, and nothing comes before what it waits for."""

from __future__ import annotations

from pathlib import Path

import pytest

from planner import api
from planner.api.opened import opened
from planner.artifacts.program import Fetch
from planner.artifacts.waits import levels, writers
from planner.cost.seconds.estimate import summed, timed
from planner.cost.seconds.laid_out import laid_out
from planner.graph.to_onnx import write_model
from planner.machine.routes import part
from planner.machine.topology_file import load_topology
from planner.runtime.plan_files import load_plan
from planner.zoo import build


@pytest.mark.parametrize(("name", "workers", "batch"), [("mlp-2x24", 4, 36), ("mlp-4x64", 3, 512)])
def test_nothing_comes_before_what_it_waits_for(name: str, workers: int, batch: int, tmp_path: Path) -> None:
    write_model(build(name, batch=batch), tmp_path / "m.onnx")
    api.plan(tmp_path / "m.onnx", gpus=workers, topology="p2.8xlarge", objective="bytes", out=tmp_path / "plan")
    plan, program = opened(tmp_path / "plan", None), load_plan(tmp_path / "plan").program
    decided, machine = plan.folder.plan, part(load_topology("p2.8xlarge"), workers)
    parts = timed(plan.graph, plan.ops, decided.strategies, decided.cuts, program, machine)
    assert summed(parts, plan.ops, decided.strategies, program, None) == decided.estimate
    spans = laid_out(program, plan.ops, parts, levels(program.workers))
    assert spans[-1].start_seconds + spans[-1].seconds == pytest.approx(decided.estimate.estimated_seconds)
    assert sum(span.moved_bytes for span in spans) == decided.moved_bytes
    start = {span.name: span.start_seconds for span in spans}
    made = [writers(worker) for worker in program.workers]
    held = 0
    for worker in program.workers:
        for step in worker.steps:
            names = (step.name,) if isinstance(step, Fetch) else step.ops
            read = step.sources if isinstance(step, Fetch) else ()
            for source in read:
                number = made[source.worker][source.buffer]
                before = program.workers[source.worker].steps[number - 1] if number else None
                earlier = () if before is None else ((before.name,) if isinstance(before, Fetch) else before.ops)
                for one in earlier:
                    for other in names:
                        if one in start and other in start:
                            assert start[one] <= start[other], (one, other)
                            held += 1
    assert held
