"""What is known of one operator, from examples: its mathematics, how it can be cut, and what each part reads."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from planner.algebra.region import Boxes
from planner.algebra.tiling import Shard, Tiling
from planner.errors import TofuError, UsageError, did_you_mean
from planner.graph.bodies import body_text
from planner.graph.model import Shape
from planner.tdl.analyse import Variable
from planner.tdl.bind import BoundOp
from planner.tdl.descriptions import Descriptions
from planner.tdl.expr import VarKind
from planner.tdl.render import render
from planner.verify.cases.examples import Case, bind_case, by_type, find_operator, qualified

MOST_EXAMPLES = 3


@dataclass(frozen=True, slots=True)
class VariableLine:
    """One index variable of an example."""

    name: str
    extent: int
    kind: str
    """"output" or "reduction"."""
    how: str
    """How the results of a cut along it are joined, or why there is none."""
    reads: tuple[str, ...]
    """What two workers read of each input, halos named; () where it cannot be cut."""


@dataclass(frozen=True, slots=True)
class Example:
    """An op of some shape: what its description says of it."""

    case: str
    mathematics: tuple[str, ...]
    """One line for each output."""
    variables: tuple[VariableLine, ...]


@dataclass(frozen=True, slots=True)
class OperatorPage:
    """What ``tofu ops NAME`` shows, but for the verification."""

    domain: str
    op_type: str
    source: str
    """Where it is described: file and line."""
    documentation: str
    examples: tuple[Example, ...]
    body: str = ""
    """What the ops compute that an op of it is planned through, where that costs less; "" if it has no body."""


def operator_page(op_type: str, descriptions: Descriptions, cases: Sequence[Case]) -> OperatorPage:
    """Examples of an operator, those whose mathematics differ.

    Raises:
        UsageError: it is not described.
    """
    key = find_operator(op_type, descriptions.described)
    if key is None:
        names = [qualified(*known) for known in descriptions.described]
        raise UsageError(f"operator {op_type} has no description", hint=did_you_mean(op_type, names))
    description = descriptions.description(*key)
    examples: list[Example] = []
    seen: set[tuple[str, ...]] = set()
    for case in by_type(tuple(cases)).get(qualified(*key), ()):
        try:
            bound, _, _ = bind_case(case, descriptions)
        except TofuError:
            continue  # the verifier says what is wrong with it
        mathematics = render(bound.description, bound.node)
        if mathematics in seen:
            continue
        seen.add(mathematics)
        lines = tuple(_variable_line(bound, number, variable) for number, variable in enumerate(bound.variables))
        examples.append(Example(str(case), mathematics, lines))
        if len(examples) == MOST_EXAMPLES:
            break
    code = description.function.__code__
    file = code.co_filename.replace("\\", "/")
    shown = file[file.rindex("/opdefs/") + 1 :] if "/opdefs/" in file else file
    return OperatorPage(
        domain=key[0],
        op_type=key[1],
        source=f"{shown}:{code.co_firstlineno}",
        documentation=" ".join((description.function.__doc__ or "").split()),
        examples=tuple(examples),
        body=body_text(*key),
    )


def _variable_line(bound: BoundOp, number: int, variable: Variable) -> VariableLine:
    kind, extent = variable.kind.value, bound.extents[number]
    if variable.obstacle:
        return VariableLine(variable.name, extent, kind, f"not cut: {variable.obstacle}", ())
    if variable.reducer is None:
        how = "concatenated"
    else:
        how = f"reduced by {variable.reducer.value}"
    if variable.kind is VarKind.REDUCTION and variable.reducer is None:
        how = "not cut"
    if variable.blocks:
        how += f", in blocks of {' or '.join(map(str, variable.blocks))}"
    if extent < 2:
        return VariableLine(variable.name, extent, kind, how, ())
    ranges = bound.ranges(Tiling((Shard(number),), (2,)))
    veto = bound.veto(ranges)
    if veto:
        return VariableLine(variable.name, extent, kind, f"{how} (not everywhere: {veto})", ())
    return VariableLine(variable.name, extent, kind, how, tuple(_reads(bound, ranges, variable.kind is VarKind.OUTPUT)))


def _reads(bound: BoundOp, ranges: Boxes, with_halos: bool) -> Iterator[str]:
    for slot, boxes in sorted(bound.reads(ranges).items()):
        shape: Shape = bound.node.input_shapes[slot] or ()
        parts = []
        for worker in range(ranges.workers):
            region = boxes.boxes.region(worker)
            if region.is_empty:
                parts.append("nothing")
            elif shape and region.shape != shape:
                parts.append(
                    "["
                    + ", ".join(
                        ":" if (lo, hi) == (0, size) else f"{lo}:{hi}"
                        for lo, hi, size in zip(region.lo, region.hi, shape, strict=True)
                    )
                    + "]"
                )
            else:
                parts.append("all")
        text = " | ".join(parts) if len(set(parts)) > 1 else parts[0]
        yield f"in{slot} {text}{_halo(boxes.boxes, shape) if with_halos else ''}"


def _halo(boxes: Boxes, shape: Shape) -> str:
    """The dims along which the two parts overlap without being all of it."""
    texts = []
    for dim, size in enumerate(shape):
        first, second = (int(boxes.lo[0, dim]), int(boxes.hi[0, dim])), (int(boxes.lo[1, dim]), int(boxes.hi[1, dim]))
        overlap = first[1] - second[0]
        if overlap > 0 and first != second and not {first, second} & {(0, size)}:
            texts.append(f"{overlap} of dim {dim}")
    return f"  (halo: {', '.join(texts)})" if texts else ""
