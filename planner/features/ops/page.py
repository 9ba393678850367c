"""Facts of one operator, from examples: its mathematics, how it can be cut, and what each part reads."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar

from planner.algebra.region import Boxes, index_space
from planner.algebra.tiling import Shard, Tiling
from planner.errors import TofuError, UsageError, did_you_mean
from planner.features.ops.cases.case import Case, bind_case, by_type, execute_case, find_operator, qualified
from planner.graph.core.model import Shape
from planner.graph.decompositions import body_text, expand
from planner.tdl.analyse import Variable
from planner.tdl.bind import BoundOp
from planner.tdl.descriptions import Descriptions
from planner.tdl.expr import VarKind
from planner.tdl.render import render
from planner.units import format_bytes

MOST_EXAMPLES = 3


@dataclass(frozen=True, slots=True)
class VariableLine:
    """One index variable of an example."""

    name: str
    extent: int
    kind: str
    """"output" or "reduction"."""
    how: str
    """The reduction that joins the results of a cut along it, or the reason why there is none."""
    reads: tuple[str, ...]
    """The parts that two workers read of each input, halos named; () where it cannot be cut."""


@dataclass(frozen=True, slots=True)
class Example:
    """An op of some shape: what its description says of it."""

    case: str
    mathematics: tuple[str, ...]
    """One line for each output."""
    variables: tuple[VariableLine, ...]


@dataclass(frozen=True, slots=True)
class PartLine:
    """One op of an example's body."""

    name: str
    """The name of the op and of the tensor that it makes."""
    op_type: str
    reads: tuple[str, ...]
    """Names of ops of the body, and of the example's inputs."""
    shape: Shape
    """The shape of its result."""
    joined: tuple[str, ...]
    """The reductions that two workers join where it is cut along each of its reductions, and the bytes that move at
    most.
    """


@dataclass(frozen=True, slots=True)
class OperatorPage:
    """The page of ``tofu ops NAME``."""

    schema_version: ClassVar = 2
    told: ClassVar = "domain op_type source documentation body parts_of parts examples"

    domain: str
    op_type: str
    source: str
    """The place of its description: file and line."""
    documentation: str
    examples: tuple[Example, ...]
    body: str = ""
    """The ops that an op of it is planned through, where that costs less; "" if it has no body."""
    parts: tuple[PartLine, ...] = ()
    """The ops of the first example's body."""
    parts_of: str = ""
    """The op of that example."""


def operator_page(op_type: str, descriptions: Descriptions, cases: Sequence[Case]) -> OperatorPage:
    """Examples of an operator, those whose mathematics differ.

    Raises:
        UsageError: it is not described, or there is no case of it.
        TofuError: of what its description says of the first case, where no case can be shown.
    """
    key = find_operator(op_type, descriptions.described)
    if key is None:
        names = [qualified(*pair) for pair in descriptions.described]
        raise UsageError(f"operator {op_type} has no description", hint=did_you_mean(op_type, names))
    description = descriptions.description(*key)
    examples: list[Example] = []
    parts: tuple[PartLine, ...] = ()
    parts_of = ""
    seen: set[tuple[str, ...]] = set()
    wrong: list[TofuError] = []
    code = description.function.__code__
    own_cases = by_type(tuple(cases)).get(qualified(*key), ())
    if not own_cases:
        operands = ", (4, 6)" * max(1, code.co_argcount - 1 - len(description.function.__defaults__ or ()))
        domain = f', domain="{key[0]}"' if key[0] else ""
        raise UsageError(
            f"{qualified(*key)} is described in {code.co_filename}, and no case says for which shapes to show it",
            hint=f'add CASES = [make("{key[1]}"{operands}{domain})] there (docs/operators.md)',
        )
    for case in own_cases:
        try:
            op, _, _ = bind_case(case, descriptions)
        except TofuError as error:
            wrong.append(error)  # the verifier says of each what is wrong with it
            continue
        if not parts_of:
            parts, parts_of = _parts(case, descriptions), str(case)
        mathematics = render(op.description, op.node)
        if mathematics in seen:
            continue
        seen.add(mathematics)
        lines = tuple(_variable_line(op, number, variable) for number, variable in enumerate(op.variables))
        examples.append(Example(str(case), mathematics, lines))
        if len(examples) == MOST_EXAMPLES:
            break
    if wrong and not examples:
        raise wrong[0]
    file = code.co_filename.replace("\\", "/")
    shown = file[file.rindex("/opdefs/") + 1 :] if "/opdefs/" in file else file
    return OperatorPage(
        domain=key[0],
        op_type=key[1],
        source=f"{shown}:{code.co_firstlineno}",
        documentation=" ".join((description.function.__doc__ or "").split()),
        examples=tuple(examples),
        body=body_text(*key),
        parts=parts,
        parts_of=parts_of if parts else "",
    )


def _parts(case: Case, descriptions: Descriptions) -> tuple[PartLine, ...]:
    """The ops of a body of two workers; () if this op has none."""
    graph, _, _ = execute_case(case, 0, descriptions)
    expanded = expand(graph, workers=2)
    if not expanded.bodies:
        return ()
    (body,) = expanded.bodies
    names = {name: f"in{slot}" for slot, name in enumerate(body.op.inputs)}
    names |= {copy.outputs[0]: names[copy.inputs[0]] for copy in body.copies}
    names |= {op.outputs[0]: op.name.removeprefix(f"{body.op.name}/") for op in body.ops if op not in body.copies}
    ops = [op for op in body.ops if op not in body.copies]
    lines = []
    # Of two workers each sends its part of what the other joins, and then what it has joined.
    for op in ops:
        described = descriptions.bind(op, expanded.graph)
        output = expanded.graph.tensors[op.outputs[0]]
        joined = tuple(
            f"{variable.reducer.value} along {variable.name} of {extent}: {format_bytes(2 * output.size_bytes)}"
            for variable, extent in zip(described.variables, described.extents, strict=True)
            if variable.reducer is not None and not variable.obstacle and extent > 1
        )
        reads = tuple(names.get(name, name) for name in op.inputs if name not in expanded.graph.constants)
        lines.append(PartLine(names[op.outputs[0]], op.op_type, reads, output.shape, joined))
    return tuple(lines)


def _variable_line(op: BoundOp, number: int, variable: Variable) -> VariableLine:
    kind, extent = variable.kind.value, op.extents[number]
    if variable.obstacle:
        return VariableLine(variable.name, extent, kind, f"not cut: {variable.obstacle}", ())
    if variable.reducer is not None:
        how = f"reduced by {variable.reducer.value}"
    else:
        how = "not cut" if variable.kind is VarKind.REDUCTION else "concatenated"
    if variable.blocks:
        how += f", in blocks of {' or '.join(map(str, variable.blocks))}"
    if extent < 2:
        return VariableLine(variable.name, extent, kind, how, ())
    ranges = op.ranges(Tiling((Shard(number),), (2,)))
    veto = op.veto(ranges)
    if veto:
        return VariableLine(variable.name, extent, kind, f"{how} (not everywhere: {veto})", ())
    return VariableLine(variable.name, extent, kind, how, tuple(_reads(op, ranges, variable.kind is VarKind.OUTPUT)))


def _reads(op: BoundOp, ranges: Boxes, with_halos: bool) -> Iterator[str]:
    for slot, boxes in sorted(op.reads(ranges).items()):
        shape: Shape = op.node.input_shapes[slot] or ()
        parts = [boxes.boxes.region(worker).text(index_space(shape)) for worker in range(ranges.workers)]
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
