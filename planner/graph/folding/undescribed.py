"""Operators that nothing describes: all of them in one error, which says what to write and where.

The skeleton in the hint is a file that can be used as it is: every operator as an opaque function of its whole inputs,
right for any operator, and split by none. What is left to do is to say which elements are read.
"""

from __future__ import annotations

import json
import keyword
import re
from collections.abc import Mapping, Sequence
from typing import Final

from planner.errors import UnsupportedError
from planner.graph.core.model import Op, qualified

_SHOWN_OPS: Final = 8
_LETTERS: Final = "XABCDEFGHIJKLMNOPQRSTUVWYZ"
_PAGE: Final = "docs/operators.md"


def undescribed_error(
    ops: Sequence[Op], reasons: Mapping[tuple[str, str], str] | None = None, findings: Sequence[str] = ()
) -> UnsupportedError:
    """The error about operators without a description.

    Args:
        ops: every op of such an operator, in the model's order.
        reasons: by (domain, op type), why there is no description of it: it cannot be given one by the user either.
        findings: further findings about the model, a line each.
    """
    reason_of = reasons or {}
    groups: dict[tuple[str, str], list[Op]] = {}
    for op in ops:
        groups.setdefault((op.domain, op.op_type), []).append(op)
    facts = [_fact(key, group, reason_of.get(key, "")) for key, group in sorted(groups.items())]
    if len(groups) == 1:
        ((domain, op_type),) = groups
        summary = f"operator {qualified(domain, op_type)} of the model has no description"
    else:
        summary = f"{len(groups)} operators of the model have no description"
    open_groups = {key: group for key, group in groups.items() if key not in reason_of}
    return UnsupportedError(summary, facts=(*facts, *findings), hint=_hint(open_groups))


def _fact(key: tuple[str, str], ops: Sequence[Op], reason: str) -> str:
    names = ", ".join(repr(op.name) for op in ops[:_SHOWN_OPS])
    suffix = f" and {len(ops) - _SHOWN_OPS} more" if len(ops) > _SHOWN_OPS else ""
    count = "1 op" if len(ops) == 1 else f"{len(ops)} ops"
    return f"{qualified(*key)}: {count}: {names}{suffix}" + (f" ({reason})" if reason else "")


def _hint(groups: Mapping[tuple[str, str], Sequence[Op]]) -> str:
    option = "--unknown-ops replicate: every worker runs them whole, and the plan says what that costs"
    if not groups:
        return f"add {option}"
    lines = [f"write my_ops.py and add --opdefs my_ops.py ({_PAGE} shows how to go on from here):", ""]
    lines += [f"    {line}" if line else "" for line in skeleton(groups).splitlines()]
    return "\n".join([*lines, "", f"or add {option}"])


def skeleton(groups: Mapping[tuple[str, str], Sequence[Op]]) -> str:
    """A file that describes operators: each as an opaque function of whole inputs.

    Args:
        groups: ops by (domain, op type).
    """
    parts = ["from planner.tdl.builder import Opaque, op"]
    reserved: set[str] = set()
    for (domain, op_type), ops in sorted(groups.items()):
        name = _function_name(op_type, reserved)
        reserved.add(name)
        parts.append(_description(domain, op_type, name, ops))
    return "\n\n\n".join(parts) + "\n"


def _description(domain: str, op_type: str, name: str, ops: Sequence[Op]) -> str:
    arity = max(len(op.inputs) for op in ops)
    always = [all(slot < len(op.inputs) and op.inputs[slot] for op in ops) for slot in range(arity)]
    letters = [_LETTERS[slot] if slot < len(_LETTERS) else f"X{slot}" for slot in range(arity)]
    required = arity if all(always) else always.index(False)
    parameters = [letter if slot < required else f"{letter}=None" for slot, letter in enumerate(letters)]
    if required == arity:
        arguments = ", ".join(f"{letter}[...]" for letter in letters)
    else:
        arguments = f"*(T[...] for T in ({', '.join(letters)},) if T is not None)"
    outputs = max(len(op.outputs) for op in ops)
    variables = ["i"] if outputs == 1 else [f"i{position}_" for position in range(outputs)]
    values = ", ".join(f"lambda *{variable}: whole[{variable}]" for variable in variables)
    domain_text = f", domain={json.dumps(domain)}" if domain else ""
    return "\n".join(
        [
            f"@op({json.dumps(op_type)}{domain_text})",
            f"def {name}({', '.join(['node', *parameters])}):",
            "    # A beginning: all of every input. Better are the elements that one of the output depends on.",
            f"    whole = Opaque({json.dumps(op_type)})({arguments})",
            f"    return {values}",
        ]
    )


def _function_name(op_type: str, reserved: set[str]) -> str:
    """``bias_gelu`` for ``BiasGelu``."""
    spaced = re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", op_type)
    name = re.sub(r"\W", "_", spaced, flags=re.ASCII).lower() or "operator"
    if name[0].isdigit() or keyword.iskeyword(name) or name in ("op", "node"):
        name = f"op_{name}"
    while name in reserved:
        name += "_"
    return name
