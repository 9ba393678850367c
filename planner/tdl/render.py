"""A description as mathematics in plain text.

``Y[b, co, y0, y1] = Sum_{ci, k0, k1} X[b, ci, 2*y0 + k0 - 1, 2*y1 + k1 - 1] * W[co, ci, k0, k1] + B[co]``
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from math import lcm

from planner.tdl.builder import Description, NodeView
from planner.tdl.expr import (
    Access,
    Apply,
    At,
    FloorDiv,
    Index,
    IndexValue,
    Match,
    Mod,
    Number,
    OpaqueResult,
    Output,
    Plus,
    Reduce,
    Times,
    Value,
    Var,
    Whole,
    subvalues,
)

_SUM, _PRODUCT, _ATOM = 1, 2, 3
"""How tightly a piece of text binds: what is joined by + or -, by * or /, or not at all."""

_Text = tuple[str, int]


def render(description: Description, node: NodeView) -> tuple[str, ...]:
    """One line for each output of an op, as its description defines it.

    Inputs are called as the description's function calls them, else ``in0``; outputs ``Y``, or ``Y0`` and on.

    Raises:
        DescriptionError: the description does not fit the op.
    """
    names = _input_names(description, len(node.input_shapes))
    outputs = description.trace(node)
    present = [position for position, shape in enumerate(node.output_shapes) if shape is not None]
    letters = ["Y"] if len(present) == 1 else [f"Y{position}" for position in present]
    return tuple(
        f"{letter}{_output_elements(outputs[position])} = {render_value(outputs[position], names)}"
        for letter, position in zip(letters, present, strict=True)
    )


def render_value(output: Output, names: Sequence[str]) -> str:
    """The right-hand side of one output, and what tensors are beyond their borders if they are read there.

    Args:
        output: what ``Description.trace`` returned.
        names: what to call the inputs, by position.
    """
    fills = {
        f"{_name(value.slot, names)} is {_number(float(value.fill))} outside"
        for value in subvalues(output.value)
        if isinstance(value, Access) and value.fill is not None
    }
    return _value(output.value, names)[0] + (f"  ({', '.join(sorted(fills))})" if fills else "")


def _input_names(description: Description, count: int) -> tuple[str, ...]:
    code = description.function.__code__
    formal = list(code.co_varnames[1 : code.co_argcount])
    return tuple(formal[slot] if slot < len(formal) else f"in{slot}" for slot in range(count))


def _name(slot: int, names: Sequence[str]) -> str:
    return names[slot] if slot < len(names) else f"in{slot}"


def _indexed(indices: Sequence[Index], names: Sequence[str] = ()) -> str:
    return "[" + ", ".join(_index(index, names)[0] for index in indices) + "]" if indices else ""


def _output_elements(output: Output) -> str:
    """The elements that an output's value is of: ``[b, 16*h : 16*h + 16]`` where a dim goes in steps."""
    if not output.steps:
        return _indexed(output.variables)
    dims = (
        variable.name if step == 1 else f"{step}*{variable.name} : {step}*{variable.name} + {step}"
        for variable, step in zip(output.variables, output.steps, strict=True)
    )
    return f"[{', '.join(dims)}]"


def _bracket(text: _Text, least: int) -> str:
    return text[0] if text[1] >= least else f"({text[0]})"


def _number(value: Fraction | float) -> str:
    if isinstance(value, Fraction):
        return str(value)
    return str(int(value)) if value.is_integer() else repr(value)


def _value(value: Value, names: Sequence[str]) -> _Text:
    match value:
        case Number(number):
            return _number(number), _ATOM if number >= 0 else _SUM
        case Access(slot, indices, _):
            return f"{_name(slot, names)}{_indexed(indices, names)}", _ATOM
        case Apply("-", (Number(0.0), inner)):
            return f"-{_bracket(_value(inner, names), _PRODUCT)}", _SUM
        case Apply("+", (left, right)):
            return f"{_value(left, names)[0]} + {_bracket(_value(right, names), _PRODUCT)}", _SUM
        case Apply("-", (left, right)):
            return f"{_value(left, names)[0]} - {_bracket(_value(right, names), _PRODUCT)}", _SUM
        case Apply("*" | "/" as sign, (left, right)):
            # a / (b * c) keeps its brackets, as a - (b - c) does; a * b * c needs none.
            before = _bracket(_value(left, names), _ATOM if isinstance(left, Reduce) else _PRODUCT)
            after = _bracket(_value(right, names), _PRODUCT if sign == "*" else _ATOM)
            return f"{before} {sign} {after}", _PRODUCT
        case Apply(function, arguments):
            return f"{function}({', '.join(_value(argument, names)[0] for argument in arguments)})", _ATOM
        case Reduce(reducer, variables, body, extents):
            bounds = extents or (None,) * len(variables)
            bound = [
                var.name if extent is None else f"{var.name}<{extent}"
                for var, extent in zip(variables, bounds, strict=True)
            ]
            return f"{reducer.value}_{{{', '.join(bound)}}} {_bracket(_value(body, names), _PRODUCT)}", _PRODUCT
        case OpaqueResult(name, arguments, indices):
            inside = ", ".join(_value(argument, names)[0] for argument in arguments)
            return f"<{name}>({inside}){_indexed(indices, names)}", _ATOM
        case IndexValue(index):
            return _index(index, names)
        case Match(element, index):
            return f"[{_value(element, names)[0]} == {_index(index, names)[0]}]", _ATOM


def _index(index: Index, names: Sequence[str]) -> _Text:
    match index:
        case Whole():
            return ":", _ATOM
        case At(access):
            return f"at({_value(access, names)[0]})", _ATOM
    terms: list[tuple[Fraction, _Text]] = []
    constant = _collect(index, Fraction(1), terms, names)
    below = lcm(*(factor.denominator for factor, _ in terms))
    if below == 1:
        return _joined(terms, constant)
    above = _joined([(factor * below, text) for factor, text in terms], constant * below)
    return f"{_bracket(above, _ATOM)}/{below}", _PRODUCT


def _collect(index: Index, factor: Fraction, terms: list[tuple[Fraction, _Text]], names: Sequence[str]) -> Fraction:
    """Appends the terms of an index that are not constant; returns the constant."""
    match index:
        case Number(value):
            return Fraction(value) * factor
        case Plus(left, right):
            return _collect(left, factor, terms, names) + _collect(right, factor, terms, names)
        case Times(inner, by):
            return _collect(inner, factor * by, terms, names)
        case Var(name):
            terms.append((factor, (name, _ATOM)))
        case FloorDiv(inner, divisor):
            terms.append((factor, (f"{_bracket(_index(inner, names), _ATOM)} // {divisor}", _PRODUCT)))
        case Mod(inner, divisor):
            terms.append((factor, (f"{_bracket(_index(inner, names), _ATOM)} % {divisor}", _PRODUCT)))
        case _:
            terms.append((factor, _index(index, names)))
    return Fraction(0)


def _joined(terms: list[tuple[Fraction, _Text]], constant: Fraction) -> _Text:
    # What grows comes first: "y + 1 - k", not "-k + y + 1".
    ordered = sorted(terms, key=lambda term: term[0] < 0)
    text = ""
    for factor, inner in ordered:
        size = abs(factor)
        body = inner[0] if size == 1 and inner[1] >= _PRODUCT else _bracket(inner, _ATOM)
        if size != 1:
            body = f"{size.numerator}*{body}" if size.denominator == 1 else f"{body}*{size}"
        text = _append(text, body, factor < 0)
    if constant or not text:
        text = _append(text, str(abs(constant)), constant < 0)
    alone = len(terms) + bool(constant) <= 1
    if not alone:
        return text, _SUM
    if not terms:
        return text, _ATOM if constant >= 0 else _SUM
    factor, inner = terms[0]
    return text, inner[1] if factor == 1 else _PRODUCT


def _append(text: str, body: str, negative: bool) -> str:
    if not text:
        return f"-{body}" if negative else body
    return f"{text} {'-' if negative else '+'} {body}"
