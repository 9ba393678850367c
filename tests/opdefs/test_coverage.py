"""Every operator of ONNX's default domain is described or excluded with a reason."""

from __future__ import annotations

import io
import json

import pytest
from onnx import defs

from planner import opdefs
from planner.features.ops import table as report
from planner.features.ops.cases.examples import all_cases
from planner.features.ops.coverage import Coverage, OperatorClass, coverage
from planner.opdefs.exclusions import EXCLUDED, LOWERED
from planner.records import plain_record

DESCRIPTIONS = opdefs.standard()
NAMES = {schema.name for schema in defs.get_all_schemas_with_history() if schema.domain == ""}
RUNTIMES_OWN = """
    Attention BiasGelu EmbedLayerNormalization FastGelu FusedConv FusedGemm FusedMatMul Gelu GroupQueryAttention
    MatMulNBits MoE MultiHeadAttention QMoE QuickGelu RotaryEmbedding SkipLayerNormalization
    SkipSimplifiedLayerNormalization
"""


@pytest.fixture(scope="module")
def found() -> Coverage:
    return coverage(DESCRIPTIONS, EXCLUDED, all_cases(), lowered=LOWERED, gradients={"Conv"})


def test_each_operator_is_described_or_excluded_and_none_is_both() -> None:
    described = {op_type for domain, op_type in DESCRIPTIONS.described if domain == ""}
    lowered = {name for name in LOWERED if "." not in name}
    assert sorted(NAMES - described - set(EXCLUDED) - lowered) == []
    assert sorted((described | lowered) & set(EXCLUDED)) == []
    assert sorted(described & lowered) == ["Dropout"]
    assert sorted((described | set(EXCLUDED) | lowered) - NAMES) == ["SimplifiedLayerNormalization"]


def test_operators_of_the_runtime_are_described_or_lowered(found: Coverage) -> None:
    rows = {row.op_type for row in found.rows if row.domain == "com.microsoft" and row.described}
    assert rows == set(RUNTIMES_OWN.split())
    assert not any(row.gradient for row in found.rows if row.domain)


def test_random_operators_are_lowered(found: Coverage) -> None:
    rows = [row for row in found.rows if row.operator_class is OperatorClass.LOWERED and not row.domain]
    assert [row.op_type for row in rows] == [
        "Bernoulli", "Multinomial", "RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike",
    ]  # fmt: skip
    assert all(row.described and row.reason.startswith("lowered: ") for row in rows)


def test_at_least_170_operators_that_are_not_deprecated_are_described(found: Coverage) -> None:
    assert sum(row.described and not row.is_deprecated for row in found.rows if row.domain == "") >= 170


def test_what_cannot_be_cut_says_why(found: Coverage) -> None:
    reasons = {row.op_type: row.reason for row in found.rows if row.is_uncut}
    assert reasons["DynamicQuantizeLinear"] == "an opaque function computes this dim as a whole"
    assert reasons["Range"] == "the result depends on the position itself"
    assert len(reasons) <= 7
    assert all(row.reason for row in found.rows if not row.described)


@pytest.mark.parametrize(
    ("op_type", "kind"),
    [
        ("Relu", OperatorClass.ELEMENTWISE),
        ("Conv", OperatorClass.REDUCTION),
        ("Gather", OperatorClass.REDUCTION),
        ("Softmax", OperatorClass.OPAQUE),
        ("Det", OperatorClass.OPAQUE),
        ("Transpose", OperatorClass.AFFINE),
        ("Loop", OperatorClass.EXCLUDED),
    ],
)
def test_classes(found: Coverage, op_type: str, kind: OperatorClass) -> None:
    assert next(row for row in found.rows if row.op_type == op_type).operator_class is kind


def test_versions_are_those_in_force(found: Coverage) -> None:
    rows = {row.op_type: row for row in found.rows if not row.domain}
    assert rows["Add"].versions == (7, 13, 14)
    assert rows["Scatter"].versions == (9,)
    assert rows["Scatter"].is_deprecated
    assert rows["SwiGLU"].versions == (28,)
    assert rows["Attention"].since_version == 25


def test_json_and_table_say_the_same(found: Coverage) -> None:
    printed = json.loads(json.dumps(plain_record(found)))
    assert {"domain", "op_type", "since_version", "described", "class", "reason", "gradient"} <= set(
        printed["operators"][0]
    )
    assert [row["gradient"] for row in printed["operators"] if row["op_type"] in ("Conv", "Cos")] == [True, False]
    text = io.StringIO()
    report.print_coverage(found, text)
    assert f"described                       {printed['described']}\n" in text.getvalue()
    through = {row["op_type"] for row in printed["operators"] if row["body"]}
    assert {"ArgMax", "CumSum", "Hardmax", "LogSoftmax", "LpNormalization", "TopK"} <= through
    assert text.getvalue().count("also cut through simpler ops") == len(through) + 1
    for name in NAMES:
        assert name in text.getvalue()
