"""Findings of the verifier that are no mistakes, each with the reason.

A strategy is *vetoed* where the analysis admits it and no local op computes some part of it: the search leaves it out.
A strategy is *missing* where brute force finds it right and the analysis does not give it.
"""

from __future__ import annotations

from dataclasses import dataclass

_GROUPS = "a part holds whole groups of channels, or lies within one; other cuts have no local op"
_HEADS = "a part holds whole heads: the dim that holds several is cut between them, in the block that is proposed"
_BLOCKS = "a part holds whole blocks: the dim is cut between them, in the block that is proposed"

VETOED: dict[str, str] = {
    "Attention": _HEADS,
    "Conv": _GROUPS,
    "ConvInteger": _GROUPS,
    "ConvTranspose": _GROUPS,
    "DepthToSpace": _BLOCKS,
    "DequantizeLinear": _BLOCKS,
    "Gather": "flags looked up in parts cannot be added",
    "GroupNormalization": _GROUPS,
    "QLinearConv": _GROUPS,
    "QuantizeLinear": _BLOCKS,
    "ReduceMean": "a mean of integers rounds: its parts cannot be joined",
    "RotaryEmbedding": _HEADS,
    "com.microsoft.MatMulNBits": _BLOCKS,
    "com.microsoft.MultiHeadAttention": _HEADS,
    "com.microsoft.RotaryEmbedding": _HEADS,
}
"""By operator, with its domain: why some of its strategies are vetoed."""


@dataclass(frozen=True, slots=True)
class Allowed:
    """A gap that is left."""

    op_type: str
    containing: str
    """The text of the gap has this in it."""
    reason: str


GAPS: tuple[Allowed, ...] = (
    Allowed(
        "MaxUnpool", "[3,2,5,4]", "places that occur once by chance: of a place that occurs twice the last value stays"
    ),
    Allowed("Size", "", "nothing is read and one number is made: there is nothing to divide"),
)
"""Missing strategies that are left out on purpose."""


def gap_reason(op_type: str, text: str) -> str:
    """The reason why a gap is left; "" if nothing says so."""
    return next((gap.reason for gap in GAPS if gap.op_type == op_type and gap.containing in text), "")
