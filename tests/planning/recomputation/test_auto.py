"""``--recompute auto``: taken where memory asks for it, and said."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest

from planner import api, opdefs
from planner.cost.tables import CostTables
from planner.errors import InfeasibleError
from planner.features.zoo.models.transformer import GptShape, gpt
from planner.graph.core.model import Graph
from planner.graph.files.to_onnx import write_model
from planner.graph.rewriting.canonical import canonical
from planner.planning.goal import least_cost
from planner.planning.limit.trial import Trial, fullest
from planner.planning.recomputation.offers import Offers, fitted_by_copies
from planner.planning.recomputation.with_copies import with_copies
from planner.results import PlanResult
from planner.search.decide import decide
from planner.search.request import SearchRequest


@cache
def deep() -> Graph:
    """A GPT whose activations take most of the memory."""
    return gpt("g", GptShape(2, 16, 2, 64), batch=8)


def planned(tmp_path: Path, recompute: str, memory: int | None = None) -> PlanResult:
    path = tmp_path / "g.onnx"
    write_model(deep(), path)
    return api.plan(
        path,
        gpus=2,
        memory=memory,
        recompute=recompute,
        out=tmp_path / "p",
        force=True,
        models=False,
        effort="quick",
    )


@pytest.mark.slow
def test_it_is_taken_where_memory_asks_for_it(tmp_path: Path) -> None:
    """Without a limit, or with enough, the plan is the one without; below what any plan without takes, one fits."""
    free = planned(tmp_path, "none").plan
    most = max(free.peak_bytes)
    assert planned(tmp_path, "auto", most).plan.recomputed is None
    tight = int(0.6 * most)
    with pytest.raises(InfeasibleError) as refused:
        planned(tmp_path, "none", tight)
    assert "with activations computed again every plan takes" in "\n".join(refused.value.facts)
    assert refused.value.hint.startswith("write --recompute auto; ")
    found = planned(tmp_path, "auto", tight).plan
    assert max(found.peak_bytes) <= tight
    assert found.recomputed is not None
    assert found.recomputed.saved_bytes > 0
    assert found.cost > free.cost
    with pytest.raises(InfeasibleError, match="no plan fits"):
        planned(tmp_path, "auto", int(0.05 * most))


def test_as_much_is_computed_again_as_makes_a_plan_fit() -> None:
    form, descriptions, tables = canonical(deep()).graph, opdefs.standard(), CostTables()
    ask = SearchRequest(2, tables=tables, effort="quick")
    plain = decide(form, descriptions.bind_all(form), ask)
    offers = Offers(form, descriptions, tables, plain, least_cost(tables))
    limits = (int(0.8 * fullest(plain) / 2),) * 2
    found = fitted_by_copies(offers, [Trial(plain)], limits, ask, makes_program=False)
    assert found is not None
    number, trial = found
    assert 0 < number < len(offers.sets) - 1
    assert fullest(trial.decided) <= sum(limits) < fullest(offers.taken_by(plain, number - 1))
    assert plain.cost < trial.decided.cost
    assert fitted_by_copies(offers, [Trial(plain)], (1, 1), ask, makes_program=False) is None


def test_copies_are_divided_as_what_they_copy_and_their_work_is_excess() -> None:
    form, descriptions, tables = canonical(deep()).graph, opdefs.standard(), CostTables()
    plain = decide(form, descriptions.bind_all(form), SearchRequest(2, tables=tables, effort="quick"))
    again = ("block1.gelu.y", "block2.norm1.y")
    found = with_copies(plain, form, again, descriptions, tables)
    assert found.tilings["block1.gelu.y.again"] == plain.tilings["block1.gelu.y"]
    work = sum(tables.computing(bound) for bound in found.ops if bound.op.name in found.graph.copies)
    assert work > 0
    assert found.repeated_bytes >= plain.repeated_bytes + work
    assert found.computing_bytes == plain.computing_bytes
    assert found.excess_bytes >= plain.excess_bytes + work
    assert found.with_costs(tables) == found
    assert with_copies(plain, form, (), descriptions, tables) is plain
