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
from planner.graph.model import Op

_SHOWN_OPS: Final = 8
_LETTERS: Final = "XABCDEFGHIJKLMNOPQRSTUVWYZ"
_PAGE: Final = "docs/describe-an-operator.md"


def qualified(domain: str, op_type: str) -> str:
    """An operator's name: ``Conv``, or ``my.domain.MyConv``."""
    return f"{domain}.{op_type}" if domain else op_type


def undescribed_error(
    ops: Sequence[Op], reasons: Mapping[tuple[str, str], str] | None = None, others: Sequence[str] = ()
) -> UnsupportedError:
    """The error about operators without a description.

    Args:
        ops: every op of such an operator, in the model's order.
        reasons: by (domain, op type), why there is no description of it: it cannot be given one by the user either.
        others: further findings about the model, a line each.
    """
    known = reasons or {}
    groups: dict[tuple[str, str], list[Op]] = {}
    for op in ops:
        groups.setdefault((op.domain, op.op_type), []).append(op)
    facts = [_fact(key, group, known.get(key, "")) for key, group in sorted(groups.items())]
    if len(groups) == 1:
        ((domain, op_type),) = groups
        what = f"operator {qualified(domain, op_type)} of the model has no description"
    else:
        what = f"{len(groups)} operators of the model have no description"
    open_groups = {key: group for key, group in groups.items() if key not in known}
    return UnsupportedError(what, facts=(*facts, *others), hint=_hint(open_groups))


def _fact(key: tuple[str, str], ops: Sequence[Op], reason: str) -> str:
    names = ", ".join(repr(op.name) for op in ops[:_SHOWN_OPS])
    more = f" and {len(ops) - _SHOWN_OPS} more" if len(ops) > _SHOWN_OPS else ""
    count = "1 op" if len(ops) == 1 else f"{len(ops)} ops"
    return f"{qualified(*key)}: {count}: {names}{more}" + (f" ({reason})" if reason else "")


def _hint(groups: Mapping[tuple[str, str], Sequence[Op]]) -> str:
    whole = "--unknown-ops replicate: every worker runs them whole, and the plan says what that costs"
    if not groups:
        return f"add {whole}"
    lines = [f"write my_ops.py and add --opdefs my_ops.py ({_PAGE} shows how to go on from here):", ""]
    lines += [f"    {line}" if line else "" for line in skeleton(groups).splitlines()]
    return "\n".join([*lines, "", f"or add {whole}"])


def skeleton(groups: Mapping[tuple[str, str], Sequence[Op]]) -> str:
    """A file that describes operators: each as an opaque function of whole inputs.

    Args:
        groups: ops by (domain, op type).
    """
    parts = ["from planner.tdl.builder import Opaque, op"]
    taken: set[str] = set()
    for (domain, op_type), ops in sorted(groups.items()):
        name = _function_name(op_type, taken)
        taken.add(name)
        parts.append(_description(domain, op_type, name, ops))
    return "\n\n\n".join(parts) + "\n"


def _description(domain: str, op_type: str, name: str, ops: Sequence[Op]) -> str:
    most = max(len(op.inputs) for op in ops)
    always = [all(slot < len(op.inputs) and op.inputs[slot] for op in ops) for slot in range(most)]
    letters = [_LETTERS[slot] if slot < len(_LETTERS) else f"X{slot}" for slot in range(most)]
    required = most if all(always) else always.index(False)
    parameters = [letter if slot < required else f"{letter}=None" for slot, letter in enumerate(letters)]
    if required == most:
        given = ", ".join(f"{letter}[...]" for letter in letters)
    else:
        given = f"*(T[...] for T in ({', '.join(letters)},) if T is not None)"
    outputs = max(len(op.outputs) for op in ops)
    variables = ["i"] if outputs == 1 else [f"i{position}_" for position in range(outputs)]
    values = ", ".join(f"lambda *{variable}: whole[{variable}]" for variable in variables)
    said = f", domain={json.dumps(domain)}" if domain else ""
    return "\n".join(
        [
            f"@op({json.dumps(op_type)}{said})",
            f"def {name}({', '.join(['node', *parameters])}):",
            "    # A beginning: all of every input. Better are the elements that one of the output depends on.",
            f"    whole = Opaque({json.dumps(op_type)})({given})",
            f"    return {values}",
        ]
    )


def _function_name(op_type: str, taken: set[str]) -> str:
    """``bias_gelu`` for ``BiasGelu``."""
    spaced = re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", op_type)
    name = re.sub(r"\W", "_", spaced, flags=re.ASCII).lower() or "operator"
    if name[0].isdigit() or keyword.iskeyword(name) or name in ("op", "node"):
        name = f"op_{name}"
    while name in taken:
        name += "_"
    return name
