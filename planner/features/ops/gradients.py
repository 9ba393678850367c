"""Operators that a gradient passes, and reasons for the others: the data of ``tofu ops --gradients``."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Final, Literal, TypeAlias, get_args

import onnx

from planner.graph.decompositions.registry import gradient_form
from planner.training import rules
from planner.training.gradients.expand import has_body
from planner.training.gradients.older_opsets import OPSET
from planner.training.gradients.reasons import REASONS

Kind: TypeAlias = Literal["rule", "expanded", "body", "stops", "no floats", "none"]

_NEWEST: Final = 26
"""The latest opset that is read."""
_REPLACED: Final = {"Scatter": "ScatterElements", "Upsample": "Resize"}
"""Operators that later opsets do not have, and what an older model's become when it is read."""


@dataclass(frozen=True, slots=True)
class GradientRow:
    """One operator of the default domain."""

    told: ClassVar = "domain op_type gradient=passes kind detail"
    domain: ClassVar = ""

    op_type: str
    kind: Kind
    """``rule``: it has a gradient rule. ``expanded``: it is written out in operators that have one. ``body``: ONNX's
    own function body is. ``stops``: its derivative is 0 almost everywhere. ``no floats``: it makes none. ``none``."""
    detail: str
    """The rule's formula (its first sentence), or why there is none."""

    @property
    def passes(self) -> bool:
        """Whether a gradient passes."""
        return self.kind in ("rule", "expanded", "body")


@dataclass(frozen=True, slots=True)
class GradientTable:
    """Operators of the default domain, all or one."""

    schema_version: ClassVar = 1
    told: ClassVar = "counts operators"

    operators: tuple[GradientRow, ...]

    @property
    def counts(self) -> Mapping[Kind, int]:
        """The counts by kind."""
        count_by_kind = Counter(row.kind for row in self.operators)
        return {kind: count_by_kind[kind] for kind in get_args(Kind)}


def gradient_table() -> tuple[GradientRow, ...]:
    """All operators of the default domain, in alphabetical order."""
    names = {schema.name for schema in onnx.defs.get_all_schemas_with_history() if not schema.domain}
    return tuple(_row(name) for name in sorted(names))


def _row(name: str) -> GradientRow:
    if name in _REPLACED:
        return GradientRow(name, "expanded", f"as {_REPLACED[name]}, which it is when the model is read.")
    try:
        schema = onnx.defs.get_schema(name, _NEWEST)
    except onnx.defs.SchemaError:
        return GradientRow(name, "none", f"it is newer than opset {_NEWEST}, the latest that a step is written in")
    rule = rules.standard().get(name)
    if rule is not None:
        return GradientRow(name, "rule" if rule.inputs != () else "stops", _first_sentence(rule.function.__doc__))
    if not _has_floats(schema.outputs):
        return GradientRow(name, "no floats", "its outputs are integers, booleans or strings")
    if name in REASONS:
        return GradientRow(name, "none", REASONS[name])
    if not _has_floats(schema.inputs):
        return GradientRow(name, "no floats", "it reads nothing" if not schema.inputs else "it reads no floats")
    if (form := gradient_form(name)) is not None:
        return GradientRow(name, "expanded", form.text)
    if has_body(name, max(OPSET, schema.since_version)):
        return GradientRow(name, "body", "by ONNX's function body")
    return GradientRow(name, "none", "no rule yet")


def _has_floats(values: Sequence[onnx.defs.OpSchema.FormalParameter]) -> bool:
    """Whether one of the inputs or outputs can be a float tensor."""
    return any("float" in kind for value in values for kind in value.types)


def _first_sentence(text: str | None) -> str:
    lines = (text or "").strip().split("\n\n")[0]
    return " ".join(lines.split())
