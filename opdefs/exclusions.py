"""Operators of ONNX's default domain that have no description, and why.

Every operator of the domain is described or stands here; a test holds that none is both.
"""

from __future__ import annotations

_CONTROL = "control flow: a subgraph of its own, run as often as the data say"
_SEQUENCE = "its values are sequences of tensors, and a plan splits tensors"
_OPTIONAL = "its value may be no tensor at all, and a plan splits tensors"
_STRING = "its elements are strings, which no device computes on"
_SHAPE = "the shape of its result depends on the data, and a plan needs every shape before it runs"
_RANDOM = "random: what a worker draws for its part would depend on how the op is split"

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
    "Bernoulli": _RANDOM,
    "Multinomial": _RANDOM,
    "RandomNormal": _RANDOM,
    "RandomNormalLike": _RANDOM,
    "RandomUniform": _RANDOM,
    "RandomUniformLike": _RANDOM,
}
"""The reason by operator."""
