"""Coverage of ONNX's operators: described ones, and reasons for the others (Tofu, section 4.1, reports 134 of 139)."""

from __future__ import annotations

import enum
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import ClassVar

from planner.errors import TofuError
from planner.features.ops.cases.case import Case, bind_case, by_type, qualified
from planner.graph.decompositions import body_text
from planner.graph.files.protos import MAX_OPSET
from planner.tdl.bind import BoundOp
from planner.tdl.descriptions import Descriptions
from planner.tdl.expr import VarKind

OLDEST_OPSET = 7
"""Models older than this are refused; those older than 13 are converted."""


class OperatorClass(enum.Enum):
    """The class of a description by its parts."""

    ELEMENTWISE = "element-wise"
    REDUCTION = "reduction"
    """Some of it is a reduction: a product, a convolution, a lookup."""
    OPAQUE = "opaque"
    """Some of it is an opaque function, and there is no reduction."""
    AFFINE = "affine"
    """Other indices than the element's own: elements are moved, repeated, padded, made."""
    LOWERED = "lowered"
    """It is written in operators that are described before a plan is made."""
    EXCLUDED = "excluded"


@dataclass(frozen=True, slots=True)
class OperatorRow:
    """One operator."""

    told: ClassVar = (
        "domain op_type since_version versions described class=operator_class opaque=is_opaque "
        "reductions=has_reductions reason gradient deprecated=is_deprecated body=has_body"
    )

    domain: str
    op_type: str
    since_version: int
    """Opset of its latest form that the runtime takes; 0 for domains other than ONNX's."""
    versions: tuple[int, ...]
    """The versions of all its forms in force at opsets 7 to 26."""
    described: bool
    """Whether a plan can split it: it is described, or what it is lowered to is."""
    operator_class: OperatorClass
    is_opaque: bool
    has_reductions: bool
    reason: str
    """The reason why it is excluded, its lowered form, or the reason why it can be cut along nothing; else ""."""
    gradient: bool | None
    """Whether a gradient passes it; None where that was not asked."""
    is_deprecated: bool = False
    has_body: bool = False
    """Whether an op of it is also cut through simpler ops, where that costs less."""

    @property
    def is_uncut(self) -> bool:
        """Whether it is described, and can be cut along nothing."""
        cut = (OperatorClass.LOWERED, OperatorClass.EXCLUDED)
        return bool(self.reason) and self.operator_class not in cut


@dataclass(frozen=True, slots=True)
class Coverage:
    """All operators."""

    schema_version: ClassVar = 1
    told: ClassVar = "described counts operators=rows"

    rows: tuple[OperatorRow, ...]

    def count(self, operator_class: OperatorClass) -> int:
        """Described operators of a class (excluded ones for that class)."""
        return sum(row.operator_class is operator_class for row in self.rows)

    @property
    def counts(self) -> Mapping[OperatorClass, int]:
        """The counts by class."""
        return {kind: self.count(kind) for kind in OperatorClass}

    @property
    def described(self) -> int:
        return sum(row.described for row in self.rows)


def coverage(
    descriptions: Descriptions,
    excluded: Mapping[str, str],
    cases: Sequence[Case],
    *,
    lowered: Mapping[str, str] = MappingProxyType({}),
    gradients: Collection[str] | None = None,
) -> Coverage:
    """Every operator of ONNX's default domain, and those of other domains that are described.

    Args:
        descriptions: what is described.
        excluded: the reasons of those that are not, by operator.
        cases: examples, from which an operator's class is told.
        lowered: what becomes of those that are lowered, by operator, with its domain.
        gradients: operators of the default domain that a gradient passes, if known.
    """
    from onnx import defs

    schemas: dict[str, list[tuple[int, bool]]] = {}
    for schema in defs.get_all_schemas_with_history():
        if schema.domain == "":
            schemas.setdefault(schema.name, []).append((schema.since_version, schema.deprecated))
    examples = by_type(tuple(cases))
    rows = []
    lowered_keys = {(domain, name) for domain, _, name in (key.rpartition(".") for key in lowered)}
    for domain, op_type in sorted({("", name) for name in schemas} | set(descriptions.described) | lowered_keys):
        history = sorted(schemas.get(op_type, ())) if domain == "" else []
        deprecated = {version for version, is_deprecated in history if is_deprecated}
        versions = _in_force([version for version, _ in history]) if history else ()
        described = (domain, op_type) in descriptions
        if described:
            kind = _kind(examples.get(qualified(domain, op_type), ()), descriptions)
        elif qualified(domain, op_type) in lowered:
            kind = _Kind(OperatorClass.LOWERED, reason=lowered[qualified(domain, op_type)])
        else:
            kind = _Kind(reason=excluded.get(op_type, "not described"))
        # An operator is deprecated if its newest version is, though older ones still run.
        gone = max((version for version, _ in history), default=0) in deprecated
        rows.append(
            OperatorRow(
                domain=domain,
                op_type=op_type,
                since_version=max((v for v in versions if v not in deprecated), default=0),
                versions=tuple(v for v in versions if v not in deprecated),
                described=kind.operator_class is not OperatorClass.EXCLUDED,
                operator_class=kind.operator_class,
                is_opaque=kind.is_opaque,
                has_reductions=kind.has_reductions,
                reason=kind.reason,
                gradient=None if gradients is None else not domain and op_type in gradients,
                is_deprecated=gone,
                has_body=bool(body_text(domain, op_type)),
            )
        )
    return Coverage(tuple(rows))


def _in_force(versions: Sequence[int]) -> tuple[int, ...]:
    """The versions that some opset from 7 to 26 means; the first one, for what is newer."""
    newest = set()
    for opset in range(OLDEST_OPSET, MAX_OPSET + 1):
        older = [version for version in versions if version <= opset]
        if older:
            newest.add(max(older))
    return tuple(sorted(newest or {min(versions)}))


@dataclass(frozen=True, slots=True)
class _Kind:
    operator_class: OperatorClass = OperatorClass.EXCLUDED
    is_opaque: bool = False
    has_reductions: bool = False
    reason: str = ""


def _kind(cases: Sequence[Case], descriptions: Descriptions) -> _Kind:
    ops = []
    for case in cases:
        try:
            ops.append(bind_case(case, descriptions)[0])
        except TofuError:
            continue  # the verifier says what is wrong with it
    if not ops:
        return _Kind(OperatorClass.AFFINE)
    opaque = any(op.analysis.is_opaque for op in ops)
    reductions = any(variable.kind is VarKind.REDUCTION for op in ops for variable in op.variables)
    if all(op.analysis.is_elementwise for op in ops) and any(op.read_slots for op in ops):
        kind = OperatorClass.ELEMENTWISE
    elif reductions:
        kind = OperatorClass.REDUCTION
    else:
        kind = OperatorClass.OPAQUE if opaque else OperatorClass.AFFINE
    return _Kind(kind, opaque, reductions, why_none(ops))


def why_none(ops: Sequence[BoundOp]) -> str:
    """The reason why none of these ops can be cut; "" if one can."""
    if any(not variable.obstacle for op in ops for variable in op.variables):
        return ""
    obstacles = sorted({variable.obstacle for op in ops for variable in op.variables})
    return "; ".join(obstacles) or "its result is one number, known from the shapes"
