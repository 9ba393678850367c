"""Runs ONNX's own node cases in JAX, as ``tofu export --to jax`` writes them; prints those that differ, and counts.

    python tests/tools/jax_cases.py WORKERS [EVERY]

Each case that ONNX Runtime passes is planned for some workers, and an op alone in its graph again by every strategy
that the analysis admits. A step is right, wrong, refused (with a finding), or ends in a traceback. EVERY = 10 takes one
case of ten. A process of its own: JAX must be told of its devices before it is imported.
"""

from __future__ import annotations

import json
import os
import sys
import types
from collections import Counter
from collections.abc import Iterator
from typing import Any

os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=8"
os.environ["JAX_PLATFORMS"] = "cpu"
os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")

import jax
import numpy as np

from conformance import constants_to_try
from onnx_node_cases import OnnxCase, differences, onnx_cases, stock_outputs, with_constants
from planner.artifacts.plan import Partitioning
from planner.cost.tables import CostTables
from planner.descriptions import in_force
from planner.errors import TofuError
from planner.features.export.file_text import UnwrittenError, jax_step
from planner.features.export.source import Source
from planner.features.ops.strategies import enumerate_strategies
from planner.graph.core.model import Graph
from planner.graph.reading.from_onnx import graph_from_proto
from planner.machine.rates import Rates
from planner.planning.bodies import decide_with_bodies
from planner.search.decide import decide
from planner.search.request import SearchRequest
from planner.tdl.bind import BoundOp

_DEAR = CostTables(Rates(touched_bytes=1e-3, operations=1e-3))
"""By these rates small cases are cut."""


class NamedDecision:
    """A decision with a model's name, which the file states."""

    model = "case.onnx"

    def __init__(self, decision: Partitioning) -> None:
        self._decision = decision

    def __getattr__(self, name: str) -> Any:
        return getattr(self._decision, name)


def results_in_jax(graph: Graph, ops: tuple[BoundOp, ...], decision: Partitioning, case: OnnxCase) -> list[np.ndarray]:
    """The outputs of the exported step for a case's inputs."""
    step = jax_step(Source(NamedDecision(decision), graph, ops), ".npz")
    module = types.ModuleType("exported")
    text = "\n".join(line for line in step.text.splitlines() if not line.startswith("CONSTANTS = "))
    module.__dict__["CONSTANTS"] = step.constants
    exec(compile(text, "exported.py", "exec"), module.__dict__)
    values = {name: np.asarray(value) for name, value in case.inputs.items()}
    _, results = module.step(module.placed(module.STATE, values), module.placed(module.DATA, values))
    return [np.asarray(module.whole(value.name, results[value.name])) for value in case.model.graph.output]


def outcomes(case: OnnxCase, workers: int) -> Iterator[tuple[str, str, str]]:
    """(strategy, "right", "wrong", "refused" or "crash", why) for each plan of a case."""
    descriptions, _ = in_force(None)
    for names in constants_to_try(case):
        try:
            graph = graph_from_proto(with_constants(case, names), state_pairs=(), operators=descriptions)
            decided = decide_with_bodies(graph, descriptions, SearchRequest(workers, tables=_DEAR))
            break
        except TofuError:
            continue
    else:
        return
    plans = [("plan", decided)]
    if len(decided.ops) == 1 and decided.graph.ops == graph.ops:
        (op,) = decided.ops
        for candidate in enumerate_strategies(op, workers):
            if not candidate.veto:
                held = {op.op.name: candidate.strategy}
                plans.append((str(candidate.strategy), decide(graph, decided.ops, SearchRequest(workers, held=held))))
    for label, plan in plans:
        try:
            with np.errstate(all="ignore"):
                faults = differences(case, results_in_jax(decided.graph, decided.ops, plan, case))
            yield label, "wrong" if faults else "right", "; ".join(faults)
        except UnwrittenError as error:
            yield label, "refused", "; ".join(error.findings)
        except Exception as error:  # noqa: BLE001 - whatever ends it is a crash
            yield label, "crash", f"{type(error).__name__}: {str(error)[:200]}"


def passes(case: OnnxCase) -> bool:
    """Whether ONNX Runtime gives what the case expects."""
    try:
        return case.has_only_tensors and not differences(case, stock_outputs(case))
    except Exception:  # noqa: BLE001 - whatever the runtime raises
        return False


def main(workers: int, every: int) -> None:
    count: Counter[str] = Counter()
    for case in onnx_cases()[::every]:
        # Cases in training draw by a counter that a step has, and a case has not.
        if not passes(case) or case.name.startswith("test_training_"):
            continue
        jax.clear_caches()
        for label, outcome, why in outcomes(case, workers):
            count[outcome] += 1
            if outcome in ("wrong", "crash"):
                print(f"{case.name} [{label}] {outcome}: {why}", flush=True)
    print(json.dumps(count))


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 1)
