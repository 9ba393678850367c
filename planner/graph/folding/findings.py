"""Faults of a graph that folding meets: kept until it is known which ops live, then told at once."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

from planner.errors import ModelError, UnsupportedError
from planner.graph.core.model import Op, of_types
from planner.graph.core.traits import SEQUENCES
from planner.graph.decompositions.registry import Purpose, decomposition
from planner.graph.folding.foreign import Operators
from planner.graph.folding.undescribed import undescribed_error
from planner.printable import printable


@dataclass(slots=True)
class Findings:
    """The reasons why a graph cannot be planned, so far; what concerns dead ops alone is never told."""

    unsupported: dict[str, str] = field(default_factory=dict)
    """By op: why it cannot be planned."""
    faults: dict[str, str] = field(default_factory=dict)
    """By op: how it contradicts what it reads."""
    foreign: set[str] = field(default_factory=set)
    """Ops whose shapes ONNX cannot infer, and nobody states."""
    decided_by: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """By op with branches or positions: the inputs that decide it at run time."""
    loops: dict[str, str] = field(default_factory=dict)
    """By loop that could be unrolled: why it is not."""
    lost: dict[str, str] = field(default_factory=dict)
    """Tensors without a static type, and what made them so; "" if it is only inherited."""
    unread: set[str] = field(default_factory=set)
    """Tensors that are external data, and that a shape depends on."""

    def refuse(self, live: Sequence[Op], operators: Operators | None, opset: int) -> None:
        """Raises an error of all findings, if there are any.

        Args:
            live: the ops that lead to an output.
            operators: which operators can be planned; None: all of them.
            opset: version of the default operator domain.

        Raises:
            UnsupportedError: operators that cannot be planned: all of them.
            ModelError: ops that contradict their inputs: all of them; or tensors without a static shape.
        """
        if operators is not None:
            self._refuse_undescribed(live, operators, opset)
        names = [op.name for op in live]
        deciding = dict.fromkeys(name for op in names for name in self.decided_by.get(op, ()))
        hint = _values_hint(deciding)
        unsupported = [self.unsupported[name] for name in names if name in self.unsupported]
        if unsupported:
            is_foreign = operators is None and self.foreign.intersection(names)
            raise UnsupportedError(
                "the model uses operators that cannot be planned",
                facts=tuple(unsupported),
                hint=hint or (WITHOUT_BODY if is_foreign else ""),
            )
        faults = [self.faults[name] for name in names if name in self.faults]
        if faults:
            is_low = any("unsupported type: tensor(bfloat16)" in fault for fault in faults)
            hint = "export it in float32, without autocast; then `tofu grad --precision bfloat16`" if is_low else ""
            raise ModelError("ops of the model contradict what they read", facts=tuple(faults), hint=hint)
        # Shapes come last: ops of both kinds above leave tensors without.
        lost = [name for op in live for name in op.outputs if name in self.lost]
        if lost:
            facts = [f"{name!r}: {self.lost[name] or 'computed from such a tensor'}" for name in lost]
            count = f"{len(lost)} tensors have" if len(lost) > 1 else "1 tensor has"
            raise ModelError(
                f"{count} no static shape",
                facts=tuple(facts),
                hint=hint or self._hint_of_lost(names),
            )

    def _hint_of_lost(self, live: Sequence[str]) -> str:
        if self.unread:
            return _SHAPES_OUTSIDE
        return _SHAPES_OF_OTHERS if self.foreign.intersection(live) else _SHAPES_BEFOREHAND

    def _refuse_undescribed(self, live: Sequence[Op], operators: Operators, opset: int) -> None:
        unknown = [op for op in live if not operators.takes(op.domain, op.op_type) and not _is_replaced(op)]
        if not unknown:
            return
        reasons = dict(operators.reasons)
        for op in unknown:
            if not op.domain and op.name in self.unsupported:
                reasons.setdefault(("", op.op_type), f"ONNX has no such operator at opset {opset}")
        reasons |= {(op.domain, op.op_type): self.loops[op.name] for op in unknown if op.name in self.loops}
        undescribed = {op.name for op in unknown}
        facts = [fact for name, fact in (self.unsupported | self.faults).items() if name not in undescribed]
        error = undescribed_error(unknown, reasons, tuple(facts))
        hint = _values_hint(dict.fromkeys(name for op in unknown for name in self.decided_by.get(op.name, ())))
        if any(self._is_shapeless(op) for op in unknown):
            # Neither a description of such an op nor executing it whole gives its result a shape.
            raise type(error)(error.what, facts=error.facts, hint=hint or self._hint_of_lost([op.name for op in live]))
        raise type(error)(error.what, facts=error.facts, hint=f"{hint}\nor {error.hint}" if hint else error.hint)

    def _is_shapeless(self, op: Op) -> bool:
        """Whether the shape of an op's result depends on data, whoever executes it."""
        return not op.domain and not op.has_graphs and any(self.lost.get(output) for output in op.outputs)


def _values_hint(deciding: Iterable[str]) -> str:
    options = " ".join(f"--value {printable(name)}=NUMBER" for name in deciding)
    return f"decide it before the plan is made: {options}" if options else ""


WITHOUT_BODY: Final = "a gradient needs the operator's body, as a function of the model; no description gives one"
"""The reason why no step is made of an operator that ONNX does not define."""

_SHAPES_OUTSIDE = (
    "values that shapes depend on must be in the model file itself: save the model again with only large tensors as "
    "external data (onnx.save with size_threshold=1024)"
)
_SHAPES_BEFOREHAND = "a plan needs every shape beforehand: export the model without data-dependent shapes"
_SHAPES_OF_OTHERS = (
    "write their shapes into the model as value_info, or describe the operator (--opdefs) so that its index variables "
    "run over dims of its inputs"
)


def _is_replaced(op: Op) -> bool:
    """Whether an op needs no description: others stand for it before a plan is made, or it is said why not."""
    purposes = (Purpose.READING,) if op.domain else (Purpose.PARTS, Purpose.RANDOM)
    return any(decomposition(purpose, op) for purpose in purposes) or of_types(op, SEQUENCES) is not None
