"""The baseline's file: sorted, the same for the same costs, and read strictly."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.errors import UsageError
from planner.features.zoo.models import build
from planner.gate.baseline import Baseline, ModelCosts, PlanCost, model_costs, op_type_at

COUNTS = st.integers(0, 2**60)
PLACES = st.text("0123456789abc.", min_size=1, max_size=9)
PLANS = st.builds(
    PlanCost,
    COUNTS,
    COUNTS,
    COUNTS,
    st.none() | st.floats(0, 10, allow_nan=False),
    st.dictionaries(PLACES, COUNTS, max_size=3),
)
MODELS = st.builds(
    ModelCosts,
    st.text(),
    st.dictionaries(PLACES, st.text(), max_size=3),
    st.dictionaries(st.integers(1, 4096), PLANS, max_size=3),
)
BASELINES = st.builds(Baseline, st.dictionaries(st.text(), MODELS, max_size=3))


@given(BASELINES)
def test_what_is_written_is_read(baseline: Baseline) -> None:
    assert Baseline.from_json(baseline.to_json(), "costs.json") == baseline


@given(BASELINES)
def test_the_text_does_not_depend_on_the_order(baseline: Baseline) -> None:
    backwards = {name: baseline.models[name] for name in reversed(baseline.models)}
    assert Baseline(backwards).to_json() == baseline.to_json()


def test_plans_are_sorted_by_number_and_a_fact_has_a_line() -> None:
    plan = PlanCost(8, 7, 9, None, {"00001.Relu.b": 3, "00000.MatMul.a": 5})
    text = Baseline({"m": ModelCosts("s", {}, {16: plan, 2: plan})}).to_json()
    assert text.index('"2"') < text.index('"16"')
    assert text.index("MatMul") < text.index("Relu")
    assert '      "00000.MatMul.a": 5,\n' in text
    assert text.endswith("}\n")


def test_no_name_of_the_model_is_written() -> None:
    graph = build("mlp-3x24")
    text = Baseline({"m": model_costs(graph)[0]}).to_json()
    assert graph.ops
    for name in (*graph.tensors, *(op.name for op in graph.ops)):
        assert f'"{name}"' not in text


def test_shapes_are_those_of_the_ops() -> None:
    graph = build("mlp-3x24", batch=10)
    model, keys = model_costs(graph)
    first = graph.ops[0]
    assert (first.op_type, op_type_at(keys[first.name])) == ("Gemm", "Gemm")
    assert model.ops[keys[first.name]] == "[10, 24] [24, 24] -> [10, 24]"
    assert len(model.ops) == len(graph.ops)


def test_a_type_may_have_dots() -> None:
    assert op_type_at("00012.my.op.abc") == "my.op"


GOOD = json.loads(Baseline({"m": ModelCosts("s", {"a": "f"}, {2: PlanCost(3, 1, 2, 0.5, {"a": 1})})}).to_json())


def _with(path: tuple[str, ...], value: object) -> str:
    data = json.loads(json.dumps(GOOD))
    place = data
    for key in path[:-1]:
        place = place[key]
    if value is None:
        del place[path[-1]]
    else:
        place[path[-1]] = value
    return json.dumps(data)


PLAN = ("models", "m", "plans", "2")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "cannot be read"),
        ("[]", "cannot be read"),
        ("{}", "lacks 'schema_version'"),
        ("[" * 100_000, "cannot be read"),
        (_with(("schema_version",), 1), "schema version 1; this tofu reads 2"),
        (_with(("schema_version",), "1"), "schema version '1'"),
        (_with(("models",), []), "cannot be read"),
        (_with(("models", "m", "structure"), None), "lacks 'structure'"),
        (_with(("models", "m", "structure"), 7), "models.m.structure is a number (7), not a text"),
        (_with(("models", "m", "plans"), {"two": {}}), "two"),
        (_with((*PLAN, "cost"), None), "lacks 'cost'"),
        (_with((*PLAN, "cost"), 0.5), "cost is a number (0.5), not a whole number"),
        (_with((*PLAN, "moved_bytes"), -1), "moved_bytes is a number (-1), not a whole number of at least 0"),
        (_with((*PLAN, "moved_bytes"), 1.5), "moved_bytes is a number (1.5), not a whole number"),
        (_with((*PLAN, "peak_bytes"), True), "peak_bytes is true or false (true), not a whole number"),
        (_with((*PLAN, "certified_gap"), "none"), 'certified_gap is a text ("none"), not a finite number'),
        (
            _with((*PLAN, "certified_gap"), -0.5),
            "certified_gap is a number (-0.5), not a finite number that is not negative",
        ),
        (_with((*PLAN, "op_costs"), {"a": "1"}), 'models.m.plans.2.op_costs.a is a text ("1"), not a whole number'),
    ],
)
def test_what_is_no_baseline_is_refused(text: str, said: str) -> None:
    with pytest.raises(UsageError, match=r"baseline costs\.json") as caught:
        Baseline.from_json(text, "costs.json")
    assert said in str(caught.value)
    assert caught.value.hint


def test_the_committed_baseline_can_be_read() -> None:
    file = Path(__file__).parent.parent.parent / ".ci" / "costs.json"
    baseline = Baseline.from_json(file.read_text(encoding="utf-8"), str(file))
    assert baseline.to_json() == file.read_text(encoding="utf-8")
    assert all(sorted(model.plans) == [2, 4, 8] for model in baseline.models.values())
