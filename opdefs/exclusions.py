"""Operators of ONNX's default domain that have no description, and why.

Every operator of the domain is described or stands here; a test holds that none is both but Dropout, which is described
as it infers and lowered where it trains. What is lowered may be another domain's.
"""

from __future__ import annotations

from planner.graph.decompositions.registry import Purpose, decompositions

_CONTROL = "control flow: a subgraph of its own, run as often as the data say"
_SEQUENCE = "its values are sequences of tensors, and a plan splits tensors"
_OPTIONAL = "its value may be no tensor at all, and a plan splits tensors"
_STRING = "its elements are strings, which no device computes on"
_SHAPE = "the shape of its result depends on the data, and a plan needs every shape before it runs"

EXCLUDED: dict[str, str] = {
    "If": _CONTROL,
    "Loop": _CONTROL,
    "Scan": _CONTROL,
    "ConcatFromSequence": _SEQUENCE,
    "SequenceAt": _SEQUENCE,
    "SequenceConstruct": _SEQUENCE,
    "SequenceEmpty": _SEQUENCE,
    "SequenceErase": _SEQUENCE,
    "SequenceInsert": _SEQUENCE,
    "SequenceLength": _SEQUENCE,
    "SequenceMap": _SEQUENCE,
    "SplitToSequence": _SEQUENCE,
    "Optional": _OPTIONAL,
    "OptionalGetElement": _OPTIONAL,
    "OptionalHasElement": _OPTIONAL,
    "RegexFullMatch": _STRING,
    "StringConcat": _STRING,
    "StringNormalizer": _STRING,
    "StringSplit": _STRING,
    "Compress": _SHAPE,
    "ImageDecoder": _SHAPE,
    "NonMaxSuppression": _SHAPE,
    "NonZero": _SHAPE,
    "Unique": _SHAPE,
}
"""The reason by operator."""

LOWERED: dict[str, str] = {
    **dict.fromkeys(
        decompositions(Purpose.RANDOM),
        "lowered: written in described operators, as a function of seed, op, step and global index",
    ),
    **{
        name: f"lowered: {rule.text}"
        for name, rule in decompositions(Purpose.READING).items()
        if name not in decompositions(Purpose.PARTS)
    },
}
"""What becomes of them before a plan is made, by operator, with its domain if that is not ONNX's own."""

DATA_DEPENDENT = frozenset(op_type for op_type, reason in EXCLUDED.items() if reason == _SHAPE)
"""Those whose results have shapes that depend on the data."""
