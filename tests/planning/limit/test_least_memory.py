"""What every plan takes at least: no program takes less, and who asks for less is told so before any search."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import onnx
import pytest

from planner import api, opdefs
from planner.cost.residence import Residence
from planner.errors import InfeasibleError
from planner.features.zoo.models import build, mlp
from planner.graph.files.to_onnx import to_model
from planner.graph.reading.from_onnx import graph_from_proto
from planner.partition.workspace import ELEMENTWISE
from planner.planning import session
from planner.planning.bodies import decide_with_bodies
from planner.planning.limit.in_steps import all_in_steps
from planner.planning.limit.least_memory import EveryPlan, refuse_what_cannot_fit
from planner.planning.limit.trial import Trial
from planner.search.request import SearchRequest


@pytest.mark.parametrize(
    "name",
    [
        "mlp-5x300",
        *(pytest.param(one, marks=pytest.mark.slow) for one in ("gpt-1x64-2h", "lenet-5", "cnn-3x64-12")),
    ],
)
def test_no_program_takes_less(name: str) -> None:
    graph, workers = build(name, batch=24), 4
    for strategy in ("tofu", "data"):
        ask = SearchRequest(workers, strategy=strategy, effort="quick")
        decided = decide_with_bodies(graph, opdefs.standard(), ask)
        least = Residence(decided.graph, decided.ops).least(ELEMENTWISE)
        for plan in (decided, all_in_steps(decided)):
            for lean in (False, True):
                program = Trial(plan, is_lean=lean).partitioned.program
                assert int(least.max()) <= sum(program.peak_bytes), (strategy, lean)
    with pytest.raises(InfeasibleError, match="no plan fits: every plan takes"):
        refuse_what_cannot_fit(graph, opdefs.standard(), [int(least.max()) // 8] * workers)
    refuse_what_cannot_fit(graph, opdefs.standard(), [max(program.peak_bytes)] * workers)


def test_nothing_is_said_of_an_op_that_becomes_one_of_blocks() -> None:
    """A running sum over 64 positions may be cut along them through its body, whose moments are others."""
    text = "g (float[2, 64] x) => (float[2, 64] y) <int64 axis = {1}> { y = CumSum (x, axis) }"
    graph = graph_from_proto(onnx.parser.parse_model('<ir_version: 10, opset_import: ["" : 21]> ' + text))
    limits, standard = [300, 300], opdefs.standard()
    assert EveryPlan(graph, standard).by_moment.max() > sum(limits)
    refuse_what_cannot_fit(graph, standard, limits)


def test_a_request_that_cannot_be_met_is_refused_before_any_search(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    onnx.save(to_model(replace(mlp(2, 64, 64), name="small")), tmp_path / "m.onnx")
    monkeypatch.setattr(session, "decide_with_bodies", None)
    with pytest.raises(
        InfeasibleError, match=r"no plan fits: every plan takes .* and each of the 2 has 20.0 KiB"
    ) as no:
        api.plan(tmp_path / "m.onnx", gpus=2, memory="20KiB", out=tmp_path / "plan")
    assert no.value.facts[0].startswith("of ")
    assert "parameters" in no.value.facts[0]
    assert (
        no.value.hint
        == "no fewer than 6 workers can hold it; a smaller batch takes less, but the file states its batch"
    )
    assert not (tmp_path / "plan").exists()
